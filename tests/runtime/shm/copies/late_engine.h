/// \file late_engine.h
/// A copy engine that ends copies when it likes, or fails, and pins that say what is pinned.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/shm/memory/copy_engine.h"

namespace flx::testing {

class TestPins : public shm::Pins {
  public:
    ~TestPins() override { drop(); }
    static inline std::atomic<int> all_unpinned{0};  ///< ever
    std::vector<Range> pinned;
    int unpinned = 0;
    bool works = true;

  protected:
    bool pin(const Range &pages) override {
        for (const Range &other : pinned)
            EXPECT_TRUE(pages.end <= other.begin || other.end <= pages.begin);
        if (works)
            pinned.push_back(pages);
        return works;
    }
    void unpin(const Range &pages) override {
        const auto found = std::ranges::find(pinned, pages);
        ASSERT_NE(found, pinned.end());
        pinned.erase(found);
        ++unpinned;
        ++all_unpinned;
    }
};

/// Writes what was begun when it is asked for, or stopped.
class LateEngine : public shm::CopyEngine {
  public:
    /// Of 100 questions, so many are answered by an end; of 1000 copies so many fail.
    LateEngine(unsigned seed, int ends, int fails) : random_(seed), ends_(ends), fails_(fails) {}

    std::unique_ptr<shm::Pins> pin(std::byte *) override { return std::make_unique<TestPins>(); }
    bool begin(std::byte *to, const std::byte *from, size_t bytes) override {
        EXPECT_FALSE(failed_);
        EXPECT_LT(queue_.size(), kSlots);
        EXPECT_LE(bytes, kSlice);
        queue_.push_back({to, from, bytes, std::chrono::steady_clock::now() + least_});
        ++begun_;
        if (at_begin)
            at_begin(begun_);
        return !fail();
    }
    bool ended(size_t &copies) override {
        EXPECT_FALSE(failed_);
        copies = 0;
        if (fail())
            return false;
        while (!queue_.empty() && std::chrono::steady_clock::now() >= queue_.front().ready &&
               static_cast<int>(random_() % 100) < ends_) {
            write();
            ++copies;
        }
        return true;
    }
    void stop() override {
        // One that failed may have written a part, or all.
        while (!queue_.empty()) {
            if (random_() % 2 == 0)
                queue_.front().bytes /= 2;
            write();
        }
        ++stops_;
    }
    [[nodiscard]] const std::string &name() const override { return name_; }

    std::function<void(int begun)> at_begin;
    [[nodiscard]] size_t under_way() const { return queue_.size(); }
    void take_at_least(std::chrono::milliseconds time) { least_ = time; }
    [[nodiscard]] int begun() const { return begun_; }
    [[nodiscard]] int stops() const { return stops_; }
    [[nodiscard]] bool failed() const { return failed_; }

  private:
    struct Job {
        std::byte *to;
        const std::byte *from;
        size_t bytes;
        std::chrono::steady_clock::time_point ready;
    };
    bool fail() {
        failed_ = static_cast<int>(random_() % 1000) < fails_;
        return failed_;
    }
    void write() {
        std::memcpy(queue_.front().to, queue_.front().from, queue_.front().bytes);
        queue_.pop_front();
    }

    std::mt19937 random_;
    int ends_;
    int fails_;
    std::chrono::milliseconds least_{0};
    std::deque<Job> queue_;
    int begun_ = 0;
    int stops_ = 0;
    bool failed_ = false;
    std::string name_ = "engine";
};

}  // namespace flx::testing
