/// alltoall, alltoallv, send, receive and groups of them against what each byte must be: types, counts, in place,
/// self messages, order, and ranks that take no part.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <regex>
#include <thread>

#include "tests/mpi/reference.h"

namespace flx::test {
namespace {

constexpr std::array<size_t, 10> kCounts = {0, 1, 2, 7, 63, 1000, 4097, 30011, 100003, 262145};

/// What `from` sends to `to` as message `number`: known to every rank. Words of a sequence that starts at random.
Bytes message(int from, int to, uint64_t number, size_t bytes) {
    Bytes data(bytes);
    uint64_t word = Random::mix(seed() + number * 100003 + from * 257 + to);
    for (size_t i = 0; i < bytes; i += sizeof word, word += 0x9e3779b97f4a7c15U)
        std::memcpy(data.data() + i, &word, std::min(sizeof word, bytes - i));
    return data;
}

testing::AssertionResult is_message(const std::byte *got, int from, int to, uint64_t number, size_t bytes) {
    const Bytes expected = message(from, to, number, bytes);
    for (size_t i = 0; i < bytes; ++i)
        if (got[i] != expected[i])
            return testing::AssertionFailure() << "byte " << i << " of " << bytes << " of message " << number
                                               << " from rank " << from << " to rank " << to << " is wrong";
    return testing::AssertionSuccess();
}

size_t count_of(int from, int to, uint64_t number, size_t most) {
    const uint64_t random = Random::mix(seed() * 31 + number * 7919 + from * 131 + to);
    return random % 4 == 0 ? 0 : random / 4 % (most + 1);
}

/// Blocks with gaps between them, in an order that is not that of ranks.
struct Blocks {
    std::vector<size_t> counts, displacements;
    size_t elements = 0;
    Blocks(int size, const std::function<size_t(int)> &count_of_rank) : counts(size), displacements(size) {
        for (int i = 0; i < size; ++i) {
            const int rank = size - 1 - i;
            counts[rank] = count_of_rank(rank);
            displacements[rank] = elements + 2;
            elements += counts[rank] + 3;
        }
    }
};

TEST(Exchanges, AlltoallOfEveryTypeAndCount) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const int size = comm.size();
    const int rank = comm.rank();
    uint64_t number = 0;
    for (const size_t count : kCounts) {
        for (int type = 0; type < kDtypes; ++type) {
            const flx_dtype_t dtype = dtype_at(type);
            if (!full() && count > 5000 && type % 4 != static_cast<int>(count % 4))
                continue;
            for (const bool in_place : {false, true}) {
                const size_t bytes = count * size_of(dtype);
                ++number;
                Bytes in(bytes * size);
                for (int peer = 0; peer < size; ++peer)
                    std::ranges::copy(message(rank, peer, number, bytes), in.begin() + peer * bytes);
                Bytes out(bytes * size + 8, std::byte{0x5a});
                if (in_place)
                    std::ranges::copy(in, out.begin());
                const Bytes before = in;
                ASSERT_TRUE(
                    succeeded(flx_alltoall(in_place ? FLX_IN_PLACE : in.data(), out.data(), count, dtype, comm)));
                EXPECT_TRUE(in == before);
                for (int peer = 0; peer < size; ++peer)
                    ASSERT_TRUE(is_message(out.data() + peer * bytes, peer, rank, number, bytes))
                        << count << " elements of type " << type << (in_place ? ", in place" : "");
                EXPECT_TRUE(std::all_of(out.end() - 8, out.end(), [](std::byte b) { return b == std::byte{0x5a}; }));
            }
        }
    }
}

/// Lengths at which messages go another way: sent on the spot, by an executor, fetched from where they lie. Each rank
/// sends to the next one and to itself, by sendrecv and by a group with messages of all lengths in it.
TEST(Exchanges, MessagesOfLengthsAroundThresholds) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const int size = comm.size();
    const int rank = comm.rank();
    const int next = (rank + 1) % size;
    const int previous = (rank + size - 1) % size;
    std::vector<size_t> lengths = {0, 1, 255, 256, 257, 8191, 8192, 8193, 16383, 16384, 16385, 65536, 1048577};
    if (size <= 2)
        lengths.insert(lengths.end(), {3 * 1048576 - 1, 8 * 1048576 - 1, 8 * 1048576});
    uint64_t number = 0;
    for (const size_t bytes : lengths) {
        for (int round = 0; round < 12; ++round) {  // more than a link has room for
            ++number;
            const Bytes out = message(rank, next, number, bytes);
            Bytes in(bytes + 1, std::byte{0x5a});
            ASSERT_TRUE(succeeded(flx_sendrecv(out.data(), in.data(), bytes, bytes, FLX_UINT8, next, previous, comm)));
            ASSERT_TRUE(is_message(in.data(), previous, rank, number, bytes)) << bytes << " bytes";
            ASSERT_EQ(in[bytes], std::byte{0x5a});
            if (bytes > 100'000 && round == 1)
                break;
        }
    }
    // Of several lengths at once, the longest first, received in the order of their numbers.
    std::ranges::sort(lengths, std::greater<>());
    std::vector<Bytes> outs, ins;
    for (size_t i = 0; i < lengths.size(); ++i) {
        outs.push_back(message(rank, next, number + 1 + i, lengths[i]));
        ins.emplace_back(lengths[i]);
    }
    ASSERT_TRUE(succeeded(flx_group_begin(comm)));
    for (size_t i = 0; i < lengths.size(); ++i) {
        ASSERT_TRUE(succeeded(flx_send(outs[i].data(), lengths[i], FLX_UINT8, next, comm)));
        ASSERT_TRUE(succeeded(flx_recv(ins[i].data(), lengths[i], FLX_UINT8, previous, comm)));
    }
    ASSERT_TRUE(succeeded(flx_group_end(comm)));
    for (size_t i = 0; i < lengths.size(); ++i)
        ASSERT_TRUE(is_message(ins[i].data(), previous, rank, number + 1 + i, lengths[i]));
}

/// A message behind collectives that its receiver has not begun: more than the link has room for, some of them long
/// enough to be fetched. The receiver sets them aside.
TEST(Exchanges, MessageBehindCollectivesThatWait) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const int size = comm.size();
    const int rank = comm.rank();
    if (size == 1)
        GTEST_SKIP() << "skipped: one rank sends to nobody";
    constexpr size_t kBytes = 20'000;
    std::vector<size_t> lengths(4, 16'400);
    lengths.resize(12, 300);
    std::vector<Bytes> ins, outs;
    std::vector<flx_request_t> requests(lengths.size(), nullptr);
    for (size_t i = 0; i < lengths.size(); ++i) {
        ins.emplace_back(lengths[i] * size);
        outs.emplace_back(lengths[i] * size);
        for (int peer = 0; peer < size; ++peer)
            std::ranges::copy(message(rank, peer, i, lengths[i]), ins[i].begin() + peer * lengths[i]);
    }
    const Bytes sent = message(0, 1, 99, kBytes);
    Bytes received(kBytes);
    if (rank == 1) {
        ASSERT_TRUE(succeeded(flx_recv(received.data(), kBytes, FLX_UINT8, 0, comm)));
    }
    for (size_t i = 0; i < lengths.size(); ++i)
        ASSERT_TRUE(succeeded(flx_ialltoall(ins[i].data(), outs[i].data(), lengths[i], FLX_UINT8, comm, &requests[i])));
    if (rank == 0) {
        ASSERT_TRUE(succeeded(flx_send(sent.data(), kBytes, FLX_UINT8, 1, comm)));
    }
    for (flx_request_t &request : requests)
        ASSERT_TRUE(succeeded(flx_wait(&request)));
    if (rank == 1) {
        ASSERT_TRUE(is_message(received.data(), 0, 1, 99, kBytes));
    }
    for (size_t i = 0; i < lengths.size(); ++i)
        for (int peer = 0; peer < size; ++peer)
            ASSERT_TRUE(is_message(outs[i].data() + peer * lengths[i], peer, rank, i, lengths[i]));
}

/// An alltoallv of blocks of one length, in which each byte is the sender's rank and one.
struct EqualBlocks {
    Bytes in;
    std::vector<size_t> counts, at;
};
EqualBlocks equal_blocks(int rank, size_t size, size_t bytes) {
    EqualBlocks blocks{Bytes(bytes * size, static_cast<std::byte>(rank + 1)), std::vector<size_t>(size, bytes), {}};
    for (size_t peer = 0; peer < size; ++peer)
        blocks.at.push_back(peer * bytes);
    return blocks;
}

/// A message is numbered when it is issued, after those of an exchange that waits until another operation is over. It
/// comes in before that begins, or after.
TEST(Exchanges, MessageBehindAnExchangeThatWaits) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const int rank = comm.rank();
    const auto size = static_cast<size_t>(comm.size());
    if (size == 1)
        GTEST_SKIP() << "skipped: one rank sends to nobody";
    constexpr size_t kLong = 1U << 20, kBlock = 100'000;
    for (const size_t bytes : {size_t{4}, size_t{500'000}}) {
        std::vector<float> sum(kLong, 1);
        const auto [in, counts, at] = equal_blocks(rank, size, kBlock);
        Bytes out(in.size());
        const Bytes sent = message(0, 1, 99, bytes);
        Bytes received(bytes);
        std::array<flx_request_t, 2> requests{};
        ASSERT_TRUE(
            succeeded(flx_iallreduce(FLX_IN_PLACE, sum.data(), kLong, FLX_F32, FLX_SUM, comm, requests.data())));
        ASSERT_TRUE(succeeded(flx_ialltoallv(in.data(), out.data(), counts.data(), at.data(), counts.data(), at.data(),
                                             FLX_UINT8, comm, &requests[1])));
        if (rank == 0) {
            ASSERT_TRUE(succeeded(flx_send(sent.data(), bytes, FLX_UINT8, 1, comm)));
        }
        ASSERT_TRUE(succeeded(flx_wait(requests.data())));
        if (rank == 1) {
            ASSERT_TRUE(succeeded(flx_recv(received.data(), bytes, FLX_UINT8, 0, comm)));
            ASSERT_TRUE(is_message(received.data(), 0, 1, 99, bytes));
        }
        ASSERT_TRUE(succeeded(flx_wait(&requests[1])));
        for (size_t i = 0; i < out.size(); ++i)
            ASSERT_EQ(static_cast<size_t>(out[i]), i / kBlock + 1);
        ASSERT_EQ(sum.back(), static_cast<float>(size));
    }
}

/// The same, with the message in a group that waits, and another one that does not and has a later number.
TEST(Exchanges, GroupBehindAnExchangeThatWaits) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const int rank = comm.rank();
    const auto size = static_cast<size_t>(comm.size());
    if (size == 1)
        GTEST_SKIP() << "skipped: one rank sends to nobody";
    constexpr size_t kLong = 1U << 20, kBlock = 60'000;
    std::vector<float> sum(kLong, 1);
    const auto [in, counts, at] = equal_blocks(rank, size, kBlock);
    std::array<Bytes, 2> outs{Bytes(in.size()), Bytes(in.size())};
    std::array<int, 2> words{rank == 0 ? 77 : 0, rank == 0 ? 78 : 0};
    std::array<flx_request_t, 3> requests{};
    ASSERT_TRUE(succeeded(flx_iallreduce(FLX_IN_PLACE, sum.data(), kLong, FLX_F32, FLX_SUM, comm, requests.data())));
    if (rank == comm.size() - 1 && size > 2) {
        ASSERT_TRUE(succeeded(flx_wait(requests.data())));
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
    ASSERT_TRUE(succeeded(flx_ialltoallv(in.data(), outs[0].data(), counts.data(), at.data(), counts.data(), at.data(),
                                         FLX_UINT8, comm, &requests[1])));
    ASSERT_TRUE(succeeded(flx_group_begin(comm)));
    ASSERT_TRUE(succeeded(
        flx_alltoallv(in.data(), outs[1].data(), counts.data(), at.data(), counts.data(), at.data(), FLX_UINT8, comm)));
    if (rank == 0) {
        ASSERT_TRUE(succeeded(flx_send(words.data(), 1, FLX_INT32, 1, comm)));
    }
    if (rank == 1) {
        ASSERT_TRUE(succeeded(flx_recv(words.data(), 1, FLX_INT32, 0, comm)));
    }
    ASSERT_TRUE(succeeded(flx_group_end(comm)));
    if (rank == 0) {
        ASSERT_TRUE(succeeded(flx_send(&words[1], 1, FLX_INT32, 1, comm)));
    }
    if (rank == 1) {
        ASSERT_TRUE(succeeded(flx_recv(&words[1], 1, FLX_INT32, 0, comm)));
        EXPECT_EQ(words[0], 77);
        EXPECT_EQ(words[1], 78);
    }
    for (flx_request_t &request : requests)
        ASSERT_TRUE(succeeded(flx_wait(&request)));
    for (const Bytes &out : outs)
        for (size_t i = 0; i < out.size(); ++i)
            ASSERT_EQ(static_cast<size_t>(out[i]), i / kBlock + 1);
}

TEST(Exchanges, AlltoallvOfUnevenCounts) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const int size = comm.size();
    const int rank = comm.rank();
    uint64_t number = 0;
    for (const size_t most : {1U, 10U, 3000U, 200000U}) {
        for (int type = 0; type < kDtypes; ++type) {
            const flx_dtype_t dtype = dtype_at(type);
            const size_t element = size_of(dtype);
            ++number;
            const size_t elements = std::max<size_t>(1, most / element);
            const Blocks to(size, [&](int peer) { return count_of(rank, peer, number, elements); });
            const Blocks from(size, [&](int peer) { return count_of(peer, rank, number, elements); });
            Bytes in(to.elements * element);
            for (int peer = 0; peer < size; ++peer)
                std::ranges::copy(message(rank, peer, number, to.counts[peer] * element),
                                  in.begin() + to.displacements[peer] * element);
            Bytes out(from.elements * element, std::byte{0x5a});
            ASSERT_TRUE(succeeded(flx_alltoallv(in.data(), out.data(), to.counts.data(), to.displacements.data(),
                                                from.counts.data(), from.displacements.data(), dtype, comm)));
            size_t touched = 0;
            for (int peer = 0; peer < size; ++peer) {
                touched += from.counts[peer] * element;
                std::byte *block = out.data() + from.displacements[peer] * element;
                ASSERT_TRUE(is_message(block, peer, rank, number, from.counts[peer] * element)) << "most " << most;
                std::fill_n(block, from.counts[peer] * element, std::byte{0x5a});
            }
            EXPECT_TRUE(std::ranges::all_of(out, [](std::byte b) { return b == std::byte{0x5a}; })) << touched;
        }
    }
}

/// In place, what goes from a to b is as long as what goes from b to a.
TEST(Exchanges, AlltoallvInPlace) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const int size = comm.size();
    const int rank = comm.rank();
    for (const size_t most : {5U, 2000U, 150000U}) {
        const auto pair = [&](int peer) { return count_of(std::min(rank, peer), std::max(rank, peer), most, most); };
        const Blocks blocks(size, pair);
        Bytes data(blocks.elements * 4);
        for (int peer = 0; peer < size; ++peer)
            std::ranges::copy(message(rank, peer, most, blocks.counts[peer] * 4),
                              data.begin() + blocks.displacements[peer] * 4);
        ASSERT_TRUE(succeeded(flx_alltoallv(FLX_IN_PLACE, data.data(), nullptr, nullptr, blocks.counts.data(),
                                            blocks.displacements.data(), FLX_F32, comm)));
        for (int peer = 0; peer < size; ++peer)
            ASSERT_TRUE(
                is_message(data.data() + blocks.displacements[peer] * 4, peer, rank, most, blocks.counts[peer] * 4));
    }
}

