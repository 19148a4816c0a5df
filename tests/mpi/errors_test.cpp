/// Bad input: each is a status and a sentence that says what is wrong, on all ranks that can know, and nobody hangs.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/mpi/reference.h"

namespace flx::test {
namespace {

/// Whether `status` is `want` and the last error's sentence has all of `words`.
testing::AssertionResult refused(flx_status_t status, flx_status_t want, std::initializer_list<std::string> words) {
    const std::string sentence = flx_last_error();
    if (status != want)
        return testing::AssertionFailure() << flx_strerror(status) << " instead of " << flx_strerror(want) << ": "
                                           << (status == FLX_SUCCESS ? "" : sentence);
    for (const std::string &word : words)
        if (sentence.find(word) == std::string::npos)
            return testing::AssertionFailure() << "no \"" << word << "\" in \"" << sentence << "\"";
    return testing::AssertionSuccess();
}

/// Sets a variable of the environment for a scope.
class Variable {
  public:
    Variable(const char *name, const char *value) : name_(name) {
        if (const char *old = std::getenv(name))
            old_ = old;
        setenv(name, value, 1);
    }
    ~Variable() {
        if (old_.empty())
            unsetenv(name_.c_str());
        else
            setenv(name_.c_str(), old_.c_str(), 1);
    }
    Variable(const Variable &) = delete;
    Variable &operator=(const Variable &) = delete;

  private:
    std::string name_;
    std::string old_;
};

testing::AssertionResult creation_refused(const flx_config_t *config, flx_status_t want,
                                          std::initializer_list<std::string> words) {
    flx_comm_t comm = nullptr;
    const flx_status_t status = flx_comm_create(MPI_COMM_WORLD, config, &comm);
    const testing::AssertionResult result = refused(status, want, words);
    if (comm != nullptr) {
        flx_comm_free(&comm);
        return testing::AssertionFailure() << "a handle was made";
    }
    return result;
}

class Arguments : public testing::Test {
  protected:
    void SetUp() override {
        comm_ = Comm::world();
        ASSERT_TRUE(comm_);
    }
    /// What was refused did not reach the links: the communicator works.
    void TearDown() override {
        const int in = world_rank();
        int out = -1;
        ASSERT_TRUE(succeeded(flx_allreduce(&in, &out, 1, FLX_INT32, FLX_MAX, comm_)));
        EXPECT_EQ(out, world_size() - 1);
    }

