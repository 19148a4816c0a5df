#include "tests/mpi/harness.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

namespace flx::test {
namespace {

int rank_of_world = 0;
int size_of_world = 1;
int hosts_of_world = 1;

/// Of the running test, for the handler of SIGALRM, which may not allocate.
char running[256] = "no test";

/// Prints failures of all ranks, and progress of rank 0 only.
class Listener final : public testing::EmptyTestEventListener {
  public:
    explicit Listener(testing::TestEventListener *printer) : printer_(printer) {}
    ~Listener() override { delete printer_; }

    void OnTestStart(const testing::TestInfo &info) override {
        std::snprintf(running, sizeof running, "rank %d: out of time in %s.%s\n", rank_of_world, info.test_suite_name(),
                      info.name());
        if (rank_of_world == 0)
            printer_->OnTestStart(info);
    }
    void OnTestPartResult(const testing::TestPartResult &result) override {
        if (result.failed())
            std::fprintf(stderr, "rank %d: %s:%d: %s\n", rank_of_world, result.file_name(), result.line_number(),
                         result.message());
        else if (rank_of_world == 0)
            printer_->OnTestPartResult(result);
    }
    void OnTestEnd(const testing::TestInfo &info) override {
        if (rank_of_world == 0)
            printer_->OnTestEnd(info);
    }
    void OnTestIterationEnd(const testing::UnitTest &test, int iteration) override {
        if (rank_of_world == 0)
            printer_->OnTestIterationEnd(test, iteration);
    }
    void OnTestProgramEnd(const testing::UnitTest &test) override {
        if (rank_of_world == 0)
            printer_->OnTestProgramEnd(test);
    }

  private:
    testing::TestEventListener *printer_;
};

/// A rank that waits for ever says where, and mpirun ends the others.
void out_of_time(int /*signal*/) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, running, std::strlen(running));
    _exit(1);
}

void place_on_host(const char *numbers) {
    std::vector<std::string> hosts;
    std::string item;
    for (const char *at = numbers;; ++at) {
        if (*at != ',' && *at != '\0') {
            item += *at;
            continue;
        }
        hosts.push_back(std::exchange(item, {}));
        if (*at == '\0')
            break;
    }
    std::set<std::string> used;
    for (int rank = 0; rank < size_of_world; ++rank)
        used.insert(hosts[rank % hosts.size()]);
    hosts_of_world = static_cast<int>(used.size());
    setenv("FLX_HOST_ID", ("host" + hosts[rank_of_world % hosts.size()]).c_str(), 1);
}

int run(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_of_world);
    MPI_Comm_size(MPI_COMM_WORLD, &size_of_world);
    for (int i = 1; i < argc; ++i) {
        if (std::string_view(argv[i]).starts_with("--hosts=")) {
            place_on_host(argv[i] + std::strlen("--hosts="));
        } else {
            std::fprintf(stderr, "unknown argument %s\n", argv[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
    // Tests make many communicators, and what they check does not depend on rates.
    setenv("FLX_PROBE_MS", "100", 0);
    auto &listeners = testing::UnitTest::GetInstance()->listeners();
    listeners.Append(new Listener(listeners.Release(listeners.default_result_printer())));

    std::signal(SIGALRM, out_of_time);
    const char *limit = std::getenv("FLX_TEST_SECONDS");
    alarm(limit != nullptr ? static_cast<unsigned>(std::atoi(limit)) : full() ? 7000 : 280);
    int failed = RUN_ALL_TESTS();
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    int skipped =
        testing::UnitTest::GetInstance()->skipped_test_count() == testing::UnitTest::GetInstance()->test_to_run_count();
    MPI_Allreduce(MPI_IN_PLACE, &skipped, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    MPI_Finalize();
    constexpr int kSkipped = 77;
    return failed != 0 ? 1 : skipped != 0 ? kSkipped : 0;
}

}  // namespace

int world_rank() {
    return rank_of_world;
}
int world_size() {
    return size_of_world;
}
int world_hosts() {
    return hosts_of_world;
}

bool full() {
    const char *value = std::getenv("FLX_TEST_FULL");
    return value != nullptr && std::strcmp(value, "1") == 0;
}

uint64_t seed() {
    constexpr uint64_t kSeed = 20261120;
    const char *value = std::getenv("FLX_TEST_SEED");
    return value != nullptr ? std::strtoull(value, nullptr, 10) : kSeed;
}

testing::AssertionResult succeeded(flx_status_t status) {
    if (status == FLX_SUCCESS)
        return testing::AssertionSuccess();
    return testing::AssertionFailure() << flx_strerror(status) << ": " << flx_last_error();
}

bool everywhere(bool condition) {
    int all = condition;
    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    return all != 0;
}

Comm Comm::world(const flx_config_t *config) {
    flx_comm_t comm = nullptr;
    EXPECT_TRUE(succeeded(flx_comm_create(MPI_COMM_WORLD, config, &comm)));
    return Comm(comm);
}

int Comm::rank() const {
    int rank = -1;
    EXPECT_TRUE(succeeded(flx_comm_rank(comm_, &rank)));
    return rank;
}

int Comm::size() const {
    int size = 0;
    EXPECT_TRUE(succeeded(flx_comm_size(comm_, &size)));
    return size;
}

flx_config_t Settings::config() const {
    flx_config_t config = FLX_CONFIG_INIT;
    config.partition = partition.empty() ? nullptr : partition.c_str();
    config.links = links.empty() ? nullptr : links.c_str();
    config.algorithm = algorithm.empty() ? nullptr : algorithm.c_str();
    config.deadline_s = deadline_s;
    config.check = check;
    config.strict = strict;
    return config;
}

std::vector<std::string> common_links() {
    std::vector<std::string> names;
    {
        const Comm comm = Comm::world();
        if (!everywhere(static_cast<bool>(comm)))
            return names;
        std::array<flx_link_stats_t, 16> stats{};
        size_t count = 0;
        EXPECT_TRUE(succeeded(flx_comm_link_stats(comm, stats.data(), sizeof stats[0], stats.size(), &count)));
        for (size_t i = 0; i < std::min(count, stats.size()); ++i)
            names.emplace_back(stats[i].name);
    }
    // Of rank 0's names, those that every rank has too.
    int count = static_cast<int>(names.size());
    MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
    std::vector<std::string> common;
    for (int i = 0; i < count; ++i) {
        std::array<char, 64> name{};
        if (world_rank() == 0)
            std::strncpy(name.data(), names[i].c_str(), name.size() - 1);
        MPI_Bcast(name.data(), name.size(), MPI_CHAR, 0, MPI_COMM_WORLD);
        if (everywhere(std::find(names.begin(), names.end(), name.data()) != names.end()))
            common.emplace_back(name.data());
    }
    return common;
}

std::vector<std::string> complete_links() {
    std::vector<std::string> complete;
    for (const std::string &name : common_links()) {
        Settings settings;
        settings.links = name;
        const flx_config_t config = settings.config();
        flx_comm_t comm = nullptr;
        const bool made = flx_comm_create(MPI_COMM_WORLD, &config, &comm) == FLX_SUCCESS;
        if (made)
            flx_comm_free(&comm);
        if (everywhere(made))
            complete.push_back(name);
    }
    return complete;
}

}  // namespace flx::test

int main(int argc, char **argv) {
    return flx::test::run(argc, argv);
}
