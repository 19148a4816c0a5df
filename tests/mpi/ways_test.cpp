/// Every collective, type and reduction in every way of calling, against a serial reference.
#include <algorithm>
#include <array>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>

#include "tests/mpi/harness.h"
#include "tests/mpi/job.h"
#include "tests/mpi/pairwise.h"

namespace flx::test {
namespace {

constexpr std::array<size_t, 8> kCounts = {0, 1, 2, 5, 63, 700, 4099, 20011};
constexpr size_t kMostBytes = 300'000;
constexpr int kRowTypes = kTypes + 1;  // and one of the test's own
constexpr std::array kOps = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, kCompose, kScaledSum};

enum Parameter { kKind, kType, kOp, kCount, kRoot, kInPlace, kManner, kParameters };

std::vector<int> levels() {
    std::vector<int> levels(kParameters);
    levels[kKind] = kKinds;
    levels[kType] = kRowTypes;
    levels[kOp] = static_cast<int>(kOps.size());
    levels[kCount] = static_cast<int>(kCounts.size());
    levels[kRoot] = std::min(world_size(), 3);
    levels[kInPlace] = 2;
    levels[kManner] = 3;
    return levels;
}

/// Of a call that the row's reduction does not go with, one that it goes with.
JobCase case_of(const std::vector<int> &row, uint64_t number, flx_dtype_t own) {
    JobCase c;
    c.kind = static_cast<Kind>(row[kKind]);
    c.dtype = row[kType] < kTypes ? static_cast<flx_dtype_t>(row[kType]) : own;
    if (kind_reduces(c.kind)) {
        if (row[kType] >= kTypes)
            c.dtype = FLX_UINT64;
        const bool scans = c.kind == Kind::scan || c.kind == Kind::exscan;
        size_t op = static_cast<size_t>(row[kOp]);
        while (!goes_with(kOps[op % kOps.size()], c.dtype) || (scans && kOps[op % kOps.size()] == FLX_AVG))
            ++op;
        c.op = kOps[op % kOps.size()];
    }
    c.count = std::min(kCounts[static_cast<size_t>(row[kCount])], kMostBytes / element_size(c.dtype));
    const bool blocks = c.kind != Kind::allreduce && c.kind != Kind::reduce && c.kind != Kind::bcast &&
                        c.kind != Kind::scan && c.kind != Kind::exscan;
    if (blocks && c.count > 100)
        c.count = c.count / static_cast<size_t>(world_size()) | 1;
    const std::array roots = {0, world_size() - 1, world_size() / 2};
    c.root = roots[static_cast<size_t>(row[kRoot])];
    c.in_place = row[kInPlace] != 0;
    c.seed = Random::mix(seed() + number) >> 8;
    return c;
}

/// Of rows that come to the same call, one is enough.
bool first_of_its_kind(const std::vector<int> &row) {
    const auto kind = static_cast<Kind>(row[kKind]);
    if (kind == Kind::barrier)
        return std::all_of(row.begin() + 1, row.end() - 1, [](int value) { return value == 0; });
    const bool rooted = kind == Kind::bcast || kind == Kind::reduce || kind == Kind::gather || kind == Kind::gatherv ||
                        kind == Kind::scatter || kind == Kind::scatterv;
    if (!rooted && row[kRoot] != 0)
        return false;
    if (!kind_reduces(kind))
        return row[kOp] == 0;
    if (row[kType] >= kTypes)  // a type of the test's own is not reduced
        return false;
    const bool scans = kind == Kind::scan || kind == Kind::exscan;
    const int op = kOps[static_cast<size_t>(row[kOp])];
    return goes_with(op, static_cast<flx_dtype_t>(row[kType])) && !(scans && op == FLX_AVG);
}

testing::AssertionResult holds(const std::string &verdict) {
    return verdict.empty() ? testing::AssertionSuccess() : testing::AssertionFailure() << verdict;
}

/// In the given manner; persistent ones twice.
testing::AssertionResult run(Job &job, Manner manner, flx_comm_t comm, uint64_t number) {
    flx_request_t request = FLX_REQUEST_NULL;
    const auto complete = [&]() -> testing::AssertionResult {
        if (number % 2 == 0)
            return succeeded(flx_wait(&request));
        for (int done = 0; done == 0;)
            if (auto result = succeeded(flx_test(&request, &done)); !result)
                return result;
        return testing::AssertionSuccess();
    };
    if (auto result = succeeded(job.call(manner, comm, &request)); !result)
        return result << to_string(job.what());
    for (int round = 0; manner == Manner::persistent && round < 2; ++round) {
        if (round != 0)
            job.refill();
        if (auto result = succeeded(flx_start(&request)); !result)
            return result << to_string(job.what());
        if (auto result = complete(); !result)
            return result << to_string(job.what());
        if (auto result = holds(job.verdict()); !result)
            return result << " in round " << round;
    }
    if (manner == Manner::persistent) {  // which writes nothing any more
        job.refill();
        if (auto result = succeeded(flx_request_free(&request)); !result)
            return result;
        return job.as_before() ? testing::AssertionSuccess()
                               : testing::AssertionFailure() << "freeing a request wrote: " << to_string(job.what());
    }
    if (manner == Manner::non_blocking)
        if (auto result = complete(); !result)
            return result << to_string(job.what());
    return holds(job.verdict());
}

class OwnType {
  public:
    OwnType() { flx_dtype_create(12, &type_); }
    ~OwnType() { flx_dtype_free(&type_); }
    OwnType(const OwnType &) = delete;
    OwnType &operator=(const OwnType &) = delete;
    operator flx_dtype_t() const { return type_; }