/// Every root, in place and not, parts of all lengths.
TEST(Exchanges, GathervAndScattervOfUnevenCounts) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const int size = comm.size();
    const int rank = comm.rank();
    uint64_t number = 7'000'000;
    for (const size_t most : {0U, 1U, 50U, 3000U, 40000U, 300000U}) {
        for (int call = 0; call < 2 * size; ++call) {
            const int root = call % size;
            const bool in_place = call >= size;
            ++number;
            const Blocks blocks(size, [&](int peer) { return count_of(peer, root, number, most); });
            const Bytes own = message(rank, root, number, blocks.counts[rank]);
            Bytes all(rank == root ? blocks.elements + 1 : 0, std::byte{0x5a});
            if (rank == root && in_place)
                std::ranges::copy(own, all.begin() + blocks.displacements[rank]);
            const void *in = rank == root && in_place ? FLX_IN_PLACE : static_cast<const void *>(own.data());
            ASSERT_TRUE(succeeded(flx_gatherv(in, own.size(), all.data(), blocks.counts.data(),
                                              blocks.displacements.data(), FLX_UINT8, root, comm)));
            for (int peer = 0; rank == root && peer < size; ++peer)
                ASSERT_TRUE(
                    is_message(all.data() + blocks.displacements[peer], peer, root, number, blocks.counts[peer]));
            Bytes back(own.size() + 1, std::byte{0x5a});
            void *out = rank == root && in_place ? FLX_IN_PLACE : static_cast<void *>(back.data());
            ASSERT_TRUE(succeeded(flx_scatterv(all.data(), blocks.counts.data(), blocks.displacements.data(), out,
                                               own.size(), FLX_UINT8, root, comm)));
            if (out == back.data()) {
                ASSERT_TRUE(is_message(back.data(), rank, root, number, own.size()));
                EXPECT_EQ(back.back(), std::byte{0x5a});
            }
        }
    }
}

