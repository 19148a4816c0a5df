/// \file thread_bootstrap.h
/// A Bootstrap whose ranks are threads of one process, for tests under ThreadSanitizer.
#pragma once

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/link/bootstrap.h"

namespace flx::testing {

/// What the ranks of one group share.
class ThreadGroup {
  public:
    explicit ThreadGroup(int size) : size_(size), parts_(size), children_(size) {}

    [[nodiscard]] int size() const { return size_; }

    void barrier() {
        std::unique_lock lock(mutex_);
        const unsigned turn = turn_;
        if (++arrived_ == size_) {
            arrived_ = 0;
            ++turn_;
            all_.notify_all();
            return;
        }
        all_.wait(lock, [&] { return turn_ != turn; });
    }

    void allgather(int rank, const void *mine, size_t bytes, void *all) {
        parts_[rank] = mine;
        barrier();
        for (int from = 0; from < size_; ++from)
            std::memcpy(static_cast<std::byte *>(all) + from * bytes, parts_[from], bytes);
        barrier();
    }

    /// `members`: ranks of this group, in the order of the new one. Each of them calls it; the first makes the group.
    std::shared_ptr<ThreadGroup> child(int rank, const std::vector<int> &members) {
        if (!members.empty() && members.front() == rank) {
            auto made = std::make_shared<ThreadGroup>(static_cast<int>(members.size()));
            for (const int member : members)
                children_[member] = made;
        }
        barrier();
        std::shared_ptr<ThreadGroup> result = std::move(children_[rank]);
        barrier();
        return result;
    }

  private:
    const int size_;
    std::mutex mutex_;
    std::condition_variable all_;
    int arrived_ = 0;
    unsigned turn_ = 0;
    std::vector<const void *> parts_;
    std::vector<std::shared_ptr<ThreadGroup>> children_;
};

class ThreadBootstrap final : public Bootstrap {
  public:
    ThreadBootstrap(std::shared_ptr<ThreadGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return group_->size(); }
    Status allgather(const void *mine, size_t bytes, void *all) override {
        group_->allgather(rank_, mine, bytes, all);
        return {};
    }
    Status barrier() override {
        group_->barrier();
        return {};
    }
    void progress() override { sched_yield(); }
    Status split(int color, int key, std::unique_ptr<Bootstrap> &result) override {
        struct Wish {
            int color, key;
        };
        const Wish mine{color, key};
        std::vector<Wish> all(size());
        FLX_TRY(allgather(&mine, sizeof mine, all.data()));
        std::vector<int> members;
        for (int rank = 0; rank < size(); ++rank)
            if (all[rank].color == color && color >= 0)
                members.push_back(rank);
        std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return all[a].key < all[b].key; });
        const auto group = group_->child(rank_, members);
        const auto place = std::find(members.begin(), members.end(), rank_) - members.begin();
        result = group ? std::make_unique<ThreadBootstrap>(group, static_cast<int>(place)) : nullptr;
        return {};
    }
    Status dup(std::unique_ptr<Bootstrap> &result) override { return split(0, rank_, result); }

  private:
    std::shared_ptr<ThreadGroup> group_;
    int rank_;
};

}  // namespace flx::testing