  private:
    flx_dtype_t type_ = FLX_INT8;
};

/// FLX_TEST_PIECE=2/5: of all that there is to call, the second fifth, as all of it takes long on many ranks.
std::pair<uint64_t, uint64_t> piece() {
    std::pair<uint64_t, uint64_t> piece{1, 1};
    const char *text = std::getenv("FLX_TEST_PIECE");
    const bool right =
        text == nullptr || (std::sscanf(text, "%" SCNu64 "/%" SCNu64, &piece.first, &piece.second) == 2 &&
                            piece.first >= 1 && piece.first <= piece.second);
    EXPECT_TRUE(right) << "FLX_TEST_PIECE=" << text << " is not like 2/5";
    return right ? piece : std::pair<uint64_t, uint64_t>{1, 1};
}

TEST(Ways, GiveWhatASerialReferenceGives) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const OwnType own;
    uint64_t number = 0;
    size_t composed = 0;
    std::vector<std::vector<int>> rows = full() ? product(levels()) : pairwise(levels(), seed());
    for (uint64_t more = 1; !full() && more <= 1; ++more)
        for (std::vector<int> &row : pairwise(levels(), seed() + more))
            rows.push_back(std::move(row));
    const auto [which, pieces] = piece();
    for (const std::vector<int> &row : rows) {
        if (full() && !first_of_its_kind(row))
            continue;
        if (++number % pieces != which % pieces)
            continue;
        const JobCase c = case_of(row, number, own);
        Job job(c, comm.rank(), comm.size());
        const auto right = run(job, static_cast<Manner>(row[kManner]), comm, number);
        composed += job.reductions();
        EXPECT_TRUE(right);
        if (!everywhere(right))
            break;
    }
    EXPECT_TRUE(comm.size() == 1 || everywhere(composed != 0) || comm.rank() != 0);
}