    Comm comm_;
    std::array<float, 64> a_{}, b_{};
};

TEST_F(Arguments, NullPointers) {
    EXPECT_TRUE(
        refused(flx_allreduce(nullptr, b_.data(), 4, FLX_F32, FLX_SUM, comm_), FLX_ERR_ARGUMENT, {"sendbuf", "null"}));
    EXPECT_TRUE(
        refused(flx_allreduce(a_.data(), nullptr, 4, FLX_F32, FLX_SUM, comm_), FLX_ERR_ARGUMENT, {"recvbuf", "null"}));
    EXPECT_TRUE(refused(flx_allreduce(a_.data(), b_.data(), 4, FLX_F32, FLX_SUM, nullptr), FLX_ERR_ARGUMENT, {"comm"}));
    EXPECT_TRUE(refused(flx_bcast(nullptr, 4, FLX_F32, 0, comm_), FLX_ERR_ARGUMENT, {"buf", "null"}));
    EXPECT_TRUE(refused(flx_allgather(nullptr, b_.data(), 1, FLX_F32, comm_), FLX_ERR_ARGUMENT, {"sendbuf"}));
    EXPECT_TRUE(refused(flx_reduce_scatter_block(a_.data(), nullptr, 1, FLX_F32, FLX_SUM, comm_), FLX_ERR_ARGUMENT,
                        {"recvbuf"}));
    EXPECT_TRUE(refused(flx_reduce(nullptr, b_.data(), 1, FLX_F32, FLX_SUM, 0, comm_), FLX_ERR_ARGUMENT, {"sendbuf"}));
    EXPECT_TRUE(refused(flx_barrier(nullptr), FLX_ERR_ARGUMENT, {"comm"}));
    EXPECT_TRUE(refused(flx_comm_create(MPI_COMM_WORLD, nullptr, nullptr), FLX_ERR_ARGUMENT, {"comm", "null"}));
    EXPECT_TRUE(refused(flx_comm_rank(comm_, nullptr), FLX_ERR_ARGUMENT, {"rank", "null"}));
    EXPECT_TRUE(refused(flx_comm_size(nullptr, nullptr), FLX_ERR_ARGUMENT, {"comm"}));
    EXPECT_TRUE(refused(flx_comm_dup(comm_, nullptr), FLX_ERR_ARGUMENT, {"dup", "null"}));
    EXPECT_TRUE(refused(flx_comm_free(nullptr), FLX_ERR_ARGUMENT, {"null"}));
    EXPECT_TRUE(refused(flx_counters(nullptr), FLX_ERR_ARGUMENT, {"counters"}));
    EXPECT_TRUE(refused(flx_report(comm_, nullptr, nullptr), FLX_ERR_ARGUMENT, {"line"}));
    EXPECT_TRUE(
        refused(flx_comm_link_stats(comm_, nullptr, sizeof(flx_link_stats_t), 1, nullptr), FLX_ERR_ARGUMENT, {"null"}));
}

TEST_F(Arguments, UnknownTypesReductionsAndRoots) {
    const auto dtype = static_cast<flx_dtype_t>(99);
    const auto op = static_cast<flx_op_t>(-1);
    EXPECT_TRUE(
        refused(flx_allreduce(a_.data(), b_.data(), 1, dtype, FLX_SUM, comm_), FLX_ERR_ARGUMENT, {"dtype", "99"}));
    EXPECT_TRUE(refused(flx_allreduce(a_.data(), b_.data(), 1, FLX_F32, op, comm_), FLX_ERR_ARGUMENT, {"op", "-1"}));
    const std::string size = std::to_string(world_size());
    EXPECT_TRUE(refused(flx_bcast(a_.data(), 1, FLX_F32, world_size(), comm_), FLX_ERR_ARGUMENT, {"root", size}));
    EXPECT_TRUE(refused(flx_bcast(a_.data(), 1, FLX_F32, -1, comm_), FLX_ERR_ARGUMENT, {"root", "-1"}));
    EXPECT_TRUE(refused(flx_reduce(a_.data(), b_.data(), 1, FLX_F32, FLX_SUM, 1 << 20, comm_), FLX_ERR_ARGUMENT,
                        {"root", "1048576"}));
    const char *name = nullptr;
    EXPECT_TRUE(refused(flx_comm_algorithm(comm_, "gossip", 8, FLX_F32, FLX_SUM, &name), FLX_ERR_ARGUMENT, {"gossip"}));
    const auto each = [](const char *, double, void *) {};
    EXPECT_TRUE(refused(flx_comm_algorithms(comm_, "gossip", 8, each, nullptr), FLX_ERR_ARGUMENT, {"gossip"}));
    EXPECT_TRUE(refused(flx_comm_algorithms(comm_, "reduce", 8, nullptr, nullptr), FLX_ERR_ARGUMENT, {"each"}));
}

TEST_F(Arguments, ReductionsThat8BitFloatsLack) {
    const auto *name = "f8e4m3";
    for (const flx_dtype_t dtype : {FLX_F8E4M3, FLX_F8E5M2}) {
        for (const auto &[op, op_name] : {std::pair{FLX_PROD, "prod"},
                                          {FLX_LAND, "land"},
                                          {FLX_BXOR, "bxor"},
                                          {FLX_MINLOC, "minloc"},
                                          {FLX_MAXLOC, "maxloc"}}) {
            EXPECT_TRUE(refused(flx_allreduce(a_.data(), b_.data(), 1, dtype, op, comm_), FLX_ERR_ARGUMENT,
                                {name, op_name, "sum, avg, min and max"}));
            EXPECT_TRUE(refused(flx_reduce_scatter_block(a_.data(), b_.data(), 1, dtype, op, comm_), FLX_ERR_ARGUMENT,
                                {name, op_name}));
        }
        const uint8_t factor = 0x38;
        flx_op_t made{};
        EXPECT_TRUE(refused(flx_op_create_scaled_sum(&factor, dtype, &made), FLX_ERR_ARGUMENT, {name, "FLX_F16"}));
        name = "f8e5m2";
    }
}

TEST_F(Arguments, OverlapsAndHugeCounts) {
    EXPECT_TRUE(refused(flx_allreduce(a_.data(), a_.data() + 1, 4, FLX_F32, FLX_SUM, comm_), FLX_ERR_ARGUMENT,
                        {"overlap", "12 bytes", "FLX_IN_PLACE"}));
    EXPECT_TRUE(refused(flx_reduce_scatter_block(a_.data() + 1, a_.data(), 2, FLX_F32, FLX_SUM, comm_),
                        FLX_ERR_ARGUMENT, {"overlap"}));
    const bool last = world_rank() == world_size() - 1;
    EXPECT_TRUE(refused(flx_allgather(a_.data() + (last ? 0 : world_size() - 1) + (world_size() == 1 ? 1 : 0),
                                      a_.data(), world_size() == 1 ? 2 : 1, FLX_F32, comm_),
                        FLX_ERR_ARGUMENT, {"overlap"}));
    EXPECT_TRUE(refused(flx_allreduce(a_.data(), b_.data(), SIZE_MAX, FLX_F32, FLX_SUM, comm_), FLX_ERR_ARGUMENT,
                        {"count", "memory"}));
    EXPECT_TRUE(
        refused(flx_allgather(a_.data(), b_.data(), SIZE_MAX / 4, FLX_F32, comm_), FLX_ERR_ARGUMENT, {"count"}));
    // Whose count it is, where each rank has one of its own.
    std::vector<size_t> counts(world_size(), 1);
    std::vector<size_t> displs(world_size(), 0);
    const size_t last_rank = counts.size() - 1;
    const std::string whose = " of rank " + std::to_string(last_rank) + " is larger than memory";
    displs[last_rank] = SIZE_MAX / 2;
    EXPECT_TRUE(refused(flx_allgatherv(FLX_IN_PLACE, 1, b_.data(), counts.data(), displs.data(), FLX_F32, comm_),
                        FLX_ERR_ARGUMENT, {"displacement 9223372036854775807" + whose}));
    displs[last_rank] = 0;
    counts[last_rank] = SIZE_MAX / 2;
    EXPECT_TRUE(refused(flx_allgatherv(FLX_IN_PLACE, 1, b_.data(), counts.data(), displs.data(), FLX_F32, comm_),
                        FLX_ERR_ARGUMENT, {"count 9223372036854775807" + whose}));
    EXPECT_TRUE(refused(flx_reduce_scatter(a_.data(), b_.data(), counts.data(), FLX_F32, FLX_SUM, comm_),
                        FLX_ERR_ARGUMENT, {"count 9223372036854775807" + whose}));
    EXPECT_TRUE(succeeded(flx_allreduce(nullptr, nullptr, 0, FLX_F32, FLX_SUM, comm_)));
}

TEST_F(Arguments, StructSizes) {
    flx_config_t config = FLX_CONFIG_INIT;
    config.struct_size = 3;
    EXPECT_TRUE(creation_refused(&config, FLX_ERR_ARGUMENT, {"struct_size", "3", "FLX_CONFIG_INIT"}));
    flx_counters_t counters{};
    EXPECT_TRUE(refused(flx_counters(&counters), FLX_ERR_ARGUMENT, {"struct_size"}));
    std::array<flx_link_stats_t, 2> stats{};
    size_t count = 0;
    EXPECT_TRUE(refused(flx_comm_link_stats(comm_, stats.data(), 8, 2, &count), FLX_ERR_ARGUMENT, {"entry_size", "8"}));
    flx_comm_t comm = nullptr;
    EXPECT_TRUE(refused(flx_comm_create(MPI_COMM_NULL, nullptr, &comm), FLX_ERR_ARGUMENT, {"MPI_COMM_NULL"}));
    EXPECT_EQ(comm, nullptr);
}

/// Programs that were compiled with an older flx.h, whose structs end earlier.
TEST_F(Arguments, ShorterStructs) {
    flx_config_t config = FLX_CONFIG_INIT;
    config.struct_size = offsetof(flx_config_t, deadline_s);
    config.deadline_s = -5;  // not theirs, and not looked at
    EXPECT_TRUE(Comm::world(&config));
    config.struct_size += 4;  // no struct's size
    EXPECT_TRUE(creation_refused(&config, FLX_ERR_ARGUMENT, {"struct_size", "FLX_CONFIG_INIT"}));

    flx_counters_t counters{};
    counters.struct_size = offsetof(flx_counters_t, registrations);
    counters.registrations = counters.locks = 77;
    ASSERT_TRUE(succeeded(flx_barrier(comm_)));
    ASSERT_TRUE(succeeded(flx_counters(&counters)));
    EXPECT_GT(counters.operations, 0U);
    EXPECT_EQ(counters.registrations, 77U);
    EXPECT_EQ(counters.locks, 77U);

    std::array<flx_link_stats_t, 16> whole{};
    size_t count = 0;
    ASSERT_TRUE(succeeded(flx_comm_link_stats(comm_, whole.data(), sizeof whole[0], whole.size(), &count)));
    constexpr size_t kStride = offsetof(flx_link_stats_t, bytes_sent);
    std::array<std::byte, 17 * kStride> shorter;
    shorter.fill(std::byte{7});
    ASSERT_TRUE(succeeded(flx_comm_link_stats(comm_, reinterpret_cast<flx_link_stats_t *>(shorter.data()), kStride,
                                              whole.size(), &count)));
    for (size_t l = 0; l < count; ++l)
        EXPECT_STREQ(reinterpret_cast<const char *>(shorter.data() + l * kStride), whole[l].name);
    EXPECT_EQ(shorter[count * kStride], std::byte{7});
}

/// And with a newer one: what this library does not know must not be asked of it.
TEST_F(Arguments, LongerStructs) {
    struct {
        flx_config_t known = FLX_CONFIG_INIT;
        uint64_t beyond[2] = {};
    } config;
    config.known.struct_size = sizeof config;
    EXPECT_TRUE(Comm::world(&config.known));
    config.beyond[1] = uint64_t{1} << 56;
    EXPECT_TRUE(creation_refused(&config.known, FLX_ERR_ARGUMENT, {"struct_size", "does not know"}));
    config.known.struct_size = size_t{1} << 40;
    EXPECT_TRUE(creation_refused(&config.known, FLX_ERR_ARGUMENT, {"struct_size", "FLX_CONFIG_INIT"}));

    struct {
        flx_counters_t known{};
        uint64_t beyond = 7;
    } counters;
    counters.known.struct_size = sizeof counters;
    ASSERT_TRUE(succeeded(flx_counters(&counters.known)));
    EXPECT_EQ(counters.known.struct_size, sizeof counters);
    EXPECT_EQ(counters.beyond, 0U);

    struct Entry {
        flx_link_stats_t known{};
        uint64_t beyond = 7;
    };
    std::array<Entry, 16> entries;
    size_t count = 0;
    ASSERT_TRUE(succeeded(flx_comm_link_stats(comm_, &entries[0].known, sizeof entries[0], entries.size(), &count)));
    for (size_t l = 0; l < count; ++l) {
        EXPECT_NE(entries[l].known.name[0], '\0');
        EXPECT_EQ(entries[l].beyond, 0U);
    }
}

/// Calls that go through shared memory as a whole have no schedule, and count all the same.
TEST(LinkStats, OfCallsThroughSharedMemory) {
    if (world_size() < 2 || world_hosts() > 1)
        GTEST_SKIP() << "skipped: needs ranks of one host";
    Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    std::vector<float> numbers(4096, 1);
    ASSERT_TRUE(succeeded(flx_allreduce(FLX_IN_PLACE, numbers.data(), numbers.size(), FLX_F32, FLX_SUM, comm)));
    std::array<flx_link_stats_t, 16> links{};
    size_t count = 0;
    ASSERT_TRUE(succeeded(flx_comm_link_stats(comm, links.data(), sizeof links[0], links.size(), &count)));
    ASSERT_GT(count, 0U);
    EXPECT_STREQ(links[0].name, "shm");
    EXPECT_GE(links[0].bytes_sent, numbers.size() * sizeof numbers[0]);
    EXPECT_GT(links[0].chunks_sent, 0U);
    EXPECT_EQ(links[0].share, 1);
    for (size_t l = 1; l < count; ++l)
        EXPECT_EQ(links[l].share, 0) << links[l].name;
}

TEST(Knobs, ThatAreUnknownOrWrong) {
    {
        const Variable variable("FLX_PARTITON", "shm:1");
        EXPECT_TRUE(creation_refused(nullptr, FLX_ERR_CONFIG, {"FLX_PARTITON", "did you mean FLX_PARTITION"}));
    }
    {
        const Variable variable("FLX_DEADLINE", "soon");
        EXPECT_TRUE(creation_refused(nullptr, FLX_ERR_CONFIG, {"FLX_DEADLINE", "soon", "allowed"}));
    }
    flx_config_t config = FLX_CONFIG_INIT;
    config.deadline_s = -1;
    EXPECT_TRUE(creation_refused(&config, FLX_ERR_CONFIG, {"FLX_DEADLINE", "-1", "flx_config_t"}));
    config = FLX_CONFIG_INIT;
    config.algorithm = "allreduce:best";
    EXPECT_TRUE(creation_refused(&config, FLX_ERR_CONFIG, {"FLX_ALGORITHM", "allreduce:best", "ring"}));
    config.algorithm = "alltoall:ring";
    EXPECT_TRUE(creation_refused(&config, FLX_ERR_CONFIG, {"FLX_ALGORITHM", "alltoall:ring", "exchange"}));
    config.algorithm = "ring";
    EXPECT_TRUE(creation_refused(&config, FLX_ERR_CONFIG, {"FLX_ALGORITHM", "\"ring\""}));
}

/// What is short enough for all ranks to show, or goes through the memory of several hosts, not so for some of them.
TEST(Knobs, ThatAPartOfTheRanksCannotFollow) {
    if (world_size() < 4)
        GTEST_SKIP() << "skipped: a part would be a rank alone";
    const std::string rule = world_hosts() == 1 ? fmt::format("allgather:fused@-{}", 1000 * world_size() + 1)
                                                : "allreduce:leaders(fused,ring)";
    const Variable fused("FLX_FUSED_BYTES", "1000");
    const auto half = [](flx_comm_t comm) {
        flx_comm_t part = nullptr;
        EXPECT_TRUE(succeeded(flx_comm_split(comm, 2 * world_rank() / world_size(), 0, &part)));
        const Comm made(part);
        EXPECT_TRUE(made && check({.collective = Collective::allgather, .count = 700, .seed = seed()}, made));
    };
    {
        const Variable variable("FLX_ALGORITHM", rule.c_str());
        const Comm comm = Comm::world();
        ASSERT_TRUE(comm);
        half(comm);
    }
    flx_config_t config = FLX_CONFIG_INIT;
    config.algorithm = rule.c_str();
    const Comm comm = Comm::world(&config);
    ASSERT_TRUE(comm);
    half(comm);
    // One that was made for it.
    MPI_Comm part = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, 2 * world_rank() / world_size(), 0, &part);
    flx_comm_t made = nullptr;
    EXPECT_TRUE(refused(flx_comm_create(part, &config, &made), FLX_ERR_CONFIG, {"FLX_ALGORITHM", rule}));
    MPI_Comm_free(&part);
}

/// A thread beside the program's must find locks in what is the process's.
TEST(Knobs, ThatComeTooLate) {
    if (const char *set = std::getenv("FLX_PROGRESS_THREAD"); set != nullptr && std::strcmp(set, "on") == 0)
        GTEST_SKIP() << "skipped: it was set in time";
    Comm first = Comm::world();
    ASSERT_TRUE(first);
    {
        const Variable variable("FLX_PROGRESS_THREAD", "on");
        EXPECT_TRUE(creation_refused(nullptr, FLX_ERR_CONFIG, {"FLX_PROGRESS_THREAD", "first communicator"}));
    }
    ASSERT_TRUE(everywhere(true));
    first = Comm();
    const Variable variable("FLX_PROGRESS_THREAD", "on");
    EXPECT_TRUE(Comm::world());
}

/// A knob that is wrong on one rank only is an error on all.
TEST(Knobs, ThatAreWrongOnOneRank) {
    if (world_size() < 2)
        GTEST_SKIP() << "skipped: needs two ranks";
    {
        const Variable variable(world_rank() == 1 ? "FLX_CHECK" : "FLX_TEST_NOTHING", "maybe");
        EXPECT_TRUE(creation_refused(nullptr, FLX_ERR_CONFIG, {"FLX_CHECK"}));
    }
    {
        const Variable variable(world_rank() == 1 ? "FLX_RAILS" : "FLX_TEST_NOTHING", "smoke-signals");
        EXPECT_TRUE(creation_refused(nullptr, FLX_ERR_CONFIG, {"FLX_RAILS"}));
    }
    flx_config_t config = FLX_CONFIG_INIT;
    config.strict = world_rank() == 0 ? 1 : 0;
    EXPECT_TRUE(creation_refused(&config, FLX_ERR_CONFIG, {"FLX_STRICT", "equal on all ranks"}));
    for (const auto &[knob, value] : {std::pair("FLX_FROZEN", "1"), std::pair("FLX_RAIL_CHUNK", "256K")}) {
        const Variable variable(world_rank() == 0 ? knob : "FLX_TEST_NOTHING", value);
        EXPECT_TRUE(creation_refused(nullptr, FLX_ERR_CONFIG, {knob, "equal on all ranks"}));
    }
}

TEST(Knobs, LinksThatDoNotServe) {
    if (world_size() < 2)
        GTEST_SKIP() << "skipped: one rank has no links";
    flx_config_t config = FLX_CONFIG_INIT;
    config.links = "shm,eth17";
    EXPECT_TRUE(creation_refused(&config, FLX_ERR_CONFIG, {"FLX_LINKS", "eth17", "shm"}));
    config = FLX_CONFIG_INIT;
    for (const char *partition : {"shm", "shm:x", "shm:-1", "eth17:1", "shm:.5,shm:.5", "shm:0"}) {
        config.partition = partition;
        EXPECT_TRUE(creation_refused(&config, FLX_ERR_CONFIG, {"partition"})) << partition;
    }
    if (world_hosts() == world_size()) {
        config = FLX_CONFIG_INIT;
        config.links = "shm";
        EXPECT_TRUE(creation_refused(&config, FLX_ERR_LINK, {"no link reaches", "rank"}));
    }
}

/// Ranks that do not call alike: an error within seconds on every rank that takes part, and a broken communicator.
void expect_mismatch(bool check, std::initializer_list<std::string> words, flx_status_t (*call)(flx_comm_t comm)) {
    Settings settings;
    settings.check = check ? 1 : 0;
    settings.deadline_s = 20;
    const flx_config_t config = settings.config();
    Comm comm = Comm::world(&config);
    ASSERT_TRUE(comm);
    const auto began = std::chrono::steady_clock::now();
    const flx_status_t status = call(comm);
    const auto took = std::chrono::steady_clock::now() - began;
    EXPECT_LT(took, std::chrono::seconds(10));
    EXPECT_TRUE(status == FLX_ERR_MISMATCH || status == FLX_ERR_PEER) << flx_strerror(status) << flx_last_error();
    EXPECT_TRUE(!check || refused(status, FLX_ERR_MISMATCH, words)) << flx_last_error();
    // At least one rank says that it is a mismatch.
    EXPECT_FALSE(everywhere(status != FLX_ERR_MISMATCH));
    float in = 1;
    float out = 0;
    EXPECT_TRUE(refused(flx_allreduce(&in, &out, 1, FLX_F32, FLX_SUM, comm), FLX_ERR_COMM, {"broken"}));
    flx_comm_t dup = nullptr;
    EXPECT_TRUE(refused(flx_comm_dup(comm, &dup), FLX_ERR_COMM, {"broken"}));
    EXPECT_EQ(dup, nullptr);
}

flx_status_t counts_differ(flx_comm_t comm, size_t count) {
    count += world_rank() == 0 ? 1 : 0;
    std::vector<float> in(count), out(count);
    return flx_allreduce(in.data(), out.data(), count, FLX_F32, FLX_SUM, comm);
}

TEST(Mismatch, IsNoticed) {
    if (world_size() < 2)
        GTEST_SKIP() << "skipped: needs two ranks";
    expect_mismatch(false, {}, [](flx_comm_t comm) { return counts_differ(comm, 5); });
    expect_mismatch(false, {}, [](flx_comm_t comm) { return counts_differ(comm, 200000); });
    expect_mismatch(false, {}, [](flx_comm_t comm) {
        std::vector<float> in(50000), out(50000);
        return flx_allreduce(in.data(), out.data(), in.size(), FLX_F32, world_rank() == 0 ? FLX_MIN : FLX_MAX, comm);
    });
    expect_mismatch(false, {}, [](flx_comm_t comm) {
        std::vector<float> in(20), out(20);
        if (world_rank() == 0)
            return flx_barrier(comm);
        return flx_allreduce(in.data(), out.data(), in.size(), FLX_F32, FLX_SUM, comm);
    });
}

/// The root of a bcast needs nobody and does not hear at once: it is not left alone in what comes next.
TEST(Mismatch, LeavesNobodyAloneInADuplicate) {
    if (world_size() < 2)
        GTEST_SKIP() << "skipped: needs two ranks";
    for (const bool splits : {false, true}) {
        Comm comm = Comm::world();
        ASSERT_TRUE(comm);
        std::vector<float> values(world_rank() == 0 ? 100 : 101);
        const flx_status_t status = flx_bcast(values.data(), values.size(), FLX_F32, 0, comm);
        EXPECT_TRUE(world_rank() == 0 || status != FLX_SUCCESS);
        const auto began = std::chrono::steady_clock::now();
        flx_comm_t next = nullptr;
        const flx_status_t made = splits ? flx_comm_split(comm, 0, 0, &next) : flx_comm_dup(comm, &next);
        EXPECT_NE(made, FLX_SUCCESS) << "rank " << world_rank();
        EXPECT_EQ(next, nullptr);
        EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
    }
}

/// What does not wait must not begin to: rank 1 calls only when it has rank 0's message, which comes after its call.
TEST(Check, LetsCallsThatDoNotWaitReturn) {
    Settings settings;
    settings.check = 1;
    const flx_config_t config = settings.config();
    Comm comm = Comm::world(&config);
    ASSERT_TRUE(comm);
    float in = 1;
    float out = 0;
    int token = 0;
    flx_request_t request = nullptr;
    if (world_rank() > 0)
        MPI_Recv(&token, 1, MPI_INT, world_rank() - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    ASSERT_TRUE(succeeded(flx_iallreduce(&in, &out, 1, FLX_F32, FLX_SUM, comm, &request)));
    if (world_rank() + 1 < world_size())
        MPI_Send(&token, 1, MPI_INT, world_rank() + 1, 0, MPI_COMM_WORLD);
    ASSERT_TRUE(succeeded(flx_wait(&request)));
    EXPECT_EQ(out, static_cast<float>(world_size()));
}

TEST(Mismatch, IsNamedByCheck) {
    if (world_size() < 2)
        GTEST_SKIP() << "skipped: needs two ranks";
    expect_mismatch(true, {"allreduce", "count 5", "count 6", "rank 0"},
                    [](flx_comm_t comm) { return counts_differ(comm, 5); });
    expect_mismatch(true, {"count 0", "count 1"}, [](flx_comm_t comm) { return counts_differ(comm, 0); });
    expect_mismatch(true, {"barrier", "bcast", "rank 0"}, [](flx_comm_t comm) {
        float value = 0;
        return world_rank() == 0 ? flx_barrier(comm) : flx_bcast(&value, 1, FLX_F32, 0, comm);
    });
    expect_mismatch(true, {"root 0", "root 1"}, [](flx_comm_t comm) {
        float value = 0;
        return flx_bcast(&value, 1, FLX_F32, world_rank() == 0 ? 1 : 0, comm);
    });
}

/// The others hear who it was, and why, wherever they wait.
TEST(Abort, EndsTheCallsOfAllRanks) {
    for (const bool is_late : {false, true}) {
        const Comm comm = Comm::world();
        ASSERT_TRUE(comm);
        if (comm.size() < 2)
            GTEST_SKIP() << "one rank has nobody who waits";
        const int culprit = comm.size() - 1;
        float value = 1;
        ASSERT_TRUE(succeeded(flx_allreduce(FLX_IN_PLACE, &value, 1, FLX_F32, FLX_SUM, comm)));
        MPI_Barrier(MPI_COMM_WORLD);
        if (is_late && comm.rank() != culprit)
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
        const auto began = std::chrono::steady_clock::now();
        if (comm.rank() == culprit) {
            if (!is_late)
                std::this_thread::sleep_for(std::chrono::milliseconds(300));
            EXPECT_TRUE(succeeded(flx_comm_abort(comm, "the mesh has a hole")));
            EXPECT_TRUE(succeeded(flx_comm_abort(comm, nullptr))) << "it is broken already";
        } else {
            EXPECT_TRUE(refused(flx_barrier(comm), FLX_ERR_PEER,
                                {"rank " + std::to_string(culprit), "aborted communicator", "the mesh has a hole"}));
        }
        EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(3));
        EXPECT_TRUE(refused(flx_barrier(comm), FLX_ERR_COMM, {"the mesh has a hole"}));
    }
    EXPECT_TRUE(refused(flx_comm_abort(nullptr, ""), FLX_ERR_ARGUMENT, {"comm"}));
}

#ifndef __SANITIZE_ADDRESS__
/// Takes from this process, while it lives, all memory but `spare` bytes that it has not asked for yet.
class Starved {
  public:
    explicit Starved(size_t spare) {
        getrlimit(RLIMIT_AS, &before_);
        size_t pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        rlimit limit = before_;
        limit.rlim_cur = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + spare;
        setrlimit(RLIMIT_AS, &limit);
    }
    ~Starved() { setrlimit(RLIMIT_AS, &before_); }
    Starved(const Starved &) = delete;
    Starved &operator=(const Starved &) = delete;

