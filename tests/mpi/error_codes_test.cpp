/// Provokes what the public functions can have to say on a machine without a GPU: the status, the code, and that the
/// sentence names what is wrong. Which kinds are provoked here or elsewhere is in tests/runtime/base/fault_numbers.txt.
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

#include "tests/mpi/harness.h"

namespace flx::test {
namespace {

/// Whether the last error is `code`, which it says at its end and nowhere else, and has all of `words`.
testing::AssertionResult says(flx_status_t status, int code, std::initializer_list<std::string> words) {
    const std::string sentence = status == FLX_SUCCESS ? "success" : flx_last_error();
    const std::string mark = " [FLX-E" + std::to_string(code) + "]";
    if (status != static_cast<flx_status_t>(code / 100))
        return testing::AssertionFailure()
               << flx_strerror(status) << " where " << code << " was expected: " << sentence;
    if (!sentence.ends_with(mark) || sentence.find("[FLX-E") != sentence.size() - mark.size() + 1)
        return testing::AssertionFailure() << "not " << code << " once and at the end: " << sentence;
    for (const std::string &word : words)
        if (sentence.find(word) == std::string::npos)
            return testing::AssertionFailure() << "no \"" << word << "\" in \"" << sentence << "\"";
    return testing::AssertionSuccess();
}

/// The same of making a communicator with the environment's `name` set to `value`, on all ranks or on one.
testing::AssertionResult making_says(const char *name, const char *value, bool here, int code,
                                     std::initializer_list<std::string> words) {
    const char *old = std::getenv(name);
    const std::string before = old == nullptr ? "" : old;
    if (here)
        setenv(name, value, 1);
    flx_comm_t comm = nullptr;
    const auto result = says(flx_comm_create(MPI_COMM_WORLD, nullptr, &comm), code, words);
    if (before.empty())
        unsetenv(name);
    else
        setenv(name, before.c_str(), 1);
    return result;
}

class ErrorCodes : public testing::Test {
  protected:
    void SetUp() override {
        comm_ = Comm::world();
        ASSERT_TRUE(comm_);
    }