/// The world, and random parts of it.
class Parts {
  public:
    Parts(const Comm &world, Random &random, int splits) {
        parts_.push_back({world, world.rank(), world.size()});
        for (int i = 0; i < splits; ++i) {
            const uint64_t shuffle = random.next();
            const auto color = static_cast<int>(Random::mix(shuffle + static_cast<uint64_t>(world.rank())) % 3 == 0);
            const auto key = static_cast<int>(Random::mix(shuffle * 3 + static_cast<uint64_t>(world.rank())) % 100);
            Part part;
            EXPECT_TRUE(succeeded(flx_comm_split(world, color, key, &part.comm)));
            EXPECT_TRUE(succeeded(flx_comm_rank(part.comm, &part.rank)));
            EXPECT_TRUE(succeeded(flx_comm_size(part.comm, &part.size)));
            parts_.push_back(part);
        }
    }
    ~Parts() {
        for (size_t i = 1; i < parts_.size(); ++i)
            EXPECT_TRUE(succeeded(flx_comm_free(&parts_[i].comm)));
    }
    Parts(const Parts &) = delete;
    Parts &operator=(const Parts &) = delete;
    struct Part {
        flx_comm_t comm = nullptr;
        int rank = 0;
        int size = 0;
    };
    [[nodiscard]] const Part &any(Random &random) const { return parts_[random.below(parts_.size())]; }

  private:
    std::vector<Part> parts_;
};

/// Operations of all kinds, sizes and manners under way at once on the world and on random parts of it, waited for in
/// any order.
TEST(Ways, ManyAreUnderWayAtOnce) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const OwnType own;
    Random random(seed());  // alike on all ranks
    Random mine(seed() + 1 + static_cast<uint64_t>(world_rank()));
    const auto limits = levels();
    const Parts parts(comm, random, 2);
    for (int round = 0; round < (full() ? 300 : 30); ++round) {
        std::vector<std::unique_ptr<Job>> jobs;
        std::vector<flx_request_t> requests;
        std::vector<flx_request_t> kept;  // persistent ones, which waiting does not end
        const size_t many = 2 + random.below(20);
        for (size_t i = 0; i < many; ++i) {
            const Parts::Part &part = parts.any(random);
            std::vector<int> row;
            for (const int limit : limits)
                row.push_back(static_cast<int>(random.below(static_cast<size_t>(limit))));
            JobCase c = case_of(row, random.next(), own);
            c.root = c.root % part.size;
            jobs.push_back(std::make_unique<Job>(c, part.rank, part.size));
            const size_t drawn = random.below(5);
            const Manner manner = drawn == 0   ? Manner::blocking
                                  : drawn == 1 ? Manner::persistent
                                               : Manner::non_blocking;
            flx_request_t request = FLX_REQUEST_NULL;
            ASSERT_TRUE(succeeded(jobs.back()->call(manner, part.comm, &request)));
            if (manner == Manner::persistent) {
                ASSERT_TRUE(succeeded(flx_start(&request)));
                kept.push_back(request);
            }
            requests.push_back(request);
        }
        if (round % 3 == 0) {
            ASSERT_TRUE(succeeded(flx_wait_all(requests.size(), requests.data())));
        } else if (round % 3 == 1) {
            for (ptrdiff_t index = 0; index >= 0;)
                ASSERT_TRUE(succeeded(flx_wait_any(requests.size(), requests.data(), &index)));
        } else {
            std::vector<size_t> order(requests.size());
            std::iota(order.begin(), order.end(), size_t{0});
            for (size_t i = order.size(); i > 1; --i)
                std::swap(order[i - 1], order[mine.below(i)]);
            for (const size_t i : order)
                ASSERT_TRUE(succeeded(flx_wait(&requests[i])));
        }
        bool right = true;
        for (const auto &job : jobs) {
            const std::string verdict = job->verdict();
            EXPECT_EQ(verdict, "");
            right = right && verdict.empty();
        }
        std::erase_if(requests, [](flx_request_t request) { return request == FLX_REQUEST_NULL; });
        EXPECT_EQ(requests.size(), kept.size());
        for (flx_request_t &request : kept)
            EXPECT_TRUE(succeeded(flx_request_free(&request)));
        if (!everywhere(right))
            break;
    }
}