  private:
    rlimit before_{};
};

/// What a rank had no memory for is an error on all ranks: they are in that call, and none waits for it there.
template <typename Call>
void expect_no_memory(Call &&call) {
    constexpr size_t kSpare = 16 << 20;
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    ASSERT_TRUE(succeeded(flx_barrier(comm)));
    const auto began = std::chrono::steady_clock::now();
    std::optional<Starved> starved;
    if (comm.rank() == comm.size() - 1)
        starved.emplace(kSpare);
    const flx_status_t status = call(comm);
    starved.reset();
    EXPECT_TRUE(refused(status, FLX_ERR_SYSTEM, {"no memory"}));
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
    EXPECT_TRUE(refused(flx_barrier(comm), FLX_ERR_COMM, {"no memory"}));
}

TEST(NoMemory, IsHeardByAllRanks) {
    if (world_size() != 2)
        GTEST_SKIP() << "skipped: for two ranks, as more need much memory";
    constexpr size_t kBytes = size_t{192} << 20;  // half of it is more than the C library reserves for a thread
    const size_t size = static_cast<size_t>(world_size());
    const size_t part = kBytes / size;
    const auto data = std::make_unique_for_overwrite<uint8_t[]>(kBytes);
    const auto sums = std::make_unique_for_overwrite<uint8_t[]>(kBytes);
    std::vector<size_t> counts(size, part), places(size);
    for (size_t peer = 0; peer < size; ++peer)
        places[peer] = peer * part;
    const auto make = [&](auto &&made, auto *...last) {
        return made(FLX_IN_PLACE, data.get(), nullptr, nullptr, counts.data(), places.data(), FLX_UINT8, last...);
    };
    expect_no_memory([&](flx_comm_t comm) { return make(flx_alltoallv, comm); });
    expect_no_memory([&](flx_comm_t comm) {
        flx_request_t request = nullptr;
        const flx_status_t status = make(flx_ialltoallv, comm, &request);
        return status != FLX_SUCCESS ? status : flx_wait(&request);
    });
    // One that failed to start is not active.
    expect_no_memory([&](flx_comm_t comm) {
        flx_request_t request = nullptr;
        EXPECT_TRUE(succeeded(make(flx_alltoallv_init, comm, &request)));
        flx_status_t status = flx_start(&request);
        if (status == FLX_SUCCESS)
            return flx_wait(&request);
        EXPECT_TRUE(refused(flx_start(&request), FLX_ERR_COMM, {"broken"}));
        EXPECT_TRUE(succeeded(flx_request_free(&request)));
        return make(flx_alltoallv, comm) == FLX_ERR_COMM ? status : FLX_SUCCESS;
    });
    // Messages are under way when the sum finds no memory for what it scales.
    const float factor = 2;
    flx_op_t scaled = FLX_SUM;
    ASSERT_TRUE(succeeded(flx_op_create_scaled_sum(&factor, FLX_F32, &scaled)));
    expect_no_memory([&](flx_comm_t comm) {
        const int rank = world_rank();
        const size_t half = part / 2;
        EXPECT_TRUE(succeeded(flx_group_begin(comm)));
        EXPECT_TRUE(succeeded(flx_send(data.get(), half, FLX_UINT8, (rank + 1) % world_size(), comm)));
        EXPECT_TRUE(succeeded(flx_recv(sums.get(), half, FLX_UINT8, (rank + world_size() - 1) % world_size(), comm)));
        EXPECT_TRUE(succeeded(flx_allreduce(data.get() + kBytes / 2, sums.get() + kBytes / 2,
                                            kBytes / 2 / sizeof(float), FLX_F32, scaled, comm)));
        return flx_group_end(comm);
    });
    EXPECT_TRUE(succeeded(flx_op_free(&scaled)));
}
#endif

TEST(Texts, NameEveryStatus) {
    for (int status = FLX_SUCCESS; status <= FLX_ERR_SYSTEM; ++status)
        EXPECT_NE(std::strstr(flx_strerror(static_cast<flx_status_t>(status)), "FLX_"), nullptr);
    EXPECT_NE(flx_strerror(static_cast<flx_status_t>(77)), nullptr);
    EXPECT_EQ(flx_version(), FLX_VERSION_MAJOR * 10000 + FLX_VERSION_MINOR * 100 + FLX_VERSION_PATCH);
}

}  // namespace
}  // namespace flx::test
