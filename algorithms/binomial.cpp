/// \file binomial.cpp
/// Binomial tree: in each round every rank that has the data passes it to one that has not. As few hops as a tree can
/// have when a rank sends one message at a time, and whole messages: for small ones. In gather and scatter that is a
/// block for each rank behind.
#include <algorithm>
#include <bit>
#include <vector>

#include "algorithms/builder.h"

namespace flx::algorithms {
namespace {

/// Ranks are counted from the root. The parent of rank v is v without its lowest set bit; its children are v + 2^k for
/// 2^k below that bit. The subtree of v holds the ranks from v on, without gap.
int lowest_bit(int rank, int size) {
    return rank == 0 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(size))) : rank & -rank;
}

/// Ranks in the subtree of `rank`, itself among them.
int in_subtree(int rank, int size) {
    return std::min(lowest_bit(rank, size), size - rank);
}

/// Each rank sends what it received once; nothing is written after it was sent.
Schedule bcast(int rank, int size, int root) {
    const int own = around(rank, -root, size);
    Builder builder(1, 1);
    uint32_t received = kNoStep;
    Place place = kInput;
    if (own != 0) {
        received = builder.recv(around(root, own - lowest_bit(own, size), size), 0, 0, kOutput);
        place = kOutput;
    } else {
        builder.copy(0, kInput, kOutput);
    }
    for (int bit = lowest_bit(own, size) / 2; bit > 0; bit /= 2)  // the deepest subtree first
        if (own + bit < size)
            builder.send(around(root, own + bit, size), 0, 0, place, {received});
    return builder.take();
}

/// The tree of bcast the other way round. Partial sums lie in scratch, one place for each child, as only the root has
/// an output; in place, the root's input is overwritten by its last step alone, and the root sends nothing.
Schedule reduce(int rank, int size, int root) {
    const int own = around(rank, -root, size);
    Builder builder(1, 1);
    uint32_t sum = kNoStep;
    uint32_t slots = 0;
    Place place = kInput;
    for (int bit = 1; bit < lowest_bit(own, size) && own + bit < size; bit *= 2) {
        const bool last = 2 * bit >= lowest_bit(own, size) || own + 2 * bit >= size;
        const Place to = own == 0 && last ? kOutput : scratch(slots++);
        sum = builder.recv_reduce(around(root, own + bit, size), 0, 0, place, to, false, {sum});
        place = to;
    }
    if (own == 0)
        builder.finish(sum);
    else
        builder.send(around(root, own - lowest_bit(own, size), size), 0, 0, place, {sum});
    return builder.slots(slots).take();
}

/// A rank gets the blocks of its subtree and passes on those of its children's. Those of others lie in scratch.
Schedule scatter(int rank, int size, int root) {
    const int own = around(rank, -root, size);
    const int subtree = in_subtree(own, size);
    Builder builder(static_cast<uint32_t>(size), 1);
    builder.output(Layout::single).slots(own == 0 ? 0 : static_cast<uint32_t>(subtree - 1));
    const auto block = [&](int of) { return static_cast<uint32_t>(around(root, of, size)); };
    const auto place = [&](int of) { return own == 0 ? kInput : scratch(static_cast<uint32_t>(of - own - 1)); };
    std::vector<uint32_t> came(static_cast<size_t>(subtree), kNoStep);
    for (int of = own; of < own + subtree && own != 0; ++of)
        came[static_cast<size_t>(of - own)] = builder.recv(around(root, own - lowest_bit(own, size), size), 0,
                                                           block(of), of == own ? kOutput : place(of));
    if (own == 0)
        builder.copy(block(0), kInput, kOutput);
    for (int bit = lowest_bit(own, size) / 2; bit > 0; bit /= 2)
        for (int of = own + bit; of < std::min(own + 2 * bit, size); ++of)
            builder.send(around(root, own + bit, size), 0, block(of), place(of), {came[static_cast<size_t>(of - own)]});
    return builder.take();
}

/// The other way round. What a rank passes on waits for the block that comes last from the largest subtree behind it,
/// so that it goes as one message.
Schedule gather(int rank, int size, int root) {
    const int own = around(rank, -root, size);
    const int subtree = in_subtree(own, size);
    Builder builder(static_cast<uint32_t>(size), 1);
    builder.input(Layout::single).slots(own == 0 ? 0 : static_cast<uint32_t>(subtree - 1));
    const auto block = [&](int of) { return static_cast<uint32_t>(around(root, of, size)); };
    const auto place = [&](int of) { return own == 0 ? kOutput : scratch(static_cast<uint32_t>(of - own - 1)); };
    const int parent = around(root, own - lowest_bit(own, size), size);
    if (own == 0)
        builder.copy(block(0), kInput, kOutput);
    std::vector<uint32_t> came(static_cast<size_t>(subtree), kNoStep);
    uint32_t last = kNoStep;
    for (int bit = 1; bit < lowest_bit(own, size); bit *= 2)
        for (int of = own + bit; of < std::min(own + 2 * bit, size); ++of)
            last = came[static_cast<size_t>(of - own)] =
                builder.recv(around(root, own + bit, size), 0, block(of), place(of));
    for (int of = own; of < own + subtree && own != 0; ++of)
        builder.send(parent, 0, block(of), of == own ? kInput : place(of), {came[static_cast<size_t>(of - own)], last});
    return builder.take();
}

bool serves(Collective collective, int size) {
    return size >= 1 && rooted(collective);
}

Schedule build(const Request &request) {
    const auto [collective, rank, size, root, placement] = request;
    if (size == 1)
        return alone(collective);
    switch (collective) {
        case Collective::bcast:
            return bcast(rank, size, root);
        case Collective::reduce:
            return reduce(rank, size, root);
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
    return collective == Collective::reduce ? BitClass::tree : BitClass::none;
}

}  // namespace

const Algorithm kBinomialTree = {
    "binomial_tree",
    "who has the data passes it on whole, to one rank at a time; few hops, for small messages",
    "Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH (2005)",
    bits,
    serves,
    build};

}  // namespace flx::algorithms