/// Two ranks of one host give another rank together what it awaits, but not each its part: an error that names a pair.
TEST(Exchanges, LengthsThatDifferButNotTogetherAreAnError) {
    if (world_size() < 4)
        GTEST_SKIP() << "skipped: needs two ranks beside each other and one elsewhere";
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const int size = comm.size();
    const int last = size - 1;
    std::vector<size_t> sends(size), receives(size), at(size);
    for (int peer = 0; peer < size; ++peer)
        at[peer] = static_cast<size_t>(peer) * 8;
    if (comm.rank() != last)
        sends[last] = comm.rank() == 0 ? 4 : comm.rank() == 1 ? 6 : 5;
    for (int peer = 0; comm.rank() == last && peer < last; ++peer)
        receives[peer] = 5;
    Bytes in(static_cast<size_t>(size) * 8), out(in.size());
    flx_status_t status =
        flx_alltoallv(in.data(), out.data(), sends.data(), at.data(), receives.data(), at.data(), FLX_UINT8, comm);
    if (status == FLX_SUCCESS)
        status = flx_barrier(comm);
    EXPECT_EQ(status, FLX_ERR_MISMATCH) << flx_last_error();
    const std::string sentence = flx_last_error();
    static const std::regex together(
        " send (\\d+) bytes to ranks of the host of rank \\d+, lengths of messages included, where (\\d+) bytes ");
    if (std::smatch bytes; std::regex_search(sentence, bytes, together))
        EXPECT_EQ(std::abs(std::stol(bytes[1]) - std::stol(bytes[2])), 1) << sentence;
    else
        EXPECT_NE(sentence.find("where 5 bytes are received"), std::string::npos) << sentence;
}

