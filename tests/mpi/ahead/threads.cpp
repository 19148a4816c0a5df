/// All of a rank's program: its options, its threads, and what it says when it hangs.
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "tests/mpi/ahead/runner.h"

extern char **environ;

namespace flx::test::ahead {
namespace {

constexpr int kMostThreads = 8;
std::array<Standing, kMostThreads> standings;
int threads_running = 0;
int rank_of_world = 0;

/// All ranks say where they are before the first of them ends, and mpirun the others.
void out_of_time(int /*signal*/) {
    for (int thread = 0; thread < threads_running; ++thread) {
        const Standing &standing = standings[static_cast<size_t>(thread)];
        std::array<char, 200> text{};
        const int length = std::snprintf(
            text.data(), text.size(), "rank %d: out of time: thread %d is in episode %lu, operation %lu of it (%s)\n",
            rank_of_world, thread, static_cast<unsigned long>(standing.episode.load()),
            static_cast<unsigned long>(standing.operation.load()), standing.collective.load());
        [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), static_cast<size_t>(length));
    }
    sleep(2);
    _exit(1);
}

template <typename Number>
bool read(std::string_view text, Number &number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size();
}

bool full() {
    const char *value = std::getenv("FLX_TEST_FULL");
    return value != nullptr && std::strcmp(value, "1") == 0;
}

}  // namespace

bool parse(int argc, char **argv, Options &options, std::string &wrong) {
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    // Settings of the environment belong to the command that does the same again.
    std::string settings;
    for (char **variable = environ; *variable != nullptr; ++variable) {
        const std::string_view text = *variable;
        if (text.starts_with("FLX_") && !text.starts_with("FLX_TEST_") && !text.starts_with("FLX_HOST_ID"))
            settings += fmt::format(" -x {}", text);
    }
    if (const char *seed = std::getenv("FLX_TEST_SEED"); seed != nullptr)
        options.seed = std::strtoull(seed, nullptr, 10);
    constexpr uint64_t kMore = 25;
    const uint64_t more = full() ? kMore : 1;
    for (int i = 1; i < argc; ++i) {
        const std::string_view name = argv[i];
        const std::string_view value = i + 1 < argc ? argv[i + 1] : "";
        ++i;
        const bool known = name == "--seed"         ? read(value, options.seed)
                           : name == "--operations" ? read(value, options.operations)
                           : name == "--threads"    ? read(value, options.threads)
                           : name == "--seconds"    ? read(value, options.seconds)
                           : name == "--longest"    ? read(value, options.longest)
                           : name == "--only"       ? read(value, options.only)
                           : name == "--repeat"     ? read(value, options.repeat)
                           : name == "--shrink"     ? read(value, options.shrink)
                                                    : name == "--hosts";
        if (name == "--hosts")
            options.hosts = value;
        if (!known || options.threads < 1 || options.threads > kMostThreads) {
            wrong = fmt::format("{} {} is not known; known are\n{}", name, value, kUsage);
            return false;
        }
    }
    options.command =
        fmt::format("mpirun --oversubscribe --bind-to none -n {}{} {} --seed {} --operations {} --threads {}", ranks,
                    settings, argv[0], options.seed, options.operations, options.threads);
    if (!options.hosts.empty())
        options.command += fmt::format(" --hosts {}", options.hosts);
    options.operations *= more;
    return true;
}

int run_threads(const Options &options, const Choice &choice,
                const std::function<std::unique_ptr<Engine>(const std::vector<Group> &groups)> &make) {
    int size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_of_world);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const std::vector<Group> groups = make_groups(size, options.seed);
    std::vector<std::unique_ptr<Engine>> engines;
    for (int thread = 0; thread < options.threads; ++thread) {
        engines.push_back(make(groups));
        if (engines.back() == nullptr)
            return 1;
    }
    threads_running = options.threads;
    std::signal(SIGALRM, out_of_time);
    const char *limit = std::getenv("FLX_TEST_SECONDS");
    alarm(limit != nullptr ? static_cast<unsigned>(std::atoi(limit)) : full() ? 7000 : 280);

    std::vector<Outcome> outcomes(engines.size());
    const auto work = [&](size_t thread) {
        Choice own = choice;
        own.seed = options.seed;
        own.thread = static_cast<int>(thread);
        own.longest = options.longest;
        outcomes[thread] = Runner(*engines[thread], options, own, groups, rank_of_world, standings[thread]).run();
    };
    const auto begin = std::chrono::steady_clock::now();
    if (engines.size() == 1) {
        work(0);
    } else {
        std::vector<std::thread> threads;
        for (size_t thread = 0; thread < engines.size(); ++thread)
            threads.emplace_back(work, thread);
        for (std::thread &thread : threads)
            thread.join();
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    Outcome all;
    for (const auto &engine : engines) {
        const Engine::Sentence sentence = engine->finish();
        if (sentence != nullptr)
            std::fprintf(stderr, "rank %d: %s\nagain: %s\n", rank_of_world, sentence, options.command.c_str());
        all.wrong += sentence != nullptr ? 1 : 0;
    }
    engines.clear();
    for (const Outcome &outcome : outcomes) {
        all.operations += outcome.operations;
        all.episodes += outcome.episodes;
        all.wrong += outcome.wrong;
    }
    unsigned long wrong = all.wrong;
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank_of_world == 0)
        std::printf("seed %lu, %d ranks, %d threads: %lu operations in %lu episodes, %.1f s: %lu wrong\n",
                    static_cast<unsigned long>(options.seed), size, options.threads,
                    static_cast<unsigned long>(all.operations), static_cast<unsigned long>(all.episodes), seconds,
                    wrong);
    return wrong == 0 ? 0 : 1;
}

}  // namespace flx::test::ahead
