/// Every collective against a serial reference: types, reductions, counts, roots, in place or not, alignments.
#include <algorithm>
#include <array>
#include <cstring>

#include "tests/mpi/pairwise.h"
#include "tests/mpi/reference.h"

namespace flx::test {
namespace {

// Around a cache line, a fused payload, cells, slots and chunks; the last ones in bytes, whatever the type.
constexpr std::array<size_t, 14> kCounts = {0, 1, 2, 3, 7, 63, 513, 1023, 4097, 10001, 65537, 262145, 1000003, 3145729};
constexpr size_t kMostBytes = 3U << 20;
constexpr std::array kShifts = {0, 1, 5};

enum Parameter { kCollective, kDtype, kOp, kCount, kRoot, kInPlace, kShift, kData, kMemory, kParameters };

std::vector<int> levels() {
    std::vector<int> levels(kParameters);
    levels[kCollective] = kCollectives;
    levels[kDtype] = kDtypes;
    levels[kOp] = kOps;
    levels[kCount] = static_cast<int>(kCounts.size());
    levels[kRoot] = std::min(world_size(), 3);
    levels[kInPlace] = 2;
    levels[kShift] = static_cast<int>(kShifts.size());
    levels[kData] = 3;
    levels[kMemory] = 3;
    return levels;
}

Case case_of(const std::vector<int> &row, uint64_t number) {
    Case c;
    c.collective = static_cast<Collective>(row[kCollective]);
    c.dtype = dtype_at(row[kDtype]);
    c.op = fitting(static_cast<flx_op_t>(row[kOp]), c.dtype);
    const bool blocks = c.collective == Collective::reduce_scatter_block || c.collective == Collective::allgather;
    c.count = std::min(kCounts[row[kCount]], (kMostBytes / size_of(c.dtype)) | 1);
    if (blocks && c.count > 100)
        c.count = c.count / world_size() | 1;
    const std::array roots = {0, world_size() - 1, world_size() / 2};
    c.root = roots[row[kRoot]];
    c.in_place = row[kInPlace] != 0;
    c.shift = kShifts[row[kShift]];
    c.data = static_cast<Data>(row[kData]);
    if (c.data == Data::special && (!is_float(c.dtype) || (c.op != FLX_MIN && c.op != FLX_MAX)))
        c.data = Data::random;
    c.seed = Random::mix(seed() + number);
    c.memory = static_cast<Memory>(row[kMemory]);
    return c;
}

/// Several selections, each of which has every pair; or everything.
std::vector<std::vector<int>> rows() {
    if (full())
        return product(levels());
    constexpr int kSelections = 5;
    std::vector<std::vector<int>> rows;
    for (int selection = 0; selection < kSelections; ++selection)
        for (std::vector<int> &row : pairwise(levels(), seed() + selection))
            rows.push_back(std::move(row));
    return rows;
}

/// Of calls whose differing parameters mean nothing, one is enough.
bool first_of_its_kind(const std::vector<int> &row) {
    const auto collective = static_cast<Collective>(row[kCollective]);
    const bool rooted = collective == Collective::bcast || collective == Collective::reduce;
    if (collective == Collective::barrier)
        return std::all_of(row.begin() + 1, row.end(), [](int value) { return value == 0; });
    if (!reduces(collective) && row[kOp] != 0)
        return false;
    return rooted || row[kRoot] == 0;
}

TEST(Collectives, GiveWhatASerialReferenceGives) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    uint64_t number = 0;
    for (const std::vector<int> &row : rows()) {
        if (full() && !first_of_its_kind(row))
            continue;
        const Case c = case_of(row, ++number);
        Bytes result;
        const testing::AssertionResult right = check(c, comm, &result);
        EXPECT_TRUE(right);
        EXPECT_TRUE(same_everywhere(c, result, MPI_COMM_WORLD));
        if (!everywhere(right))
            break;
    }
    RecordProperty("calls", static_cast<int>(number));
}

TEST(Collectives, OrderNaNAndZeros) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    for (const flx_dtype_t dtype : {FLX_F8E4M3, FLX_F8E5M2, FLX_F16, FLX_BF16, FLX_F32, FLX_F64}) {
        for (const flx_op_t op : {FLX_MIN, FLX_MAX}) {
            for (const size_t count : {5, 1000, 100003}) {
                for (const Collective collective :
                     {Collective::allreduce, Collective::reduce, Collective::reduce_scatter_block}) {
                    Case c{collective, dtype, op, count, world_size() - 1, false, 1, Data::special, seed() + count};
                    Bytes result;
                    ASSERT_TRUE(check(c, comm, &result));
                    EXPECT_TRUE(same_everywhere(c, result, MPI_COMM_WORLD));
                }
            }
        }
    }
}