/// gatherv to the first rank, scatterv from it or alltoallv, by `kind`; between it and the last one only, which means
/// other lengths.
flx_status_t between_two(int kind, size_t sent, size_t awaited, flx_comm_t comm) {
    int size = 0;
    int rank = 0;
    EXPECT_TRUE(succeeded(flx_comm_size(comm, &size)));
    EXPECT_TRUE(succeeded(flx_comm_rank(comm, &rank)));
    const int last = size - 1;
    Bytes data(sent), out(awaited);
    const std::vector<size_t> none(size);
    std::vector<size_t> counts(size), receives(size);
    if (kind == 0) {
        counts[last] = rank == 0 ? awaited : 0;
        return flx_gatherv(data.data(), rank == last ? sent : 0, out.data(), counts.data(), none.data(), FLX_UINT8, 0,
                           comm);
    }
    counts[last] = rank == 0 ? sent : 0;
    if (kind == 1)
        return flx_scatterv(data.data(), counts.data(), none.data(), out.data(), rank == last ? awaited : 0, FLX_UINT8,
                            0, comm);
    receives[0] = rank == last ? awaited : 0;
    return flx_alltoallv(data.data(), out.data(), counts.data(), none.data(), receives.data(), none.data(), FLX_UINT8,
                         comm);
}

