// How calls and waits of a rank become stacks.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "apps/flx_trace/timeline.h"

namespace flx::trace {
namespace {

/// `0+a 5-a`: span a is entered at 0 and left at 5.
std::string text_of(const std::vector<Turn> &turns) {
    std::string text;
    for (const Turn &turn : turns)
        text += fmt::format("{}{}{}{}", text.empty() ? "" : " ", turn.at_ns, turn.leaves ? '-' : '+',
                            static_cast<char>('a' + turn.index));
    return text;
}

TEST(Timeline, OneCallAfterTheOther) {
    const auto stacks = stacks_of({{5, 9, 1, false, 1}, {0, 5, 1, false, 0}, {9, 9, 1, false, 2}});
    ASSERT_EQ(stacks.size(), 1U);
    EXPECT_EQ(text_of(stacks[0]), "0+a 5-a 5+b 9-b 9+c 9-c");
}

TEST(Timeline, NoCallIsAnEmptyStack) {
    const auto stacks = stacks_of({});
    ASSERT_EQ(stacks.size(), 1U);
    EXPECT_TRUE(stacks[0].empty());
}

TEST(Timeline, AWaitIsWithinItsCall) {
    const auto stacks = stacks_of({{0, 20, 1, false, 0}, {5, 23, 1, true, 1}, {22, 30, 1, false, 2}});
    ASSERT_EQ(stacks.size(), 1U);
    EXPECT_EQ(text_of(stacks[0]), "0+a 5+b 20-b 20-a 22+c 30-c");
}

TEST(Timeline, AWaitOutsideOfCallsEndsWhenACallBegins) {
    const auto stacks = stacks_of({{0, 10, 1, true, 0}, {8, 20, 1, false, 1}});
    ASSERT_EQ(stacks.size(), 1U);
    EXPECT_EQ(text_of(stacks[0]), "0+a 8-a 8+b 20-b");
}

TEST(Timeline, AGroupHasItsCallsInIt) {
    const auto stacks = stacks_of({{0, 10, 1, false, 0}, {0, 20, 1, false, 1}, {12, 20, 1, false, 2}});
    ASSERT_EQ(stacks.size(), 1U);
    EXPECT_EQ(text_of(stacks[0]), "0+b 0+a 10-a 12+c 20-c 20-b");
}

TEST(Timeline, ThreadsAreStacksOfTheirOwn) {
    const auto stacks =
        stacks_of({{0, 10, 1, false, 0}, {5, 15, 2, false, 1}, {7, 9, 2, true, 2}, {12, 18, 1, false, 3}});
    ASSERT_EQ(stacks.size(), 2U);
    EXPECT_EQ(text_of(stacks[0]), "0+a 10-a 12+d 18-d");
    EXPECT_EQ(text_of(stacks[1]), "5+b 7+c 9-c 15-b");
}

TEST(Timeline, WhateverThereIsTimesDoNotFallAndAllIsLeft) {
    std::mt19937 random(7);
    for (int round = 0; round < 200; ++round) {
        std::vector<Span> spans;
        for (size_t i = 0; i < 60; ++i) {
            const auto begin = static_cast<int64_t>(random() % 100);
            spans.push_back({begin, begin + static_cast<int64_t>(random() % 20), static_cast<int64_t>(random() % 3),
                             random() % 3 == 0, i});
        }
        std::vector<int> seen(spans.size());
        for (const std::vector<Turn> &turns : stacks_of(spans)) {
            std::vector<size_t> open;
            int64_t last = 0;
            for (const Turn &turn : turns) {
                ASSERT_GE(turn.at_ns, last);
                last = turn.at_ns;
                ++seen[turn.index];
                if (!turn.leaves) {
                    open.push_back(turn.index);
                    continue;
                }
                ASSERT_FALSE(open.empty());
                ASSERT_EQ(open.back(), turn.index);
                open.pop_back();
                ASSERT_LE(turn.at_ns, spans[turn.index].end_ns);
                if (!spans[turn.index].is_part) {
                    ASSERT_EQ(turn.at_ns, spans[turn.index].end_ns) << "a call is as long as it was";
                }
            }
            ASSERT_TRUE(open.empty());
        }
        for (const int times : seen)
            ASSERT_EQ(times, 2);
    }
}

}  // namespace
}  // namespace flx::trace