    Comm comm_;
    std::array<float, 64> a_{}, b_{};
    float *in_ = a_.data();
    float *out_ = b_.data();
};

TEST_F(ErrorCodes, OfArguments) {
    EXPECT_TRUE(says(flx_barrier(nullptr), 101, {"comm is null", "flx_comm_create"}));
    EXPECT_TRUE(says(flx_comm_rank(comm_, nullptr), 101, {"rank is null", "needs"}));
    EXPECT_TRUE(says(flx_allreduce(in_, nullptr, 4, FLX_F32, FLX_SUM, comm_), 102, {"recvbuf", "4 elements"}));
    EXPECT_TRUE(says(flx_allreduce(in_, out_, SIZE_MAX, FLX_F32, FLX_SUM, comm_), 103, {"count", "memory"}));
    EXPECT_TRUE(says(flx_bcast(in_, 1, static_cast<flx_dtype_t>(99), 0, comm_), 104, {"dtype 99", "FLX_INT8"}));
    EXPECT_TRUE(says(flx_allreduce(in_, out_, 1, FLX_F32, static_cast<flx_op_t>(99), comm_), 105, {"op 99"}));
    EXPECT_TRUE(says(flx_allreduce(in_, out_, 1, FLX_F32, FLX_BAND, comm_), 106, {"band", "f32", "bitwise"}));
    EXPECT_TRUE(says(flx_bcast(in_, 1, FLX_F32, -1, comm_), 107, {"root -1", "0 to"}));
    EXPECT_TRUE(says(flx_send(in_, 1, FLX_F32, 1 << 20, comm_), 107, {"1048576", "0 to"}));
    EXPECT_TRUE(says(flx_allreduce(in_, in_ + 1, 4, FLX_F32, FLX_SUM, comm_), 108, {"12 bytes", "FLX_IN_PLACE"}));
    const std::vector<size_t> counts(world_size(), 1), places(world_size(), 0);
    EXPECT_TRUE(says(flx_allgatherv(in_, 2, out_, counts.data(), places.data(), FLX_F32, comm_), 109,
                     {"sendcount is 2", "is 1", "must be equal"}));
    flx_counters_t counters{};
    EXPECT_TRUE(says(flx_counters(&counters), 110, {"struct_size is 0"}));
    const char *name = nullptr;
    EXPECT_TRUE(says(flx_comm_algorithm(comm_, "gossip", 8, FLX_F32, FLX_SUM, &name), 111, {"gossip", "allreduce"}));
}

TEST_F(ErrorCodes, OfRequestsHandlesAndGroups) {
    flx_request_t request = nullptr;
    ASSERT_TRUE(succeeded(flx_ibarrier(comm_, &request)));
    flx_request_t started = request;
    EXPECT_TRUE(says(flx_start(&started), 112, {"not persistent", "_init"}));
    ASSERT_TRUE(succeeded(flx_wait(&request)));
    auto op = static_cast<flx_op_t>(12345);
    EXPECT_TRUE(says(flx_op_free(&op), 113, {"12345", "flx_op_create"}));
    flx_dtype_t dtype{};
    EXPECT_TRUE(says(flx_dtype_create(0, &dtype), 114, {"0 bytes", "allowed"}));
    EXPECT_TRUE(says(flx_group_end(comm_), 115, {"flx_group_begin"}));
    ASSERT_TRUE(succeeded(flx_group_begin(comm_)));
    EXPECT_TRUE(says(flx_group_begin(comm_), 115, {"do not nest", "flx_group_end"}));
    EXPECT_TRUE(says(flx_bcast(in_, 1, FLX_F32, 0, comm_), 115, {"bcast", "allreduce"}));
    ASSERT_TRUE(succeeded(flx_group_end(comm_)));
    EXPECT_TRUE(says(flx_send(in_, 1, FLX_F32, world_rank(), comm_), 116, {"sends to itself", "flx_sendrecv"}));
    EXPECT_TRUE(says(flx_sendrecv(in_, out_, 2, 1, FLX_F32, world_rank(), world_rank(), comm_), 116, {"8 bytes", "4"}));
    std::vector<flx_dtype_t> kept;
    flx_status_t status = FLX_SUCCESS;
    while (status == FLX_SUCCESS && kept.size() < size_t{1} << 17)
        if (status = flx_dtype_create(3, &dtype); status == FLX_SUCCESS)
            kept.push_back(dtype);
    EXPECT_TRUE(says(status, 818, {std::to_string(kept.size()), "free some"}));
    for (flx_dtype_t &each : kept)
        EXPECT_TRUE(succeeded(flx_dtype_free(&each)));
}

TEST_F(ErrorCodes, OfMemoryAndGpus) {
    flx_comm_t comm = nullptr;
    EXPECT_TRUE(says(flx_comm_create(MPI_COMM_NULL, nullptr, &comm), 119, {"MPI_COMM_NULL", "needed"}));
    EXPECT_TRUE(says(flx_free(in_), 120, {"flx_malloc"}));
    void *memory = nullptr;
    EXPECT_TRUE(says(flx_malloc(SIZE_MAX / 4, &memory), 801, {"bytes", "memory"}));
    if (flx_allreduce_on_stream(in_, out_, 1, FLX_F32, FLX_SUM, comm_, nullptr) == FLX_SUCCESS)
        GTEST_SKIP() << "skipped: there is a GPU";
    EXPECT_TRUE(says(flx_bcast_on_stream(in_, 1, FLX_F32, 0, comm_, nullptr), 301, {"no GPU can be used: "}));
}

TEST(ErrorCodesOfKnobs, AreTheSameOnAllRanks) {
    EXPECT_TRUE(making_says("FLX_PARTITON", "shm:1", true, 201, {"FLX_PARTITON", "did you mean FLX_PARTITION"}));
    EXPECT_TRUE(making_says("FLX_DEADLINE", "soon", world_rank() == 0, 202, {"FLX_DEADLINE", "soon", "allowed"}));
    EXPECT_TRUE(making_says("FLX_STRICT", "1", world_rank() == 0, 203, {"FLX_STRICT", "equal on all ranks"}));
    EXPECT_TRUE(making_says("FLX_ALGORITHM", "allreduce:best", true, 205, {"allreduce:best", "ring"}));
    EXPECT_TRUE(making_says("FLX_ALGORITHM", "best", true, 205, {"\"best\"", "collective:algorithm"}));
    EXPECT_TRUE(making_says("FLX_ALGORITHM", "file:/there/is/none", true, 206, {"/there/is/none"}));
    EXPECT_TRUE(making_says("FLX_ALGORITHM", "allreduce:file:/there/is/none", true, 214, {"/there/is/none"}));
    EXPECT_TRUE(making_says("FLX_LINKS", "shm,eth17", true, 207, {"eth17", "the links are"}));
    EXPECT_TRUE(making_says("FLX_PARTITION", "shm;1", true, 208, {"shm;1", "name:share"}));
    EXPECT_TRUE(making_says("FLX_PARTITION", "shm:.5,shm:.5", true, 208, {"twice", "once"}));
    EXPECT_TRUE(making_says("FLX_RAILS", "smoke-signals", true, 210, {"FLX_RAILS", "smoke-signals"}));
    const Comm first = Comm::world();
    ASSERT_TRUE(first);
    EXPECT_TRUE(making_says("FLX_PROGRESS_THREAD", "on", true, 212, {"FLX_PROGRESS_THREAD", "before"}));
}

TEST_F(ErrorCodes, CommunicatorsOfAStoreThatComeTooLate) {
    constexpr int kPorts = 20000;
    flx_comm_t late = nullptr;
    EXPECT_TRUE(says(flx_comm_create_from_store("127.0.0.1", kPorts + getpid() % kPorts, 0, 1, nullptr, &late), 313,
                     {"MPI_THREAD_MULTIPLE", "must be the first"}));
    EXPECT_EQ(late, nullptr);
}

/// A bcast in which rank 0 sends everyone the vector. `last`: what the last rank does.
std::string schedule_text(const std::string &name, const std::string &last) {
    std::string text = R"({"format": "flx-schedule", "version": 1, "name": ")" + name +
                       R"(", "collective": "bcast", "ranks": )" + std::to_string(world_size()) +
                       R"(, "root": 0, "blocks": 1, "phases": 1, "schedules": [{"rank": 0, "steps": [)";
    for (int rank = 1; rank < world_size(); ++rank)
        text += std::string(rank == 1 ? "" : ", ") + R"({"do": "send", "block": 0, "from": "input", "peer": )" +
                std::to_string(rank) + "}";
    text += R"(, {"do": "copy", "block": 0, "from": "input", "to": "output"})";
    for (int rank = 1; rank < world_size(); ++rank)
        text += R"(]}, {"rank": )" + std::to_string(rank) + R"(, "steps": [)" +
                (rank == world_size() - 1 ? last : R"({"do": "recv", "peer": 0, "block": 0, "to": "output"})");
    return text + "]}]}";
}

