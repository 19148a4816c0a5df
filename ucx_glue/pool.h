/// \file pool.h
/// Memory that is taken and given back at every chunk: grows while a program warms up, then allocates nothing.
/// Not thread-safe: guarded by the lock of the rail that owns it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

namespace flx::ucx {

/// Objects with stable addresses; `Node` has a member `Node *next`. Objects given back keep their contents.
template <typename Node>
class NodePool {
  public:
    Node *take() {
        if (free_ == nullptr)
            return &nodes_.emplace_back();
        Node *node = free_;
        free_ = node->next;
        node->next = nullptr;
        return node;
    }
    void give(Node *node) {
        node->next = free_;
        free_ = node;
    }
    /// All objects ever made, in use or not.
    std::deque<Node> &all() { return nodes_; }

  private:
    std::deque<Node> nodes_;
    Node *free_ = nullptr;
};

/// Payload buffers in classes of powers of two, aligned to a cache line.
class BufferPool {
  public:
    static constexpr int kSmallest = 8;  ///< log2 of the smallest class
    static constexpr int kClasses = 24;

    static int class_of(size_t bytes) {
        return bytes <= (size_t{1} << kSmallest) ? 0 : static_cast<int>(std::bit_width(bytes - 1)) - kSmallest;
    }
    static size_t bytes_of(int size_class) { return size_t{1} << (size_class + kSmallest); }

    /// Null where the system has no memory.
    std::byte *take(int size_class) {
        auto &list = free_[size_class];
        if (list.empty() && !grow(size_class))
            return nullptr;
        std::byte *buffer = list.back();
        list.pop_back();
        return buffer;
    }
    void give(std::byte *buffer, int size_class) { free_[size_class].push_back(buffer); }

  private:
    struct Free {
        void operator()(void *memory) const { std::free(memory); }
    };

    bool grow(int size_class) {
        constexpr size_t kSlab = 64 << 10;
        size_t bytes = bytes_of(size_class);
        size_t count = bytes >= kSlab ? 1 : kSlab / bytes;
        auto *slab = static_cast<std::byte *>(std::aligned_alloc(64, count * bytes));
        if (slab == nullptr)
            return false;
        slabs_.emplace_back(slab);
        made_[size_class] += count;
        free_[size_class].reserve(made_[size_class]);
        for (size_t i = count; i > 0; --i)
            free_[size_class].push_back(slab + (i - 1) * bytes);
        return true;
    }

    std::vector<std::byte *> free_[kClasses];
    size_t made_[kClasses] = {};
    std::vector<std::unique_ptr<std::byte, Free>> slabs_;
};

/// Doubly linked list of nodes with members `prev` and `next`.
template <typename Node>
class List {
  public:
    [[nodiscard]] bool empty() const { return first_ == nullptr; }
    [[nodiscard]] Node *first() const { return first_; }
    [[nodiscard]] Node *last() const { return last_; }
    void append(Node *node) {
        node->next = nullptr;
        node->prev = last_;
        (last_ != nullptr ? last_->next : first_) = node;
        last_ = node;
    }
    void remove(Node *node) {
        (node->prev != nullptr ? node->prev->next : first_) = node->next;
        (node->next != nullptr ? node->next->prev : last_) = node->prev;
        node->next = node->prev = nullptr;
    }
    Node *take_first() {
        Node *node = first_;
        if (node != nullptr)
            remove(node);
        return node;
    }

  private:
    Node *first_ = nullptr;
    Node *last_ = nullptr;
};

}  // namespace flx::ucx
