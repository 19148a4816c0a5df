/// \file double_binary_tree.cpp
/// Two binary trees over the same ranks, each with half the vector. A rank is an inner node of at most one of them, so
/// it sends and receives each half about once, as a rank of a ring does, but in a logarithmic number of hops.
#include <bit>

#include "algorithms/builder.h"

namespace flx::algorithms {
namespace {

constexpr uint8_t kTrees = 2;
constexpr int kNone = -1;

/// The neighbours of a rank in one tree; kNone where there is none.
struct Node {
    int parent = kNone;
    int left = kNone;
    int right = kNone;
    [[nodiscard]] bool inner() const { return left != kNone; }
};

/// The root of the subtree to the right of node `number`, which spans up to `lowest`-1 numbers; 0 if there is none.
int right_child(int number, int lowest, int nodes) {
    int step = lowest / 2;
    while (step > 0 && number + step > nodes)
        step /= 2;
    return step > 0 ? number + step : 0;
}

/// The in-order binary tree over the numbers 1 … nodes: a number's height is that of its lowest set bit, so all odd
/// ones are leaves. Parent and children of `number`, 0 where there is none.
Node in_order(int number, int nodes) {
    Node node{0, 0, 0};
    const auto lowest = [](int n) { return n & -n; };
    for (int at = static_cast<int>(std::bit_floor(static_cast<unsigned>(nodes))); at != number;) {
        node.parent = at;
        at = number < at ? at - lowest(at) / 2 : right_child(at, lowest(at), nodes);
    }
    if (lowest(number) > 1) {
        node.left = number - lowest(number) / 2;
        node.right = right_child(number, lowest(number), nodes);
    }
    return node;
}

/// The two trees over `size` ranks that follow `first` on the circle of `circle` ranks. Tree 0 numbers them from 1 on;
/// tree 1 backwards where `size` is even, else from the second one on. Both swap odd and even (the rank that keeps its
/// parity is a leaf in both), so that an inner node of one tree is a leaf of the other.
struct Trees {
    int first;
    int size;
    int circle;