/// Lengths of any kind against lengths of any other. What one rank of a host sends and another does not await is met
/// by the next call between them.
TEST(Exchanges, LengthsOfTwoKindsAreAnError) {
    if (world_size() < 4)
        GTEST_SKIP() << "skipped: few ranks may each wait until the deadline";
    constexpr size_t kLong = 1 << 20;
    const Comm all = Comm::world();
    ASSERT_TRUE(all);
    for (const auto &[sent, awaited] :
         {std::pair<size_t, size_t>{0, 1}, {1, 0}, {kLong, 100}, {100, kLong}, {kLong, 0}, {0, kLong}, {5000, 40}}) {
        for (int kind = 0; kind < 3; ++kind) {
            flx_comm_t made = nullptr;
            ASSERT_TRUE(succeeded(flx_comm_dup(all, &made)));
            flx_status_t status = between_two(kind, sent, awaited, made);
            if (status == FLX_SUCCESS)
                status = between_two(kind, 1, 1, made);
            if (status == FLX_SUCCESS)
                status = flx_barrier(made);
            EXPECT_EQ(status, FLX_ERR_MISMATCH) << kind << ": " << sent << ", " << awaited << ": " << flx_last_error();
            flx_comm_free(&made);
        }
    }
}

/// One pair at a time; the other ranks do not call.
TEST(Exchanges, PairsNeedNobodyElse) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const int rank = comm.rank();
    uint64_t number = 0;
    for (int from = 0; from < comm.size(); ++from) {
        for (int to = 0; to < comm.size(); ++to) {
            for (const size_t bytes : {0U, 1U, 300U, 70000U, 1500001U}) {
                ++number;
                if (from == to)
                    continue;
                if (rank == from) {
                    const Bytes data = message(from, to, number, bytes);
                    ASSERT_TRUE(succeeded(flx_send(data.data(), bytes, FLX_UINT8, to, comm)));
                } else if (rank == to) {
                    Bytes data(bytes + 1);
                    ASSERT_TRUE(succeeded(flx_recv(data.data(), bytes, FLX_UINT8, from, comm)));
                    ASSERT_TRUE(is_message(data.data(), from, to, number, bytes));
                }
            }
        }
    }
    ASSERT_TRUE(succeeded(flx_barrier(comm)));
}

