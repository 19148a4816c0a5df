/// \file direct.cpp
/// Every rank talks to every other: one hop, or two where a result must come back. Reductions happen in one place, in
/// rank order. Sends start at the successor, so that not all ranks aim at one target at a time.
#include "algorithms/builder.h"

namespace flx::algorithms {
namespace {

/// Block b belongs to rank b. Phase 0 brings all contributions to the owner, phase 1 the result to all.
///
/// In place, phase 1's block b overwrites what phase 0 sent to rank b. A cell of the result exists only once rank b has
/// consumed that cell of every contribution, this rank's among them; so no dependency on the send is needed. Sent
/// again, the chunk would carry results, which rank b drops as duplicates. Phase 1 sends the own block, which is
/// written once.
Schedule allreduce(int rank, int size) {
    Builder builder(static_cast<uint32_t>(size), 2);
    builder.reserve(3 * static_cast<size_t>(size));
    const auto own = static_cast<uint32_t>(rank);
    for (int i = 1; i < size; ++i) {
        const int peer = around(rank, i, size);
        builder.send(peer, 0, static_cast<uint32_t>(peer), kInput);
    }
    const uint32_t reduced = builder.gather_reduce(size, 0, own, kInput, kOutput);
    for (int i = 1; i < size; ++i)
        builder.send(around(rank, i, size), 1, own, kOutput, {reduced});
    for (int i = 1; i < size; ++i) {
        const int peer = around(rank, -i, size);
        builder.recv(peer, 1, static_cast<uint32_t>(peer), kOutput);
    }
    return builder.take();
}

/// Sends are of the input. In place, one block of it is overwritten, by the result, which waits for that block's send.
Schedule reduce_scatter_block(int rank, int size) {
    Builder builder(static_cast<uint32_t>(size), 1);
    builder.output(Layout::single).reserve(static_cast<size_t>(size));
    // In place, the result lies where the contribution to block 0 is until rank 0 has it.
    uint32_t block_zero_sent = kNoStep;
    for (int i = 1; i < size; ++i) {
        const int peer = around(rank, i, size);
        const uint32_t sent = builder.send(peer, 0, static_cast<uint32_t>(peer), kInput);
        if (peer == 0)
            block_zero_sent = sent;
    }
    const uint32_t reduced = builder.gather_reduce(size, 0, static_cast<uint32_t>(rank), kInput, kOutput);
    builder.wait_in_place(reduced, block_zero_sent);
    return builder.take();
}

/// Nothing is overwritten: received blocks are never sent, and in place the own block is not received.
Schedule allgather(int rank, int size) {
    Builder builder(static_cast<uint32_t>(size), 1);
    builder.input(Layout::single).reserve(2 * static_cast<size_t>(size));
    const auto own = static_cast<uint32_t>(rank);
    for (int i = 1; i < size; ++i)
        builder.send(around(rank, i, size), 0, own, kInput);
    builder.copy(own, kInput, kOutput);
    for (int i = 1; i < size; ++i) {
        const int peer = around(rank, -i, size);
        builder.recv(peer, 0, static_cast<uint32_t>(peer), kOutput);
    }
    return builder.take();
}

/// Only the root sends, and nobody writes there.
Schedule bcast(int rank, int size, int root) {
    Builder builder(1, 1);
    if (rank != root) {
        builder.recv(root, 0, 0, kOutput);
        return builder.take();
    }
    for (int i = 1; i < size; ++i)
        builder.send(around(root, i, size), 0, 0, kInput);
    builder.copy(0, kInput, kOutput);
    return builder.take();
}

/// Only the root writes, and it sends nothing.
Schedule reduce(int rank, int size, int root) {
    Builder builder(1, 1);
    if (rank == root)
        builder.gather_reduce(size, 0, 0, kInput, kOutput);
    else
        builder.send(root, 0, 0, kInput);
    return builder.take();
}

/// Only the root writes, and it sends nothing.
Schedule gather(int rank, int size, int root) {
    Builder builder(static_cast<uint32_t>(size), 1);
    builder.input(Layout::single).reserve(static_cast<size_t>(size));
    if (rank != root) {
        builder.send(root, 0, static_cast<uint32_t>(rank), kInput);
        return builder.take();
    }
    builder.copy(static_cast<uint32_t>(root), kInput, kOutput);
    for (int i = 1; i < size; ++i) {
        const int peer = around(root, i, size);
        builder.recv(peer, 0, static_cast<uint32_t>(peer), kOutput);
    }
    return builder.take();
}

/// Only the root sends, and it writes its own block alone, which it does not send.
Schedule scatter(int rank, int size, int root) {
    Builder builder(static_cast<uint32_t>(size), 1);
    builder.output(Layout::single).reserve(static_cast<size_t>(size));
    if (rank != root) {
        builder.recv(root, 0, static_cast<uint32_t>(rank), kOutput);
        return builder.take();
    }
    for (int i = 1; i < size; ++i) {
        const int peer = around(root, i, size);
        builder.send(peer, 0, static_cast<uint32_t>(peer), kInput);
    }
    builder.copy(static_cast<uint32_t>(root), kInput, kOutput);
    return builder.take();
}

/// Everyone sends its element to everyone: one hop. Input and output are not the same memory (see Collective), so the
/// sum cannot overwrite what is being sent.
Schedule barrier(int rank, int size) {
    Builder builder(1, 1);
    for (int i = 1; i < size; ++i)
        builder.send(around(rank, i, size), 0, 0, kInput);
    builder.gather_reduce(size, 0, 0, kInput, kOutput);
    return builder.take();
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
        case Collective::barrier:
            return barrier(rank, size);
        case Collective::gather:
            return gather(rank, size, root);
        case Collective::scatter:
            return scatter(rank, size, root);
        default:  // not served
            break;
    }
    return {};
}

BitClass bits(Collective collective) {
    return reduces(collective) ? BitClass::rank_order : BitClass::none;
}

bool serves(Collective collective, int size) {
    return size >= 1 && has_schedules(collective) && collective != Collective::scan && collective != Collective::exscan;
}

}  // namespace

const Algorithm kDirect = {"direct",
                           "every rank sends to every other; sums are made by one owner, in rank order",
                           "Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH "
                           "(2005), pairwise exchange",
                           bits,
                           serves,
                           build};

}  // namespace flx::algorithms
