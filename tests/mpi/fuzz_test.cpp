/// The same random sequence of collectives to FLX and to MPI: results must be equal, and what a serial reference says.
/// FLX_TEST_SEED chooses the sequence, FLX_TEST_FUZZ the number of operations.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include "tests/mpi/harness.h"
#include "tests/mpi/job.h"

namespace flx::test {
namespace {

constexpr int kLeast = 10'000;

size_t random_count(Random &random) {
    switch (random.below(16)) {
        case 0:
            return 0;
        case 1:
            return random.below(20'000);
        case 2:
        case 3:
            return random.below(1500);
        default:
            return 1 + random.below(20);
    }
}

JobCase random_case(Random &random, int size) {
    constexpr int kLast = FLX_MAXLOC;
    JobCase c;
    c.kind = static_cast<Kind>(random.below(kKinds));
    c.seed = random.next() >> 8;
    c.count = random_count(random);
    c.root = static_cast<int>(random.below(static_cast<size_t>(size)));
    c.in_place = random.below(3) == 0;
    const bool scans = c.kind == Kind::scan || c.kind == Kind::exscan;
    do {
        c.dtype = static_cast<flx_dtype_t>(random.below(kTypes));
        c.op = static_cast<int>(random.below(kLast + 2));
        if (c.op > kLast)
            c.op = kCompose;
    } while (kind_reduces(c.kind) && (!goes_with(c.op, c.dtype) || (scans && c.op == FLX_AVG)));
    return c;
}

/// What was issued and not waited for. FLX's come first, then MPI's, so that both have the whole sequence in its order.
struct Batch {
    std::vector<std::unique_ptr<Job>> jobs;
    std::vector<flx_request_t> requests;
    std::vector<size_t> persistent;  // of them, in the order in which they were started
    size_t active = 0;
};

/// Completes all of them, each rank in a way of its own.
bool complete(Batch &batch, Random &mine) {
    while (batch.active != 0) {
        ptrdiff_t index = -1;
        int done = 0;
        flx_status_t status = FLX_SUCCESS;
        switch (mine.below(3)) {
            case 0:
                status = flx_wait_all(batch.requests.size(), batch.requests.data());
                batch.active = 0;
                break;
            case 1:
                status = flx_wait_any(batch.requests.size(), batch.requests.data(), &index);
                done = 1;
                break;
            default:
                status = flx_test_any(batch.requests.size(), batch.requests.data(), &index, &done);
                break;
        }
        if (status != FLX_SUCCESS) {
            ADD_FAILURE() << flx_last_error();
            return false;
        }
        if (batch.active != 0 && done != 0) {
            EXPECT_GE(index, 0) << batch.active << " are active";
            if (index < 0)
                return false;
            --batch.active;
        }
    }
    for (size_t i = 0; i < batch.requests.size(); ++i) {
        const bool kept = std::find(batch.persistent.begin(), batch.persistent.end(), i) != batch.persistent.end();
        EXPECT_EQ(batch.requests[i] != FLX_REQUEST_NULL, kept) << "request " << i;
    }
    return true;
}

bool finish(Batch &batch, Random &mine, MPI_Comm comm, size_t &compared) {
    bool right = complete(batch, mine);
    // Persistent ones once more, all together.
    for (const size_t index : batch.persistent) {
        const std::string verdict = right ? batch.jobs[index]->verdict() : "";
        if (!verdict.empty())
            ADD_FAILURE() << "the first time: " << verdict;
        right = right && verdict.empty();
        batch.jobs[index]->refill();
    }
    for (const size_t index : batch.persistent) {
        right = right && succeeded(flx_start(&batch.requests[index]));
        ++batch.active;
    }
    right = right && complete(batch, mine);
    for (const size_t index : batch.persistent)
        right = succeeded(flx_request_free(&batch.requests[index])) && right;
    if (!right)
        return false;
    for (const auto &job : batch.jobs) {
        std::string verdict = job->verdict();
        if (job->mpi_can()) {
            const std::string difference = job->compare_with_mpi(comm);
            ++compared;
            if (verdict.empty())
                verdict = difference;
        }
        if (!verdict.empty())
            ADD_FAILURE() << verdict;
        right = right && verdict.empty();
    }
    return right;
}

TEST(Fuzz, SameSequenceByFlxAndMpi) {
    const Comm world = Comm::world();
    ASSERT_TRUE(world);
    // Three communicators of random parts, used in turn.
    Random random(seed());
    Random mine(seed() * 31 + static_cast<uint64_t>(world_rank()));
    const char *text = std::getenv("FLX_TEST_FUZZ");
    const int many = text != nullptr ? std::atoi(text) : kLeast * (full() ? 10 : 1);
    struct Part {
        flx_comm_t comm = nullptr;
        MPI_Comm mpi = MPI_COMM_NULL;
        int rank = 0;
        int size = 0;
    };
    std::vector<Part> parts(3);
    for (Part &part : parts) {
        const uint64_t shuffle = random.next();
        const int color = static_cast<int>(Random::mix(shuffle + static_cast<uint64_t>(world_rank())) % 4 == 0);
        const int key = static_cast<int>(Random::mix(shuffle * 3 + static_cast<uint64_t>(world_rank())) % 100);
        ASSERT_TRUE(succeeded(flx_comm_split(world, color, key, &part.comm)));
        MPI_Comm_split(MPI_COMM_WORLD, color, key, &part.mpi);
        ASSERT_TRUE(succeeded(flx_comm_rank(part.comm, &part.rank)));
        ASSERT_TRUE(succeeded(flx_comm_size(part.comm, &part.size)));
    }
    size_t compared = 0;
    int issued = 0;
    bool right = true;
    while (issued < many && right) {
        const Part &part = parts[random.below(parts.size())];
        const uint64_t sequence = random.next();
        Random in_part(sequence);
        Batch batch;
        const size_t length = 1 + random.below(12);
        for (size_t i = 0; i < length && right; ++i, ++issued) {
            const JobCase c = random_case(in_part, part.size);
            batch.jobs.push_back(std::make_unique<Job>(c, part.rank, part.size));
            flx_request_t request = FLX_REQUEST_NULL;
            constexpr std::array kManners = {Manner::blocking, Manner::blocking, Manner::non_blocking,
                                             Manner::non_blocking, Manner::persistent};
            const Manner manner = kManners[in_part.below(kManners.size())];
            bool called = succeeded(batch.jobs.back()->call(manner, part.comm, &request));
            if (called && manner == Manner::persistent) {
                called = succeeded(flx_start(&request));
                batch.persistent.push_back(i);
            }
            EXPECT_TRUE(called) << to_string(c);
            right = right && called;
            batch.requests.push_back(request);
            batch.active += request != FLX_REQUEST_NULL ? 1 : 0;
        }
        right = right && finish(batch, mine, part.mpi, compared);
        if (issued / 1000 != (issued - static_cast<int>(length)) / 1000)
            right = everywhere(right);
    }
    right = everywhere(right);
    EXPECT_TRUE(right) << "with FLX_TEST_SEED=" << seed() << ", after " << issued << " operations";
    EXPECT_GE(issued, many);
    EXPECT_GT(compared, static_cast<size_t>(many) / 4);
    for (Part &part : parts) {
        EXPECT_TRUE(succeeded(flx_comm_free(&part.comm)));
        MPI_Comm_free(&part.mpi);
    }
}

}  // namespace
}  // namespace flx::test