/// A send before a collective is waited for, where the peer receives before it takes part: neither may wait for the
/// other. And many bytes that nobody has asked for yet must not keep out what is needed first.
TEST(Ways, MessagesPassCollectivesThatWait) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    if (comm.size() < 2)
        GTEST_SKIP() << "one rank";
    for (const size_t count : {10, 400'000}) {
        std::vector<int64_t> sum(1000, 1);
        std::vector<int64_t> data(count, comm.rank());
        flx_request_t request = FLX_REQUEST_NULL;
        if (comm.rank() != 1) {
            ASSERT_TRUE(
                succeeded(flx_iallreduce(FLX_IN_PLACE, sum.data(), sum.size(), FLX_INT64, FLX_SUM, comm, &request)));
        }
        if (comm.rank() == 0) {
            ASSERT_TRUE(succeeded(flx_send(data.data(), count, FLX_INT64, 1, comm)));
        }
        if (comm.rank() == 1) {
            ASSERT_TRUE(succeeded(flx_recv(data.data(), count, FLX_INT64, 0, comm)));
            EXPECT_EQ(data.back(), 0);
            ASSERT_TRUE(
                succeeded(flx_iallreduce(FLX_IN_PLACE, sum.data(), sum.size(), FLX_INT64, FLX_SUM, comm, &request)));
        }
        ASSERT_TRUE(succeeded(flx_wait(&request)));
        EXPECT_EQ(sum.back(), comm.size());

        // Rank 1 waits for the collective first; rank 0 moves it while it sends.
        request = FLX_REQUEST_NULL;
        ASSERT_TRUE(
            succeeded(flx_iallreduce(FLX_IN_PLACE, sum.data(), sum.size(), FLX_INT64, FLX_MAX, comm, &request)));
        if (comm.rank() == 0) {
            ASSERT_TRUE(succeeded(flx_send(data.data(), count, FLX_INT64, 1, comm)));
        }
        ASSERT_TRUE(succeeded(flx_wait(&request)));
        if (comm.rank() == 1) {
            ASSERT_TRUE(succeeded(flx_recv(data.data(), count, FLX_INT64, 0, comm)));
        }
    }
}

/// Ranks may issue on several communicators in different orders as long as nobody waits in between. What one of them
/// has not asked for yet must leave room on the rails for what the others wait for.
TEST(Ways, WhatOneCommunicatorSendsEarlyKeepsOutNoOther) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    flx_comm_t other = nullptr;
    ASSERT_TRUE(succeeded(flx_comm_split(comm, 0, comm.rank(), &other)));
    constexpr size_t kMany = 4 << 20;  // 16 MiB: more than the windows of the rails between two hosts
    std::vector<int32_t> many(kMany, 1);
    for (const size_t few : {size_t{1}, size_t{50'000}}) {
        std::vector<int32_t> sum(few, 1);
        flx_request_t request = FLX_REQUEST_NULL;
        if (comm.rank() == 0) {
            ASSERT_TRUE(succeeded(flx_ibcast(many.data(), kMany, FLX_INT32, 0, other, &request)));
            // It sends what it can: nobody takes it yet.
            for (int done = 0, looks = 0; looks < 200; ++looks) {
                ASSERT_TRUE(succeeded(flx_test(&request, &done)));
                std::this_thread::sleep_for(std::chrono::microseconds(100));
            }
        }
        ASSERT_TRUE(succeeded(flx_allreduce(FLX_IN_PLACE, sum.data(), few, FLX_INT32, FLX_SUM, comm)));
        EXPECT_EQ(sum.back(), comm.size());
        if (comm.rank() != 0) {
            ASSERT_TRUE(succeeded(flx_ibcast(many.data(), kMany, FLX_INT32, 0, other, &request)));
        }
        ASSERT_TRUE(succeeded(flx_wait(&request)));
        EXPECT_EQ(many.back(), 1);
    }
    EXPECT_TRUE(succeeded(flx_comm_free(&other)));
}

/// Requests of several communicators in one list, some of which a rank is not in.
TEST(Ways, SplitsHaveRequestsOfTheirOwn) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    flx_comm_t half = nullptr;
    flx_comm_t odd = nullptr;
    ASSERT_TRUE(succeeded(flx_comm_split(comm, comm.rank() % 2, -comm.rank(), &half)));
    ASSERT_TRUE(succeeded(flx_comm_split(comm, comm.rank() < comm.size() / 2 ? -1 : 0, 0, &odd)));
    for (int round = 0; round < 20; ++round) {
        std::array<int64_t, 3> sums = {1, 1, 1};
        std::array<flx_request_t, 4> requests{};
        ASSERT_TRUE(succeeded(flx_iallreduce(FLX_IN_PLACE, &sums[0], 1, FLX_INT64, FLX_SUM, comm, &requests[0])));
        ASSERT_TRUE(succeeded(flx_iallreduce(FLX_IN_PLACE, &sums[1], 1, FLX_INT64, FLX_SUM, half, &requests[2])));
        if (odd != nullptr) {
            ASSERT_TRUE(succeeded(flx_iallreduce(FLX_IN_PLACE, &sums[2], 1, FLX_INT64, FLX_SUM, odd, &requests[3])));
        }
        ASSERT_TRUE(succeeded(flx_wait_all(requests.size(), requests.data())));
        EXPECT_EQ(sums[0], comm.size());
        EXPECT_EQ(sums[1], comm.size() / 2 + (comm.rank() % 2 == 0 ? comm.size() % 2 : 0));
        EXPECT_EQ(sums[2], odd == nullptr ? 1 : comm.size() - comm.size() / 2);
    }
    EXPECT_TRUE(succeeded(flx_comm_free(&half)));
    if (odd != nullptr) {
        EXPECT_TRUE(succeeded(flx_comm_free(&odd)));
    }
}