/// Everyone passes on to the next, far more than any link holds.
TEST(Exchanges, RingsDoNotDeadlock) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const int size = comm.size();
    const int rank = comm.rank();
    const int next = (rank + 1) % size;
    const int previous = (rank + size - 1) % size;
    for (const size_t bytes : {3U, 50000U, 5000000U}) {
        const Bytes out = message(rank, next, bytes, bytes);
        Bytes in(bytes);
        ASSERT_TRUE(succeeded(flx_sendrecv(out.data(), in.data(), bytes, bytes, FLX_INT8, next, previous, comm)));
        ASSERT_TRUE(is_message(in.data(), previous, rank, bytes, bytes));
        std::ranges::fill(in, std::byte{0});
        ASSERT_TRUE(succeeded(flx_group_begin(comm)));
        ASSERT_TRUE(succeeded(flx_send(out.data(), bytes, FLX_INT8, next, comm)));
        ASSERT_TRUE(succeeded(flx_recv(in.data(), bytes, FLX_INT8, previous, comm)));
        ASSERT_TRUE(succeeded(flx_group_end(comm)));
        ASSERT_TRUE(is_message(in.data(), previous, rank, bytes, bytes));
    }
}

/// Many messages of each pair in one group, with itself too, and an alltoall among them; then collectives.
/// A group has the numbers of all its operations: what a rank that is ahead sends for any of them is used.
TEST(Exchanges, GroupsOfSeveralAlltoallsWithOneRankAhead) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const int size = comm.size();
    const int rank = comm.rank();
    constexpr size_t kBlock = 40;
    constexpr int kGroups = 12;
    for (const int many : {2, 3, 33}) {
        std::vector<Bytes> out(many, Bytes(kBlock * size));
        std::vector<Bytes> in(many, Bytes(kBlock * size));
        for (int group = 0; group < kGroups; ++group) {
            const auto number = [&](uint64_t m) { return uint64_t{1000} * many + uint64_t{50} * group + m; };
            if (rank == group % size)
                std::this_thread::sleep_for(std::chrono::milliseconds(3));
            ASSERT_TRUE(succeeded(flx_group_begin(comm)));
            for (int m = 0; m < many; ++m) {
                for (int peer = 0; peer < size; ++peer)
                    std::ranges::copy(message(rank, peer, number(m), kBlock), out[m].begin() + peer * kBlock);
                ASSERT_TRUE(succeeded(flx_alltoall(out[m].data(), in[m].data(), kBlock, FLX_UINT8, comm)));
            }
            ASSERT_TRUE(succeeded(flx_group_end(comm)));
            for (int m = 0; m < many; ++m)
                for (int peer = 0; peer < size; ++peer)
                    ASSERT_TRUE(is_message(in[m].data() + peer * kBlock, peer, rank, number(m), kBlock))
                        << "group " << group << ", alltoall " << m;
        }
    }
}

TEST(Exchanges, GroupsMatchInOrder) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const int size = comm.size();
    const int rank = comm.rank();
    constexpr int kMessages = 7;
    for (uint64_t round = 1; round <= 4; ++round) {
        const size_t most = std::array<size_t, 4>{10, 3000, 60000, 400000}[round - 1] / size;
        std::vector<Bytes> out;
        std::vector<Bytes> in;
        const size_t block = 1000 * round;
        Bytes all_out(block * size);
        Bytes all_in(block * size);
        for (int peer = 0; peer < size; ++peer)
            std::ranges::copy(message(rank, peer, round, block), all_out.begin() + peer * block);
        ASSERT_TRUE(succeeded(flx_group_begin(comm)));
        for (int m = 0; m < kMessages; ++m) {
            for (int peer = 0; peer < size; ++peer) {
                const uint64_t number = round * 1000 + m;
                out.push_back(message(rank, peer, number, count_of(rank, peer, number, most)));
                in.emplace_back(count_of(peer, rank, number, most));
                // Receives come first on some ranks.
                if (rank % 2 == 0) {
                    ASSERT_TRUE(succeeded(flx_send(out.back().data(), out.back().size(), FLX_UINT8, peer, comm)));
                }
                ASSERT_TRUE(succeeded(flx_recv(in.back().data(), in.back().size(), FLX_UINT8, peer, comm)));
                if (rank % 2 != 0) {
                    ASSERT_TRUE(succeeded(flx_send(out.back().data(), out.back().size(), FLX_UINT8, peer, comm)));
                }
            }
            if (m == kMessages / 2) {
                ASSERT_TRUE(succeeded(flx_alltoall(all_out.data(), all_in.data(), block, FLX_UINT8, comm)));
            }
        }
        ASSERT_TRUE(succeeded(flx_group_end(comm)));
        for (int m = 0; m < kMessages; ++m)
            for (int peer = 0; peer < size; ++peer) {
                const Bytes &got = in[static_cast<size_t>(m) * size + peer];
                ASSERT_TRUE(is_message(got.data(), peer, rank, round * 1000 + m, got.size()));
            }
        for (int peer = 0; peer < size; ++peer)
            ASSERT_TRUE(is_message(all_in.data() + peer * block, peer, rank, round, block));
        const Case c{Collective::allreduce, FLX_F32, FLX_SUM, 20011, 0, false, 0, Data::random, seed() + round};
        EXPECT_TRUE(check(c, comm));
    }
}

