#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "apps/flx_report/data/bench.h"
#include "apps/flx_report/data/collector.h"
#include "apps/flx_report/data/durations.h"
#include "apps/flx_report/data/series.h"
#include "apps/traces/reader.h"
#include "tests/apps/report_read.h"

namespace flx::report {
namespace {

using Lines = std::vector<std::string>;

constexpr const char *kBegin =
    R"({"displayTimeUnit":"ns","otherData":{"flx":"0.4.0","command":"a","ranks":2,"calls":3},"traceEvents":[)";

std::string trace_of(const Lines &events, const std::string &begin = kBegin) {
    std::string text = begin + "\n";
    for (size_t i = 0; i < events.size(); ++i)
        text += events[i] + (i + 1 == events.size() ? "\n" : ",\n");
    return text + "]}\n";
}

std::string member(int pid, int id, int rank, int size, const std::string &uid) {
    return fmt::format(
        R"({{"ph":"M","name":"communicator","pid":{},"tid":{},"args":{{"communicator":{},"rank":{},"size":{},)"
        R"("hosts":1,"first_uid":"{}"}}}})",
        pid, id, id, rank, size, uid);
}

std::string call(int pid, int communicator, int number, double at, double took, const std::string &more = {},
                 const std::string &name = "allreduce") {
    return fmt::format(
        R"({{"ph":"X","cat":"call","name":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{"communicator":{},)"
        R"("number":{},"bytes":1000,"way":"fused","error":""{}}}}})",
        name, pid, communicator, at, took, communicator, number, more);
}

std::string problem_of(const std::string &text) {
    std::istringstream stream(text);
    std::string problem;
    EXPECT_FALSE(summarise(stream, "t.json", problem).has_value()) << text;
    return problem;
}

TEST(ReportCalls, AreMatchedOverRanks) {
    // Rank 1 comes 30 us late, and they need 10 us from then on; in the other call rank 0 is late.
    const Summary summary = read(trace_of({member(0, 1, 0, 2, "a"), member(1, 1, 1, 2, "a"), call(0, 1, 1, 100, 38),
                                           call(1, 1, 1, 130, 10), call(1, 1, 2, 200, 9), call(0, 1, 2, 205, 3)}));
    ASSERT_EQ(summary.classes.size(), 1U);
    const CallClass &of = summary.classes[0];
    EXPECT_EQ(of.calls, 4U);
    EXPECT_EQ(of.bytes, 4000);
    EXPECT_EQ(summary.matched, 2U);
    EXPECT_DOUBLE_EQ(of.spread.most(), 30);
    EXPECT_DOUBLE_EQ(of.spread.quantile(0), 5);
    EXPECT_DOUBLE_EQ(of.after.most(), 10);
    EXPECT_DOUBLE_EQ(of.after.quantile(0), 4);
    ASSERT_EQ(summary.ranks.size(), 2U);
    EXPECT_DOUBLE_EQ(summary.ranks[0].early_us, 30);
    EXPECT_DOUBLE_EQ(summary.ranks[0].in_calls_us, 41);
    EXPECT_DOUBLE_EQ(summary.ranks[0].kept_waiting_us, 5);
    EXPECT_EQ(summary.ranks[1].last, 1U);
    EXPECT_DOUBLE_EQ(summary.ranks[1].kept_waiting_us, 30);
    EXPECT_DOUBLE_EQ(summary.pairs.at({0, 1}).early_us, 30);
    EXPECT_DOUBLE_EQ(summary.pairs.at({1, 0}).early_us, 5);
    EXPECT_DOUBLE_EQ(summary.run_us(), 109);
    ASSERT_EQ(summary.slowest.size(), 2U);
    EXPECT_DOUBLE_EQ(summary.slowest[0].took_us, 38);
    EXPECT_EQ(summary.slowest[0].last_rank, 1);
}

TEST(ReportCalls, ARankThatNeedNotWaitIsNotEarlyForLonger) {
    // The root of a bcast is gone before the other one comes.
    const Summary summary = read(
        trace_of({member(0, 1, 0, 2, "a"), member(1, 1, 1, 2, "a"), call(0, 1, 1, 100, 5), call(1, 1, 1, 500, 5)}));
    EXPECT_DOUBLE_EQ(summary.ranks[0].early_us, 5);
    EXPECT_DOUBLE_EQ(summary.classes[0].spread.most(), 400);
}

TEST(ReportCalls, CommunicatorsOfOneNumberAreToldApart) {
    // Two pairs of ranks have split off, and both call theirs 2; what is said of them stands behind the calls.
    Lines lines;
    for (int rank = 0; rank < 4; ++rank)
        lines.push_back(call(rank, 2, 7, 100 + 10 * rank, 50));
    for (int rank = 0; rank < 4; ++rank)
        lines.push_back(member(rank, 2, rank % 2, 2, rank < 2 ? "a" : "b"));
    const Summary summary = read(trace_of(lines));
    EXPECT_EQ(summary.matched, 2U);
    EXPECT_DOUBLE_EQ(summary.classes[0].spread.most(), 10);
    EXPECT_EQ(summary.pairs.count({0, 3}), 0U);
    EXPECT_EQ(summary.pairs.count({2, 3}), 1U);
}

TEST(ReportCalls, WithoutWordOfTheCommunicatorThoseOfOneNumberMatch) {
    const Summary summary = read(trace_of({call(0, 1, 1, 0, 9), call(2, 1, 1, 4, 5), call(5, 1, 1, 1, 8)}));
    EXPECT_EQ(summary.matched, 1U);
    EXPECT_DOUBLE_EQ(summary.classes[0].spread.most(), 4);
    EXPECT_EQ(summary.pairs.count({0, 2}), 1U);
}

TEST(ReportCalls, MissingRanksAreCounted) {
    const Summary summary =
        read(trace_of({member(0, 1, 0, 3, "a"), member(1, 1, 1, 3, "a"), call(0, 1, 1, 0, 9), call(1, 1, 1, 4, 5)}));
    EXPECT_EQ(summary.matched, 0U);
    EXPECT_EQ(summary.unmatched, 1U);
    EXPECT_EQ(summary.slowest.size(), 2U);
}

TEST(ReportCalls, MessagesAreNotMatched) {
    const Summary summary = read(trace_of({member(0, 1, 0, 2, "a"), member(1, 1, 1, 2, "a"),
                                           call(0, 1, 0, 0, 9, "", "send"), call(1, 1, 0, 4, 5, "", "send")}));
    EXPECT_EQ(summary.matched + summary.unmatched, 0U);
    EXPECT_EQ(summary.slowest.size(), 2U);
    EXPECT_EQ(summary.slowest[0].rank, 0);
}

TEST(ReportCalls, ThoseThatDoNotBlockTakeFromIssueToCompletion) {
    const std::string begin =
        R"({"ph":"b","cat":"nonblocking","id":"0x1","name":"allreduce","pid":0,"tid":1,"ts":10,"args":{"number":1}})";
    const std::string end = R"({"ph":"e","cat":"nonblocking","id":"0x1","name":"allreduce","pid":0,"tid":1,"ts":25})";
    const std::string open =
        R"({"ph":"b","cat":"nonblocking","id":"0x2","name":"allreduce","pid":0,"tid":1,"ts":30,"args":{"number":2}})";
    const Summary summary = read(trace_of({begin, end, open, call(0, 1, 3, 40, 60)}));
    ASSERT_EQ(summary.classes.size(), 2U);
    EXPECT_TRUE(summary.classes[0].non_blocking);
    EXPECT_EQ(summary.classes[0].calls, 2U);
    EXPECT_DOUBLE_EQ(summary.classes[0].took.quantile(0), 15);
    EXPECT_DOUBLE_EQ(summary.classes[0].took.most(), 70) << "to the end of the trace";
    EXPECT_EQ(summary.unfinished_count, 1U);
    EXPECT_DOUBLE_EQ(summary.ranks[0].in_calls_us, 60);
}

TEST(ReportCalls, ErrorsAndThoseWithoutAnEndAreNoted) {
    const Summary summary = read(trace_of({call(0, 1, 0, 0, 9, R"(,"unfinished":true)"),
                                           R"({"ph":"X","cat":"call","name":"recv","pid":0,"tid":1,"ts":3,"dur":1,)"
                                           R"("args":{"error":"peer died","deep":{"er":[1,{"bytes":5}]}}})"}));
    EXPECT_EQ(summary.unfinished_count, 1U);
    ASSERT_EQ(summary.failed.size(), 1U);
    EXPECT_EQ(summary.failed[0].error, "peer died");
    EXPECT_EQ(summary.classes[1].size, -1) << "bytes of something else";
}

TEST(ReportCalls, OfTooManyAtOnceEachSecondOneStays) {
    std::vector<uint64_t> taken;
    Meetings meetings(100, [&](const Meeting &meeting) { taken.push_back(meeting.number); });
    for (int rank = 0; rank < 2; ++rank)
        for (uint64_t number = 1; number <= 1000; ++number)
            meetings.add(0, number, 2, 0, 0, {rank, static_cast<double>(number), 0});
    EXPECT_GE(meetings.stride(), 8U);
    EXPECT_LE(meetings.stride(), 16U);
    EXPECT_EQ(taken.size(), 1000 / meetings.stride());
    for (const uint64_t number : taken)
        EXPECT_EQ(number % meetings.stride(), 0U);
}

/// They have numbers of their own on a communicator.
TEST(ReportCalls, OnGpuMemoryMeetEachOther) {
    const auto on_gpus = [](int pid, int number, double at, double took) {
        return fmt::format(R"({{"ph":"X","cat":"gpu","name":"bcast","pid":{},"tid":1,"ts":{},"dur":{},"args":)"
                           R"({{"communicator":1,"gpu_call":{},"bytes":1000,"way":"enqueued on a stream"}}}})",
                           pid, at, took, number);
    };
    const Summary summary = read(trace_of({member(0, 1, 0, 2, "a"), member(1, 1, 1, 2, "a"), on_gpus(0, 1, 100, 2),
                                           call(0, 1, 1, 110, 20), call(1, 1, 1, 125, 10), on_gpus(1, 1, 140, 2)}));
    ASSERT_EQ(summary.classes.size(), 2U);
    EXPECT_EQ(summary.classes[0].name, "bcast");
    EXPECT_EQ(summary.classes[0].calls, 2U);
    EXPECT_DOUBLE_EQ(summary.classes[0].spread.most(), 40);
    EXPECT_DOUBLE_EQ(summary.classes[1].spread.most(), 15);
    EXPECT_EQ(summary.matched, 2U);
    EXPECT_EQ(summary.unmatched, 0U);
    EXPECT_EQ(summary.communicators, 1U);
    EXPECT_EQ(summary.ranks[0].calls, 2U);
}

TEST(ReportWaits, NameRanksOfTheProgram) {
    // Ranks 0 and 1 of communicator 2 are 4 and 6 of the program.
    const Summary summary = read(trace_of(
        {member(4, 2, 0, 2, "a"), member(6, 2, 1, 2, "a"),
         R"({"ph":"X","cat":"wait","name":"waits for rank 1","pid":4,"tid":2,"ts":5,"dur":7,"args":{"peer":1}})"}));
    EXPECT_DOUBLE_EQ(summary.pairs.at({4, 6}).waited_us, 7);
    EXPECT_DOUBLE_EQ(summary.ranks[0].waited_us, 7);
}

TEST(ReportLinks, DeliverWhatTheirRanksSentTogether) {
    const std::string begin =
        R"({"otherData":{"hosts":2,"links":[{"rank":0,"host":"n1","name":"rail0","rate_MBps":900,"latency_us":3},)"
        R"({"rank":1,"host":"n1","name":"rail0","rate_MBps":1000,"latency_us":2}]},"traceEvents":[)";
    const auto carried = [](int pid, double at, double bytes) {
        return fmt::format(R"({{"ph":"X","cat":"link","name":"x","pid":{},"tid":1001,"ts":{},"dur":4000,)"
                           R"("args":{{"link":"rail0","bytes":{},"MBps":1}}}})",
                           pid, at, bytes);
    };
    const Summary summary =
        read(trace_of({carried(0, 0, 1e6), carried(1, 0, 2e6), carried(0, 16000, 1e6),
                       R"({"ph":"C","name":"shares","pid":0,"ts":1,"args":{"rail0":0.75}})",
                       R"({"ph":"C","name":"shares of communicator 1","pid":1,"ts":2,"args":{"rail0":0.25,"bad":"x"}})",
                       R"({"ph":"i","s":"p","cat":"link","name":"a carries b carries nothing","pid":0,"ts":9})",
                       R"({"ph":"i","s":"p","cat":"link","name":"rail0 carries again","pid":0,"ts":8})"},
                      begin));
    const HostLink &link = summary.links.at({"n1", "rail0"});
    EXPECT_EQ(link.bytes, 4e6);
    EXPECT_EQ(link.rate_MBps, 1000);
    EXPECT_EQ(link.latency_us, 2);
    EXPECT_NEAR(link.highest_MBps, 750, 40) << "3 MB in 4 ms";
    EXPECT_EQ(summary.shares.size(), 1U);
    EXPECT_DOUBLE_EQ(summary.shares.at("rail0").mean(), 0.5);
    ASSERT_EQ(summary.link_events.size(), 2U);
    EXPECT_EQ(summary.link_events[0].kind, LinkEvent::Kind::returned);
    EXPECT_EQ(summary.link_events[1].link, "a carries b");
    EXPECT_EQ(summary.link_events[1].kind, LinkEvent::Kind::lost);
}

TEST(ReportTrace, MayBeEmptyOrOfOneRankAndNoLinks) {
    const Summary nothing = read(trace_of({}));
    EXPECT_EQ(nothing.ranks.size() + nothing.classes.size() + nothing.links.size(), 0U);
    EXPECT_EQ(nothing.header.command, "a");
    EXPECT_EQ(nothing.run_us(), 0);
    EXPECT_FALSE(nothing.truncated);
    EXPECT_EQ(read("{\"traceEvents\":[]}").events, 0U);
    const Summary one = read(trace_of({member(0, 1, 0, 1, "a"), call(0, 1, 1, 0, 5)}));
    EXPECT_EQ(one.matched + one.unmatched, 0U);
    EXPECT_EQ(one.slowest.size(), 1U);
    EXPECT_TRUE(one.pairs.empty());
}

TEST(ReportTrace, BeginsWithWhatIsKnownOfTheRun) {
    const std::string begin = R"({"otherData":{"job":"7","began_since_1970_s":1795667400.25,"notes":["one","two",3],)"
                              R"("clocks":[{"host":"a","error_us":1.5},{"host":"b","error_us":null}]},"traceEvents":[)";
    const traces::Header header = read(trace_of({}, begin)).header;
    EXPECT_EQ(header.job, "7");
    EXPECT_EQ(header.began, "2026-11-26T04:30:00Z");
    EXPECT_EQ(header.notes, (std::vector<std::string>{"one", "two"}));
    ASSERT_EQ(header.clocks.size(), 2U);
    EXPECT_EQ(header.clocks[0].error_us, 1.5);
    EXPECT_LT(header.clocks[1].error_us, 0);
}

TEST(ReportTrace, NamesRanksAndHosts) {
    const Summary summary = read(
        trace_of({R"j({"ph":"M","name":"process_name","pid":3,"args":{"name":"rank 3 (n1 (left), pid 4242)"}})j"}));
    ASSERT_EQ(summary.ranks.size(), 1U);
    EXPECT_EQ(summary.ranks[0].host, "n1 (left)");
    EXPECT_EQ(summary.ranks[0].pid, 4242);
}

TEST(ReportTrace, WithoutItsEndIsReadUpToTheLastWholeLine) {
    const std::string whole = trace_of({call(0, 1, 1, 0, 5), call(0, 1, 2, 10, 5)});
    const size_t second = whole.find("\n", whole.find("\"number\":1")) + 1;
    for (size_t length = second; length < whole.size(); ++length) {
        const Summary summary = read(whole.substr(0, length));
        const uint64_t calls = summary.classes.empty() ? 0 : summary.classes[0].calls;
        const size_t end = whole.rfind("}}") + 2;
        EXPECT_EQ(calls, length < end ? 1U : 2U) << length;
        EXPECT_EQ(summary.truncated, whole.substr(0, length).find("]}") == std::string::npos) << length;
    }
}

TEST(ReportTrace, WhatIsWrongHasFileAndLine) {
    const auto has = [](const std::string &problem, const std::string &begin) {
        EXPECT_EQ(problem.substr(0, begin.size()), begin) << problem;
    };
    const std::string one = call(0, 1, 1, 0, 5);
    has(problem_of(""), "t.json:1: the file is empty");
    has(problem_of("{\"otherData\":{\"fl"), "t.json:1: this is no trace");
    has(problem_of("hello\nworld\n"), "t.json:2: this is no trace");
    has(problem_of("{\"otherData\":{,\"traceEvents\":[\n]}\n"), "t.json:1: what stands before the events is no JSON");
    has(problem_of("{\"traceEvents\":[" + one + "\n]}\n"), "t.json:1: the events do not begin on the next line");
    has(problem_of(trace_of({one, "{\"ph\":\"X\",", one})), "t.json:3: this is no event: column");
    has(problem_of(trace_of({one, "[]", one})), "t.json:3: this is no event: it is a list");
    has(problem_of(trace_of({one, "{}", one})), "t.json:3: this event has no \"ph\"");
    has(problem_of(trace_of({one, R"({"ph":"X","ts":"soon"})", one})), "t.json:3: this is no event: its \"ts\"");
    has(problem_of(trace_of({one, R"({"ph":"X","ts":1e300})", one})), "t.json:3: this is no event: its \"ts\"");
    has(problem_of(trace_of({one, R"({"ph":"X","dur":-1})", one})), "t.json:3: this is no event: its \"dur\"");
    has(problem_of(trace_of({one, call(-1, 1, 1, 0, 5), one})), "t.json:3: its \"pid\" is no rank");
    has(problem_of(trace_of({one, "{\"ph\":\"X\",\"name\":\"\xff\"}"})), "t.json:3: this is no event");
    has(problem_of(trace_of({one + "\n" + one})), "t.json:3: a comma is missing");
    has(problem_of(trace_of({one + ","})), "t.json:3: a comma stands before");
    has(problem_of(trace_of({one}) + "more\n"), "t.json:4: this is no end of a trace");
}

TEST(ReportTrace, MoreRanksThanThereCanBeAreRefused) {
    Lines lines;
    for (size_t rank = 0; rank <= Collector::kMostRanks; ++rank)
        lines.push_back(fmt::format(R"({{"ph":"C","name":"shares","pid":{},"ts":1}})", rank));
    EXPECT_NE(problem_of(trace_of(lines)).find("more than 65536 ranks"), std::string::npos);
}

TEST(ReportTrace, NamesWithoutEndTakeBoundedMemory) {
    Lines lines;
    for (int i = 0; i < 3000; ++i)
        lines.push_back(call(0, 1, 0, i, 1, "", fmt::format("call{}", i)));
    const Summary summary = read(trace_of(lines));
    EXPECT_LE(summary.classes.size(), Names::kMost + 1);
    uint64_t calls = 0;
    for (const CallClass &of : summary.classes)
        calls += of.calls;
    EXPECT_EQ(calls, 3000U);
}

TEST(ReportDurations, HaveExactQuantilesOfFew) {
    Durations durations;
    for (int i = 1; i <= 200; ++i)
        durations.add(i);
    EXPECT_EQ(durations.median(), 100);
    EXPECT_EQ(durations.quantile(0.99), 198);
    EXPECT_EQ(durations.quantile(1), 200);
    EXPECT_EQ(Durations().quantile(0.99), 0);
}

TEST(ReportDurations, AreOnePercentOffOfMany) {
    std::mt19937 random(3);
    std::lognormal_distribution<double> some(3, 2);
    Durations durations;
    std::vector<double> all;
    for (int i = 0; i < 50000; ++i) {
        all.push_back(some(random));
        durations.add(all.back());
    }
    std::sort(all.begin(), all.end());
    for (const double part : {0.01, 0.5, 0.99, 0.999}) {
        const double right = all[static_cast<size_t>(part * 50000) - 1];
        EXPECT_NEAR(durations.quantile(part), right, 0.0115 * right) << part;
    }
    EXPECT_EQ(durations.most(), all.back());
}

TEST(ReportSeries, KeepAmountsAndSteps) {
    Series series(64);
    double all = 0;
    for (int i = 0; i < 1000; ++i) {
        series.add(-5000 + i * 37.5, i % 3 == 0 ? 0 : 210, i);
        all += i;
    }
    double sum = 0;
    for (const double amount : series.resampled(-6000, 40000, 500))
        sum += amount;
    EXPECT_NEAR(sum, all, 1e-6 * all);
    EXPECT_LE((5000 + 37500 + 210) / series.step_us(), 64);
}

TEST(ReportSeries, SpreadOverTime) {
    Series series;
    series.add(0, 100, 50);
    const std::vector<double> parts = series.resampled(0, 200, 4);
    EXPECT_NEAR(parts[0], 25, 1e-9);
    EXPECT_NEAR(parts[1], 25, 1);
    EXPECT_NEAR(parts[2], 0, 1);
    EXPECT_NEAR(series.highest_per_us(), 0.5, 1e-9);
    EXPECT_EQ(series.resampled(5, 5, 3), std::vector<double>(3, 0));
}

TEST(ReportSizes, AreInClassesOfFour) {
    EXPECT_EQ(size_class(0), 0);
    EXPECT_EQ(size_class(64), 1);
    EXPECT_EQ(size_class(65), 2);
    EXPECT_EQ(size_class_text(size_class(65536)), "≤\u00a064\u00a0KiB");
    EXPECT_EQ(size_class_text(size_class(65537)), "≤\u00a0256\u00a0KiB");
    EXPECT_EQ(size_class_text(-1), "–");
}

TEST(ReportBench, IsWhatFlxPerfWrites) {
    std::istringstream stream(R"({"machine":"m","ranks":4,"hosts":2,"mpi":"Open MPI","mode":"in turn","results":[
        {"collective":"allreduce","bytes":1024,"flx_us":10,"peer":"mpi","peer_us":15,"busbw_GBps":0.3},
        {"collective":"allreduce","bytes":1024,"flx_us":9,"chosen":false},
        {"collective":"bcast","bytes":8,"flx_us":4,"peer":"none","peer_us":null}]})");
    std::string problem;
    const auto bench = read_bench(stream, "b.json", problem);
    ASSERT_TRUE(bench) << problem;
    ASSERT_EQ(bench->rows.size(), 2U);
    EXPECT_DOUBLE_EQ(bench->rows[0].ratio(), 1.5);
    EXPECT_DOUBLE_EQ(bench->rows[0].peer_busbw(), 0.2);
    Summary summary;
    EXPECT_EQ(ceiling_busbw(summary, *bench, "allreduce"), 0);
    for (const char *host : {"n1", "n2"})
        for (const char *name : {"shm", "rail0", "rail1"})
            summary.links[{host, name}].rate_MBps = 1000;
    EXPECT_DOUBLE_EQ(ceiling_busbw(summary, *bench, "allreduce"), 3) << "3/4 counts, of which 1/2 crosses";
    EXPECT_DOUBLE_EQ(ceiling_busbw(summary, *bench, "bcast"), 2);
    EXPECT_DOUBLE_EQ(ceiling_busbw(summary, *bench, "alltoall"), 1.5) << "two ranks of a host send half of theirs away";
    EXPECT_EQ(ceiling_busbw(summary, *bench, "scan"), 0);
    summary.links.at({"n2", "rail0"}).rate_MBps = 500;
    EXPECT_DOUBLE_EQ(ceiling_busbw(summary, *bench, "bcast"), 1.5);
}

TEST(ReportBench, WhatIsWrongHasFileAndLine) {
    std::string problem;
    std::istringstream broken("{\n\"results\": [\n}\n");
    EXPECT_FALSE(read_bench(broken, "b.json", problem));
    EXPECT_EQ(problem, "b.json:3: this is no JSON");
    std::istringstream large(R"({"results":[{"flx_us":1e999}]})");
    EXPECT_FALSE(read_bench(large, "b.json", problem));
    EXPECT_EQ(problem, "b.json: a number in it is too large");
    for (const char *text : {"[]", "{}", "{\"results\":[]}", "{\"results\":[{\"flx_us\":\"x\"}]}", "{\"results\":3}"}) {
        std::istringstream other(text);
        EXPECT_FALSE(read_bench(other, "b.json", problem));
        EXPECT_EQ(problem, "b.json:1: these are no results of flx_perf --json") << text;
    }
}

}  // namespace
}  // namespace flx::report