TEST(Ways, RequestsSayWhatIsWrongWithThem) {
    Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    flx_request_t request = FLX_REQUEST_NULL;
    int done = 0;
    EXPECT_TRUE(succeeded(flx_wait(&request)));
    EXPECT_TRUE(succeeded(flx_test(&request, &done)));
    EXPECT_EQ(done, 1);
    ptrdiff_t index = 0;
    EXPECT_TRUE(succeeded(flx_wait_any(1, &request, &index)));
    EXPECT_EQ(index, -1);
    EXPECT_EQ(flx_start(&request), FLX_ERR_ARGUMENT);
    int value = 1;
    EXPECT_EQ(flx_iallreduce(&value, nullptr, 1, FLX_INT32, FLX_SUM, comm, &request), FLX_ERR_ARGUMENT);
    EXPECT_EQ(request, FLX_REQUEST_NULL);
    EXPECT_EQ(flx_iallreduce(&value, &value, 1, FLX_INT32, FLX_SUM, comm, nullptr), FLX_ERR_ARGUMENT);
    EXPECT_EQ(flx_scan(&value, &value, 1, FLX_INT32, FLX_AVG, comm), FLX_ERR_ARGUMENT);
    EXPECT_EQ(flx_allreduce(&value, &value, 1, FLX_F32_INT32, FLX_SUM, comm), FLX_ERR_ARGUMENT);
    EXPECT_NE(std::string(flx_last_error()).find("does not go with"), std::string::npos) << flx_last_error();
    ASSERT_TRUE(succeeded(flx_allreduce_init(FLX_IN_PLACE, &value, 1, FLX_INT32, FLX_SUM, comm, &request)));
    EXPECT_TRUE(succeeded(flx_wait(&request)));
    EXPECT_NE(request, FLX_REQUEST_NULL);
    ASSERT_TRUE(succeeded(flx_start(&request)));
    EXPECT_EQ(comm.size() == 1 ? FLX_ERR_ARGUMENT : flx_start(&request), FLX_ERR_ARGUMENT);
    EXPECT_TRUE(succeeded(flx_wait(&request)));
    EXPECT_EQ(value, comm.size());
    comm = Comm();
    EXPECT_EQ(flx_start(&request), FLX_ERR_ARGUMENT);
    EXPECT_NE(std::string(flx_last_error()).find("was freed"), std::string::npos) << flx_last_error();
    EXPECT_TRUE(succeeded(flx_request_free(&request)));
    EXPECT_EQ(request, FLX_REQUEST_NULL);

    flx_op_t op = FLX_SUM;
    EXPECT_EQ(flx_op_free(&op), FLX_ERR_ARGUMENT);
    size_t bytes = 0;
    EXPECT_EQ(flx_dtype_size(static_cast<flx_dtype_t>(70000), &bytes), FLX_ERR_ARGUMENT);
    flx_dtype_t dtype = FLX_INT8;
    EXPECT_EQ(flx_dtype_create(0, &dtype), FLX_ERR_ARGUMENT);
    EXPECT_EQ(flx_dtype_create(16385, &dtype), FLX_ERR_ARGUMENT);
}