/// Whether a rank has one handle for two reductions or one for each is its own affair.
TEST(Exchanges, SumsOfAGroupHaveHandlesOfTheirOwn) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const std::array<float, 2> factors = {2, comm.rank() == 0 ? 2.0F : 3.0F};
    std::array<flx_op_t, 2> ops{};
    ASSERT_TRUE(succeeded(flx_op_create_scaled_sum(&factors[0], FLX_F32, &ops[0])));
    ops[1] = ops[0];
    if (comm.rank() != 0) {
        ASSERT_TRUE(succeeded(flx_op_create_scaled_sum(&factors[1], FLX_F32, &ops[1])));
    }
    const std::array<float, 4> in = {1, 1, 1, 1};
    std::array<std::array<float, 4>, 2> out{};
    ASSERT_TRUE(succeeded(flx_group_begin(comm)));
    for (size_t i = 0; i < 2; ++i)
        ASSERT_TRUE(succeeded(flx_allreduce(in.data(), out[i].data(), in.size(), FLX_F32, ops[i], comm)));
    ASSERT_TRUE(succeeded(flx_group_end(comm)));
    EXPECT_EQ(out[0].back(), 2.0F * static_cast<float>(comm.size()));
    EXPECT_EQ(out[1].back(), 3.0F * static_cast<float>(comm.size()) - 1);
    for (size_t i = 0; i < (comm.rank() == 0 ? 1 : 2); ++i)
        EXPECT_TRUE(succeeded(flx_op_free(&ops[i])));
}

/// A message may be sent in a group and received alone, and early: before the receiver has come to it.
TEST(Exchanges, MessagesWaitForTheirReceive) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    if (comm.size() == 1)
        GTEST_SKIP() << "skipped: one rank has nobody to send to";
    const int rank = comm.rank();
    const int last = comm.size() - 1;
    for (uint64_t round = 0; round < 20; ++round) {
        if (rank == last) {
            const Bytes one = message(last, 0, round, 900);
            const Bytes two = message(last, 0, round + 500, 200000);
            ASSERT_TRUE(succeeded(flx_send(one.data(), one.size(), FLX_UINT8, 0, comm)));
            const Case c{Collective::allreduce, FLX_INT32, FLX_SUM, 3001, 0, false, 0, Data::random, seed() + round};
            EXPECT_TRUE(check(c, comm));
            ASSERT_TRUE(succeeded(flx_group_begin(comm)));
            ASSERT_TRUE(succeeded(flx_send(two.data(), two.size(), FLX_UINT8, 0, comm)));
            ASSERT_TRUE(succeeded(flx_group_end(comm)));
            continue;
        }
        const Case c{Collective::allreduce, FLX_INT32, FLX_SUM, 3001, 0, false, 0, Data::random, seed() + round};
        EXPECT_TRUE(check(c, comm));
        if (rank != 0)
            continue;
        Bytes one(900);
        Bytes two(200000);
        ASSERT_TRUE(succeeded(flx_recv(one.data(), one.size(), FLX_UINT8, last, comm)));
        ASSERT_TRUE(succeeded(flx_recv(two.data(), two.size(), FLX_UINT8, last, comm)));
        ASSERT_TRUE(is_message(one.data(), last, 0, round, one.size()));
        ASSERT_TRUE(is_message(two.data(), last, 0, round + 500, two.size()));
    }
}

TEST(Exchanges, WorkWithCheckedArguments) {
    Settings settings;
    settings.check = 1;
    const flx_config_t config = settings.config();
    const Comm comm = Comm::world(&config);
    ASSERT_TRUE(comm);
    const int size = comm.size();
    const std::vector<size_t> counts(size, 1);
    std::vector<size_t> displacements(size);
    std::iota(displacements.begin(), displacements.end(), 0);
    std::vector<int32_t> in(size, comm.rank());
    std::vector<int32_t> out(size);
    ASSERT_TRUE(succeeded(flx_alltoall(in.data(), out.data(), 1, FLX_INT32, comm)));
    for (int peer = 0; peer < size; ++peer)
        EXPECT_EQ(out[peer], peer);
    std::ranges::fill(out, -1);
    ASSERT_TRUE(succeeded(flx_alltoallv(in.data(), out.data(), counts.data(), displacements.data(), counts.data(),
                                        displacements.data(), FLX_INT32, comm)));
    for (int peer = 0; peer < size; ++peer)
        EXPECT_EQ(out[peer], peer);
}