TEST(ErrorCodesOfSchedules, NameTheElement) {
    const std::string last = "rank " + std::to_string(world_size() - 1);
    const std::string path = testing::TempDir() + "flx_schedule_of_rank_" + std::to_string(world_rank()) + "_" +
                             std::to_string(getpid()) + ".json";
    const std::string rule = "bcast:file:" + path;
    const auto making = [&](const std::string &text, int code, std::initializer_list<std::string> words) {
        std::ofstream(path) << text;
        return making_says("FLX_ALGORITHM", rule.c_str(), true, code, words);
    };
    const std::string right = R"({"do": "recv", "peer": 0, "block": 0, "to": "output"})";
    EXPECT_TRUE(making(schedule_text("right", R"({"do": "recv", "peer": 0, "to": "output"})"), 214,
                       {last + ", step 0", "\"block\" is not there"}));
    EXPECT_TRUE(making(schedule_text("right", ""), 214,
                       {"rank 0, step " + std::to_string(world_size() - 2), "the peer does not receive this"}));
    // The same path for each, and another text.
    EXPECT_TRUE(making(schedule_text(world_rank() == 0 ? "one" : "other", right), 203,
                       {"bcast:file:one#", "bcast:file:other#", "equal on all ranks"}));
    unlink(path.c_str());
}

TEST(ErrorCodesOfCalls, NameWhatDiffers) {
    Settings settings;
    settings.check = 1;
    const flx_config_t config = settings.config();
    Comm comm = Comm::world(&config);
    ASSERT_TRUE(comm);
    std::array<float, 8> values{};
    const size_t count = world_rank() == 0 ? 7 : 8;
    EXPECT_TRUE(says(flx_allreduce(FLX_IN_PLACE, values.data(), count, FLX_F32, FLX_SUM, comm), 401,
                     {"count 7", "count 8", "must call alike"}));
    // The first error is named, by its code, too.
    EXPECT_TRUE(says(flx_barrier(comm), 701, {"is broken: ", "count 7", " (FLX-E401) ["}));
}

TEST(ErrorCodesOfCalls, NameMessagesThatDiffer) {
    Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    std::array<float, 8> values{};
    const int peer = 1 - world_rank();
    if (world_rank() == 0)
        (void)flx_send(values.data(), 8, FLX_F32, peer, comm);
    if (world_rank() == 1) {
        EXPECT_TRUE(says(flx_recv(values.data(), 4, FLX_F32, peer, comm), 402, {"32 bytes", "16", "same number"}));
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/// What the program says of its reason may be a sentence of FLX's: the code still stands there once.
TEST(ErrorCodesOfCalls, NameWhoAborted) {
    Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    if (world_rank() == 0) {
        ASSERT_NE(flx_barrier(nullptr), FLX_SUCCESS);
        ASSERT_TRUE(succeeded(flx_comm_abort(comm, flx_last_error())));
        EXPECT_TRUE(says(flx_barrier(comm), 701, {"aborted communicator", "comm is null", " (FLX-E603) ["}));
    } else {
        EXPECT_TRUE(says(flx_barrier(comm), 603, {"rank 0 (pid ", "aborted communicator", "comm is null"}));
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST(ErrorCodesOfLinks, NameTheRankThatIsOutOfReach) {
    if (world_hosts() < 2)
        GTEST_SKIP() << "skipped: all ranks share memory";
    EXPECT_TRUE(making_says("FLX_LINKS", "shm", true, 501, {"no link reaches rank", "not in FLX_LINKS"}));
}

}  // namespace
}  // namespace flx::test