/// Allreduces of a group, of which some are carried out as one, beside messages.
TEST(Ways, GroupsFuseSmallSums) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const int ranks = comm.size();
    Random random(seed());
    for (int round = 0; round < 10; ++round) {
        struct Part {
            flx_op_t op;
            bool in_place;
            std::vector<int64_t> in, out;
        };
        std::vector<Part> parts(1 + random.below(40));
        for (Part &part : parts) {
            part.op = random.below(8) == 0 ? FLX_MAX : FLX_SUM;
            part.in_place = random.below(2) == 0;
            const size_t count = random.below(10) == 0 ? random.below(30'000) : random.below(50);
            for (size_t i = 0; i < count; ++i)
                part.in.push_back(static_cast<int64_t>(i) + comm.rank());
            part.out = part.in_place ? part.in : std::vector<int64_t>(count, -1);
        }
        const int next = (comm.rank() + 1) % ranks;
        const int previous = (comm.rank() + ranks - 1) % ranks;
        int64_t token = -1;
        const int64_t mine = comm.rank();
        float sum = 1.5F;
        ASSERT_TRUE(succeeded(flx_group_begin(comm)));
        for (Part &part : parts)
            ASSERT_TRUE(succeeded(flx_allreduce(part.in_place ? FLX_IN_PLACE : part.in.data(), part.out.data(),
                                                part.in.size(), FLX_INT64, part.op, comm)));
        ASSERT_TRUE(succeeded(flx_sendrecv(&mine, &token, 1, 1, FLX_INT64, next, previous, comm)));
        ASSERT_TRUE(succeeded(flx_allreduce(FLX_IN_PLACE, &sum, 1, FLX_F32, FLX_SUM, comm)));
        EXPECT_EQ(flx_bcast(&sum, 1, FLX_F32, 0, comm), FLX_ERR_ARGUMENT);
        ASSERT_TRUE(succeeded(flx_group_end(comm)));
        bool right = token == previous && sum == 1.5F * static_cast<float>(ranks);
        for (const Part &part : parts)
            for (size_t i = 0; i < part.out.size(); ++i) {
                const auto value = static_cast<int64_t>(i);
                const int64_t want =
                    part.op == FLX_MAX ? value + ranks - 1 : value * ranks + int64_t{ranks} * (ranks - 1) / 2;
                right = right && part.out[i] == want;
            }
        EXPECT_TRUE(right) << "round " << round;
        if (!everywhere(right))
            break;
    }
}

/// A request that nobody asks about any more goes on, and has ended when its communicator was freed.
TEST(Ways, FreedRequestsComplete) {
    Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    std::vector<int64_t> sum(50'000, 2);
    flx_request_t request = FLX_REQUEST_NULL;
    ASSERT_TRUE(succeeded(flx_iallreduce(FLX_IN_PLACE, sum.data(), sum.size(), FLX_INT64, FLX_SUM, comm, &request)));
    ASSERT_TRUE(succeeded(flx_request_free(&request)));
    ASSERT_TRUE(succeeded(flx_barrier(comm)));
    comm = Comm();
    EXPECT_EQ(sum.front(), 2 * world_size());
    EXPECT_EQ(sum.back(), 2 * world_size());
}

}  // namespace
}  // namespace flx::test