    [[nodiscard]] int number_of(int tree, int rank) const {
        const int index = around(rank, -first, circle);
        if (tree == 0)
            return index + 1;
        return size % 2 == 0 ? size - index : around(index, -1, size) + 1;
    }
    [[nodiscard]] int rank_of(int tree, int number) const {
        if (number == 0)
            return kNone;
        int index = number - 1;
        if (tree == 1)
            index = size % 2 == 0 ? size - number : number % size;
        return around(first, index, circle);
    }
    [[nodiscard]] Node node(int tree, int rank) const {
        const Node numbers = in_order(number_of(tree, rank), size);
        return {rank_of(tree, numbers.parent), rank_of(tree, numbers.left), rank_of(tree, numbers.right)};
    }
    [[nodiscard]] int root(int tree) const {
        return rank_of(tree, static_cast<int>(std::bit_floor(static_cast<unsigned>(size))));
    }
};

/// Adds the children's sums to this rank's contribution, (left + own) + right, into `partial`. Returns the step whose
/// result is complete; kNoStep on a leaf, whose sum is its input.
uint32_t add_children(Builder &builder, const Node &node, uint8_t tree, Place partial) {
    if (!node.inner())
        return kNoStep;
    const uint32_t left = builder.recv_reduce(node.left, 0, tree, kInput, partial, true);
    if (node.right == kNone)
        return left;
    return builder.recv_reduce(node.right, 0, tree, partial, partial, false, {left});
}

/// Up to the roots in phase 0, down in phase 1.
///
/// Phase 1 overwrites what phase 0 sent to the parent (the partial sum; on a leaf, in place, the contribution). It
/// comes from the parent, and a cell of it exists only after the parent has consumed that cell of phase 0; the parent
/// drops what is sent again after that. Partial sums of an inner node are written before they are sent (the right
/// child's after the left one's), and the result, sent to the children in phase 1, is the last that is written there.
///
/// A right child's chunk may have to be held until the left one's came; the left one is never behind a held chunk,
/// since a rank holds chunks of one tree only.
Schedule allreduce(int rank, int size) {
    const Trees trees{0, size, size};
    Builder builder(kTrees, 2);
    builder.reserve(12);
    uint32_t sums[kTrees];
    for (uint8_t tree = 0; tree < kTrees; ++tree) {
        const Node node = trees.node(tree, rank);
        sums[tree] = add_children(builder, node, tree, kOutput);
        if (node.parent == kNone)
            builder.finish(sums[tree]);
        else
            builder.send(node.parent, 0, tree, node.inner() ? kOutput : kInput, {sums[tree]});
    }
    for (uint8_t tree = 0; tree < kTrees; ++tree) {
        const Node node = trees.node(tree, rank);
        const uint32_t result = node.parent == kNone ? sums[tree] : builder.recv(node.parent, 1, tree, kOutput);
        for (const int child : {node.left, node.right}) {
            if (child != kNone)
                builder.send(child, 1, tree, kOutput, {result});
        }
    }
    return builder.take();
}

/// The root feeds two trees over the other ranks. Nothing is overwritten: each half is received once.
Schedule bcast(int rank, int size, int root) {
    const Trees trees{around(root, 1, size), size - 1, size};
    Builder builder(kTrees, 1);
    for (uint8_t tree = 0; tree < kTrees; ++tree) {
        if (rank == root) {
            builder.send(trees.root(tree), 0, tree, kInput);
            continue;
        }
        const Node node = trees.node(tree, rank);
        const uint32_t received = builder.recv(node.parent == kNone ? root : node.parent, 0, tree, kOutput);
        for (const int child : {node.left, node.right}) {
            if (child != kNone)
                builder.send(child, 0, tree, kOutput, {received});
        }
    }
    if (rank == root) {
        for (uint8_t tree = 0; tree < kTrees; ++tree)
            builder.copy(tree, kInput, kOutput);
    }
    return builder.take();
}

/// Two trees over the other ranks lead to the root. Partial sums lie in scratch, as only the root has an output; one
/// slot is enough for an inner node, and leaves send their input. A rank is an inner node of one tree at most, so its
/// slot is not written again after it was sent; inputs are written at the root only, which sends nothing.
Schedule reduce(int rank, int size, int root) {
    const Trees trees{around(root, 1, size), size - 1, size};
    Builder builder(kTrees, 1);
    for (uint8_t tree = 0; tree < kTrees; ++tree) {
        if (rank == root) {
            builder.finish(builder.recv_reduce(trees.root(tree), 0, tree, kInput, kOutput, false));
            continue;
        }
        const Node node = trees.node(tree, rank);
        if (node.inner())
            builder.slots(1);
        const uint32_t sum = add_children(builder, node, tree, scratch(0));
        builder.send(node.parent == kNone ? root : node.parent, 0, tree, node.inner() ? scratch(0) : kInput, {sum});
    }
    return builder.take();
}

bool serves(Collective collective, int size) {
    return size >= 1 &&
           (collective == Collective::allreduce || collective == Collective::bcast || collective == Collective::reduce);
}

Schedule build(const Request &request) {
    const auto [collective, rank, size, root, placement] = request;
    if (size == 1)
        return alone(collective);
    if (collective == Collective::bcast)
        return bcast(rank, size, root);
    if (collective == Collective::reduce)
        return reduce(rank, size, root);
    return allreduce(rank, size);
}

BitClass bits(Collective collective) {
    return collective == Collective::allreduce || collective == Collective::reduce ? BitClass::tree : BitClass::none;
}

}  // namespace

const Algorithm kDoubleBinaryTree = {
    "double_binary_tree",
    "two trees, each with half the vector; every rank is an inner node of at most one",
    "Sanders, Speck, Träff: Two-tree algorithms for full bandwidth broadcast, reduction and scan (2009)",
    bits,
    serves,
    build};

}  // namespace flx::algorithms