TEST(Collectives, AgreeWithMPI) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    // Not int8 and uint8, whose sums Open MPI 4.1.4 gets wrong.
    const std::array<std::pair<flx_dtype_t, MPI_Datatype>, 3> types = {
        {{FLX_INT32, MPI_INT32_T}, {FLX_INT64, MPI_INT64_T}, {FLX_F32, MPI_FLOAT}}};
    const std::array<std::pair<flx_op_t, MPI_Op>, 4> ops = {
        {{FLX_SUM, MPI_SUM}, {FLX_PROD, MPI_PROD}, {FLX_MIN, MPI_MIN}, {FLX_MAX, MPI_MAX}}};
    for (const auto &[dtype, mpi_type] : types) {
        for (const auto &[op, mpi_op] : ops) {
            for (const size_t count : {1, 999, 70001}) {
                const Case c{Collective::allreduce, dtype, op, count, 0, false, 0, Data::exact, seed() + count};
                Bytes input(count * size_of(dtype));
                Bytes mine(input.size());
                Bytes theirs(input.size());
                fill(c, world_rank(), world_size(), 0, count, input.data());
                ASSERT_TRUE(succeeded(flx_allreduce(input.data(), mine.data(), count, dtype, op, comm)));
                MPI_Allreduce(input.data(), theirs.data(), static_cast<int>(count), mpi_type, mpi_op, MPI_COMM_WORLD);
                if (is_float(dtype)) {  // no rounding happens, but zeros may differ in sign
                    for (size_t i = 0; i < count; ++i) {
                        float a = 0;
                        float b = 0;
                        std::memcpy(&a, &mine[i * sizeof a], sizeof a);
                        std::memcpy(&b, &theirs[i * sizeof b], sizeof b);
                        ASSERT_EQ(a, b) << to_string(c) << ", element " << i;
                    }
                } else {
                    EXPECT_TRUE(mine == theirs) << to_string(c);
                }
            }
        }
    }
}

/// The same call gives the same bits again, on the same and on another communicator.
TEST(Collectives, RepeatTheirBits) {
    const Comm one = Comm::world();
    const Comm two = Comm::world();
    ASSERT_TRUE(one && two);
    for (const flx_dtype_t dtype : {FLX_F8E4M3, FLX_F16, FLX_F32, FLX_F64}) {
        for (const size_t count : {100, 5000, 300001}) {
            const Case c{Collective::allreduce, dtype, FLX_SUM, count, 0, false, 0, Data::random, seed()};
            Bytes first;
            ASSERT_TRUE(check(c, one, &first));
            for (const Comm *comm : {&one, &two, &one}) {
                Bytes again;
                ASSERT_TRUE(check(c, *comm, &again));
                EXPECT_TRUE(first == again) << to_string(c);
            }
        }
    }
}

/// strict: the bits of adding in rank order, at every size.
TEST(Collectives, StrictAddsInRankOrder) {
    Settings settings;
    settings.strict = 1;
    const flx_config_t config = settings.config();
    const Comm comm = Comm::world(&config);
    ASSERT_TRUE(comm);
    for (const size_t count : {1, 500, 3001, 70001, 1000003}) {
        const Case c{Collective::allreduce, FLX_F32, FLX_SUM, count, 0, false, 0, Data::random, seed()};
        Bytes result;
        ASSERT_TRUE(check(c, comm, &result));
        std::vector<float> sum(count);
        std::vector<float> input(count);
        fill(c, 0, world_size(), 0, count, sum.data());
        for (int rank = 1; rank < world_size(); ++rank) {
            fill(c, rank, world_size(), 0, count, input.data());
            for (size_t i = 0; i < count; ++i)
                sum[i] += input[i];
        }
        EXPECT_EQ(std::memcmp(sum.data(), result.data(), result.size()), 0) << to_string(c);
    }
}

/// FLX_CHECK compares arguments and changes nothing else.
TEST(Collectives, WorkWithCheckedArguments) {
    Settings settings;
    settings.check = 1;
    const flx_config_t config = settings.config();
    const Comm comm = Comm::world(&config);
    ASSERT_TRUE(comm);
    for (int collective = 0; collective < kCollectives; ++collective) {
        for (const size_t count : {0, 1, 3000, 100003}) {
            const Case c{
                static_cast<Collective>(collective), FLX_INT32, FLX_SUM, count, 0, false, 0, Data::random, seed()};
            EXPECT_TRUE(check(c, comm));
        }
    }
}

}  // namespace
}  // namespace flx::test
