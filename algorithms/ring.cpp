/// \file ring.cpp
/// Ring and chain: each rank receives from its predecessor and sends to its successor, so each link carries the least
/// that it can, in as many hops as there are ranks.
#include "algorithms/builder.h"

namespace flx::algorithms {
namespace {

/// Reduce-scatter around the ring, then all-gather around it. Block b starts at rank b+1 and is complete at rank b.
///
/// Phase 1 overwrites block b of the output, which (the partial sum, or in place the contribution) phase 0 sent to the
/// successor. The final value's cell passes through every rank from the successor to the owner only after each has
/// consumed the partial sum's cell, and comes here after that; so no dependency on the send is needed. If that send is
/// still not acknowledged then and is sent again, it carries final values, which the successor drops as duplicates.
/// What phase 1 sends is never overwritten in this operation.
Schedule allreduce(int rank, int size) {
    const int next = around(rank, 1, size);
    const int previous = around(rank, -1, size);
    Builder builder(static_cast<uint32_t>(size), 2);
    builder.reserve(4 * static_cast<size_t>(size));
    uint32_t ready = kNoStep;
    builder.send(next, 0, static_cast<uint32_t>(previous), kInput);
    for (int round = 1; round < size; ++round) {
        const auto block = static_cast<uint32_t>(around(previous, -round, size));
        ready = builder.recv_reduce(previous, 0, block, kInput, kOutput, true);
        if (round < size - 1)
            builder.send(next, 0, block, kOutput, {ready});
    }
    builder.finish(ready);
    builder.send(next, 1, static_cast<uint32_t>(rank), kOutput, {ready});
    for (int round = 1; round < size; ++round) {
        const auto block = static_cast<uint32_t>(around(rank, -round, size));
        ready = builder.recv(previous, 1, block, kOutput);
        if (round < size - 1)
            builder.send(next, 1, block, kOutput, {ready});
    }
    return builder.take();
}

/// This is phase 0 of allreduce, with the partial sums in scratch: round i's in slot i-1.
///
/// Slots are not used again. A receive that waits for a slot waits for its successor's receive, and around the ring (or
/// where cells of one step wait for each other on a link) such waits can close a circle.
///
/// Sends stay intact: a slot is written once and before it is sent, and the input is written nowhere but there:
/// in place, the result lies where block 0 of the input is until it was sent or added. The last receive waits for that,
/// and the sender of the last block, which does not know whether its successor works in place, must not let it overtake
/// block 0, lest it fill the room that block 0 needs.
Schedule reduce_scatter_block(int rank, int size) {
    const int next = around(rank, 1, size);
    const int previous = around(rank, -1, size);
    Builder builder(static_cast<uint32_t>(size), 1);
    builder.output(Layout::single).slots(static_cast<uint32_t>(size - 2)).reserve(2 * static_cast<size_t>(size));
    uint32_t sent = builder.send(next, 0, static_cast<uint32_t>(previous), kInput);
    uint32_t zero_sent = previous == 0 ? sent : kNoStep;
    uint32_t zero_used = zero_sent;
    for (int round = 1; round < size - 1; ++round) {
        const auto block = static_cast<uint32_t>(around(previous, -round, size));
        const Place partial = scratch(static_cast<uint32_t>(round - 1));
        const uint32_t added = builder.recv_reduce(previous, 0, block, kInput, partial, true);
        sent = builder.send(next, 0, block, partial, {added, round == size - 2 ? zero_sent : kNoStep});
        if (block == 0) {
            zero_sent = sent;
            zero_used = added;
        }
    }
    const uint32_t last = builder.recv_reduce(previous, 0, static_cast<uint32_t>(rank), kInput, kOutput, true);
    builder.wait_in_place(builder.finish(last), zero_used);
    return builder.take();
}

/// Nothing is overwritten: each block is received once, and in place the own block is not received.
Schedule allgather(int rank, int size) {
    const int next = around(rank, 1, size);
    const int previous = around(rank, -1, size);
    Builder builder(static_cast<uint32_t>(size), 1);
    builder.input(Layout::single).reserve(2 * static_cast<size_t>(size));
    builder.send(next, 0, static_cast<uint32_t>(rank), kInput);
    builder.copy(static_cast<uint32_t>(rank), kInput, kOutput);
    for (int round = 1; round < size; ++round) {
        const auto block = static_cast<uint32_t>(around(rank, -round, size));
        const uint32_t received = builder.recv(previous, 0, block, kOutput);
        if (round < size - 1)
            builder.send(next, 0, block, kOutput, {received});
    }
    return builder.take();
}

/// Each rank sends what it received once, or the root's input; nothing is written after it was sent.
Schedule bcast(int rank, int size, int root) {
    const int next = around(rank, 1, size);
    Builder builder(1, 1);
    if (rank == root) {
        builder.send(next, 0, 0, kInput);
        builder.copy(0, kInput, kOutput);
        return builder.take();
    }
    const uint32_t received = builder.recv(around(rank, -1, size), 0, 0, kOutput);
    if (next != root)
        builder.send(next, 0, 0, kOutput, {received});
    return builder.take();
}

/// A chain from the root's successor to the root. Partial sums lie in scratch, as only the root has an output. Each is
/// written once, before it is sent; the root, which overwrites its input in place, sends nothing.
Schedule reduce(int rank, int size, int root) {
    const int next = around(rank, 1, size);
    const int previous = around(rank, -1, size);
    Builder builder(1, 1);
    if (rank == root) {
        builder.finish(builder.recv_reduce(previous, 0, 0, kInput, kOutput, true));
    } else if (previous == root) {
        builder.send(next, 0, 0, kInput);
    } else {
        const uint32_t added = builder.slots(1).recv_reduce(previous, 0, 0, kInput, scratch(0), true);
        builder.send(next, 0, 0, scratch(0), {added});
    }
    return builder.take();
}

bool serves(Collective collective, int size) {
    using enum Collective;
    return size >= 1 && (collective == allreduce || collective == reduce_scatter_block || collective == allgather ||
                         collective == bcast || collective == reduce);
}

Schedule build(const Request &request) {
    const auto [collective, rank, size, root, placement] = request;
    if (size == 1)
        return alone(collective);
    switch (collective) {
        case Collective::allreduce:
            return allreduce(rank, size);
        case Collective::reduce_scatter_block:
            return reduce_scatter_block(rank, size);
        case Collective::allgather:
            return allgather(rank, size);
        case Collective::bcast:
            return bcast(rank, size, root);
        case Collective::reduce:
            return reduce(rank, size, root);
        default:  // not served
            break;
    }
    return {};
}

BitClass bits(Collective collective) {
    return reduces(collective) ? BitClass::ring : BitClass::none;
}

}  // namespace

const Algorithm kRing = {"ring",
                         "blocks travel around the ring of ranks; least bytes per rank, most hops",
                         "Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations (2009)",
                         bits,
                         serves,
                         build};

}  // namespace flx::algorithms