/// Two lengths for one message: an error of the receiver that names both, and a broken communicator.
TEST(Exchanges, LengthsThatDifferAreAnError) {
    if (world_size() == 1)
        GTEST_SKIP() << "skipped: one rank has nobody to disagree with";
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    std::array<char, 400> data{};
    if (comm.rank() == 0) {
        EXPECT_TRUE(succeeded(flx_send(data.data(), 400, FLX_UINT8, 1, comm)));
    } else if (comm.rank() == 1) {
        EXPECT_EQ(flx_recv(data.data(), 300, FLX_UINT8, 0, comm), FLX_ERR_MISMATCH);
        const std::string sentence = flx_last_error();
        EXPECT_NE(sentence.find("rank 0 sends 400 bytes"), std::string::npos) << sentence;
        EXPECT_NE(sentence.find("300 bytes"), std::string::npos) << sentence;
        EXPECT_EQ(flx_send(data.data(), 1, FLX_UINT8, 0, comm), FLX_ERR_COMM);
    }
}

TEST(Exchanges, BadArgumentsAreSaid) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const int size = comm.size();
    const int rank = comm.rank();
    std::vector<float> data(2 * size + 2);
    std::vector<size_t> counts(size, 1);
    std::vector<size_t> displacements(size);
    const auto refused = [](flx_status_t status, const char *part) {
        return status == FLX_ERR_ARGUMENT && std::strstr(flx_last_error(), part) != nullptr
                   ? testing::AssertionSuccess()
                   : testing::AssertionFailure() << status << ": " << flx_last_error();
    };
    EXPECT_TRUE(refused(flx_alltoall(data.data(), data.data() + 1, 2, FLX_F32, comm), "overlap"));
    EXPECT_TRUE(refused(flx_alltoall(data.data(), nullptr, 1, FLX_F32, comm), "recvbuf is null"));
    EXPECT_TRUE(refused(flx_alltoallv(data.data(), data.data() + size, nullptr, displacements.data(), counts.data(),
                                      displacements.data(), FLX_F32, comm),
                        "sendcounts is null"));
    EXPECT_TRUE(refused(flx_alltoallv(data.data(), data.data(), counts.data(), displacements.data(), counts.data(),
                                      displacements.data(), FLX_F32, comm),
                        "overlap"));
    std::vector<size_t> two = counts;
    two[rank] = 2;
    EXPECT_TRUE(refused(flx_alltoallv(data.data(), data.data() + size + 1, two.data(), displacements.data(),
                                      counts.data(), displacements.data(), FLX_F32, comm),
                        "sendcounts"));
    EXPECT_TRUE(refused(flx_send(data.data(), 1, FLX_F32, size, comm), "dest"));
    EXPECT_TRUE(refused(flx_recv(data.data(), 1, FLX_F32, -1, comm), "source"));
    EXPECT_TRUE(refused(flx_send(data.data(), 1, FLX_F32, rank, comm), "to itself"));
    EXPECT_TRUE(refused(flx_recv(data.data(), 1, FLX_F32, rank, comm), "from itself"));
    EXPECT_TRUE(refused(flx_send(nullptr, 1, FLX_F32, 0, comm), "sendbuf is null"));
    EXPECT_TRUE(refused(flx_group_end(comm), "without flx_group_begin"));
    ASSERT_TRUE(succeeded(flx_group_begin(comm)));
    EXPECT_TRUE(refused(flx_group_begin(comm), "nest"));
    EXPECT_TRUE(refused(flx_barrier(comm), "barrier in a group"));
    ASSERT_TRUE(succeeded(flx_send(data.data(), 1, FLX_F32, rank, comm)));
    EXPECT_TRUE(refused(flx_group_end(comm), "to itself"));
    ASSERT_TRUE(succeeded(flx_group_begin(comm)));
    ASSERT_TRUE(succeeded(flx_group_end(comm)));
    const Case c{Collective::allreduce, FLX_INT32, FLX_SUM, 3, 0, false, 0, Data::random, seed()};
    EXPECT_TRUE(check(c, comm));
    ASSERT_TRUE(succeeded(flx_barrier(comm)));
}

}  // namespace
}  // namespace flx::test
