#include "runtime/plan/call_log.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace flx {
namespace {

using algorithms::Collective;

CallRecord record(uint32_t signature, uint64_t bytes = 8) {
    CallRecord call;
    call.signature = signature;
    call.bytes = bytes;
    call.collective = Collective::allreduce;
    call.dtype = FLX_F32;
    return call;
}

CallAnswer answer_of(const CallLog &log, uint64_t asked, size_t &calls, const BlockedIn &blocked = {}) {
    std::vector<std::byte> bytes(sizeof(CallAnswer));
    const size_t length = write_answer(log, blocked, asked, bytes);
    CallAnswer answer;
    const auto read = read_answer({reinterpret_cast<const char *>(bytes.data()), length}, answer);
    EXPECT_TRUE(read.has_value());
    calls = read.value_or(0);
    return answer;
}

TEST(CallLog, KeepsTheLastCalls) {
    CallLog log;
    EXPECT_EQ(log.count(), 0U);
    EXPECT_FALSE(log.read(0));
    EXPECT_FALSE(log.read(1));
    for (uint32_t i = 1; i <= 300; ++i)
        log.note(record(i));
    EXPECT_EQ(log.count(), 300U);
    EXPECT_FALSE(log.read(301 - CallLog::kKept)) << "the next call's slot";
    EXPECT_FALSE(log.read(301));
    for (uint64_t number = 302 - CallLog::kKept; number <= 300; ++number) {
        const auto call = log.read(number);
        ASSERT_TRUE(call);
        EXPECT_EQ(call->signature, number);
        EXPECT_EQ(call->done, 0);
    }
    log.note_done(299);
    EXPECT_EQ(log.read(299)->done, 1);
    EXPECT_EQ(log.read(299)->signature, 299U);
    log.note_done(1);  // it is not kept any more
    EXPECT_EQ(log.read(1 + 2 * CallLog::kKept)->done, 0);
}

TEST(CallLog, KeepsRunsOfEqualCalls) {
    CallLog log;
    for (uint32_t i = 1; i <= 100'000; ++i)
        log.note(record(i <= 50'000 ? 1 : 2));
    log.note(record(3));
    std::set<uint32_t> histories;
    for (uint64_t number = 1; number <= 100'001; ++number) {
        const auto call = log.read(number);
        ASSERT_TRUE(call);
        ASSERT_EQ(call->signature, number <= 50'000 ? 1U : number <= 100'000 ? 2U : 3U);
        ASSERT_EQ(call->number, number);
        histories.insert(call->history);
    }
    EXPECT_GT(histories.size(), 99'900U) << "how often it was called is part of what came before";
    EXPECT_EQ(log.before(), log.read(100'000)->history);
    log.note(record(3));
    EXPECT_EQ(log.before(), log.read(100'001)->history);
    // One call more of the same is another history.
    CallLog other;
    for (uint32_t i = 1; i <= 50'001; ++i)
        other.note(record(1));
    other.note(record(2));
    EXPECT_NE(other.before(), log.read(50'000)->history);
    EXPECT_NE(other.read(50'002)->history, log.read(50'002)->history);
}

TEST(CallLog, CallsAfterOtherCallsDiffer) {
    CallLog a, b;
    a.note(record(1));
    b.note(record(2));
    a.note(record(3));
    b.note(record(3));
    EXPECT_NE(a.before(), b.before());
    EXPECT_NE(a.read(2)->history, b.read(2)->history);
    EXPECT_EQ(a.read(2)->signature, b.read(2)->signature);
}

TEST(CallLog, SaysWhatContradicts) {
    CallLog own, same, other;
    for (uint32_t i = 1; i <= 20; ++i) {
        own.note(record(i));
        same.note(record(i));
        other.note(record(i == 15 ? 1000 : i, i == 15 ? 4096 : 8));
    }
    size_t calls = 0;
    EXPECT_FALSE(contradiction(own, answer_of(same, 20, calls), calls));
    EXPECT_EQ(calls, CallAnswer::kRecords);
    EXPECT_FALSE(contradiction(own, answer_of(other, 14, calls), calls));
    auto answer = answer_of(other, 15, calls);
    auto found = contradiction(own, answer, calls);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->number, 15U);
    EXPECT_EQ(found->theirs.bytes, 4096U);
    EXPECT_FALSE(found->earlier);
    // Ahead or behind: the first that differs.
    answer = answer_of(other, 20, calls);
    found = contradiction(own, answer, calls);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->number, 15U);
    answer = answer_of(other, 1000, calls);
    EXPECT_EQ(answer.count, 20U);
    ASSERT_TRUE(contradiction(own, answer, calls));
    // One that only begins is late.
    CallLog none;
    answer = answer_of(none, 20, calls);
    EXPECT_EQ(calls, 0U);
    EXPECT_FALSE(contradiction(own, answer, calls));
    // Long ago.
    for (uint32_t i = 21; i <= 60; ++i) {
        own.note(record(i));
        other.note(record(i));
    }
    answer = answer_of(other, 60, calls);
    found = contradiction(own, answer, calls);
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->earlier);
}

TEST(CallLog, AnswersThatAreNone) {
    CallAnswer answer;
    EXPECT_FALSE(read_answer("", answer));
    EXPECT_FALSE(read_answer(std::string(7, 'x'), answer));
    EXPECT_FALSE(read_answer(std::string(sizeof(CallAnswer) + sizeof(CallRecord), 'x'), answer));
    EXPECT_TRUE(read_answer(std::string(offsetof(CallAnswer, calls), '\0'), answer));
}

TEST(CallLog, Sentences) {
    CallRecord call = record(1, size_t{32} << 20);
    EXPECT_EQ(to_string(call), "allreduce of 32 MiB (f32, sum)");
    call.kind = CallKind::non_blocking;
    call.op = CallRecord::kCustom;
    call.bytes = 1000;
    EXPECT_EQ(to_string(call), "non-blocking allreduce of 1000 B (f32, custom)");
    call.kind = CallKind::grouped;
    call.collective = Collective::alltoallv;
    EXPECT_EQ(to_string(call), "alltoallv in a group");
    call.kind = CallKind::blocking;
    call.collective = Collective::bcast;
    call.root = 3;
    EXPECT_EQ(to_string(call), "bcast of 1000 B (f32) from rank 3");
    call.collective = Collective::gatherv;
    EXPECT_EQ(to_string(call), "gatherv to rank 3");
    call.collective = Collective::barrier;
    EXPECT_EQ(to_string(call), "barrier");
    call.kind = CallKind::freed;
    EXPECT_EQ(to_string(call), "flx_comm_free");
}

TEST(CallLog, WhoNeedsWhom) {
    CallRecord call = record(1);
    EXPECT_TRUE(needs(call, 0, 1));
    call.bytes = 0;
    EXPECT_FALSE(needs(call, 0, 1));
    call = record(1);
    call.root = 2;
    call.collective = Collective::bcast;
    EXPECT_TRUE(needs(call, 0, 2));
    EXPECT_FALSE(needs(call, 0, 1));
    EXPECT_FALSE(needs(call, 2, 0));
    call.collective = Collective::reduce;
    EXPECT_TRUE(needs(call, 2, 0));
    EXPECT_FALSE(needs(call, 0, 2));
    call.collective = Collective::scan;
    EXPECT_TRUE(needs(call, 1, 0));
    EXPECT_FALSE(needs(call, 0, 1));
    call.collective = Collective::alltoallv;
    EXPECT_FALSE(needs(call, 0, 1));
}

/// For ThreadSanitizer too: what is read is one call's, or nothing.
TEST(CallLog, IsReadWhileItIsWritten) {
    CallLog log;
    std::atomic<bool> ends{false};
    std::atomic<int> wrong{0};
    std::thread reader([&] {
        while (!ends) {
            const uint64_t number = log.count();
            for (const uint64_t each : {number, number > CallLog::kKept ? number - CallLog::kKept + 1 : number})
                if (const auto call = log.read(each); call && (call->signature != each || call->bytes != each))
                    ++wrong;
        }
    });
    for (uint32_t i = 1; i <= 200'000; ++i) {
        log.note(record(i, i));
        if (i % 8 == 0)
            log.note_done(i - 4);
    }
    ends = true;
    reader.join();
    EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace flx
