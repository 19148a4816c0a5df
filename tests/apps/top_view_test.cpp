#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/flx_top/hosts.h"
#include "apps/flx_top/looks.h"
#include "apps/flx_top/reports.h"
#include "apps/flx_top/view.h"

namespace flx::top {
namespace {

using record::CommunicatorSeen;
using record::Life;
using record::ProcessSeen;

constexpr int64_t kSecond = 1'000'000'000;

ProcessSeen process(int rank, const std::string &job) {
    ProcessSeen process;
    process.id = {100 + rank, 1};
    process.pid = 100 + rank;
    process.life = Life::running;
    process.seen_ns = 100 * kSecond;
    process.world_rank = rank;
    process.world_size = 2;
    process.job = job;
    process.command = "/a/program with \"words\"";
    process.begun = 5000;
    CommunicatorSeen comm;
    comm.id = 1;
    comm.rank = rank;
    comm.size = 2;
    comm.hosts = 1;
    CallRecord record;
    record.collective = algorithms::Collective::barrier;
    comm.last.push_back({5000, 99 * kSecond, rank == 0 ? 0 : 99 * kSecond + 1000, 7, Way::fused, 0, record});
    comm.calls = 7;
    comm.links.push_back({"eth0", 3'000'000, 0.75, true});
    comm.links.push_back({"eth1", 1'000'000, 0.25, true});
    comm.links.push_back({"off", 0, 0, false});
    process.communicators.push_back(comm);
    return process;
}

struct Looks {
    std::vector<ProcessSeen> before{process(1, "7"), process(0, "7")};
    std::vector<ProcessSeen> now = before;

    Looks() {
        for (ProcessSeen &each : before) {
            each.seen_ns -= 2 * kSecond;
            each.begun -= 1000;
            each.communicators[0].links[0].sent -= 3'000'000;
            each.communicators[0].links[1].sent -= 1'000'000;
        }
    }
};

TEST(TopView, HasRatesOfWhatChanged) {
    const Looks looks;
    const View view = view_of(looks.now, looks.before, 0.5);
    ASSERT_EQ(view.jobs.size(), 1U);
    const Job &job = view.jobs[0];
    ASSERT_EQ(job.rows.size(), 2U);
    EXPECT_EQ(job.rows[0].rank, 0);
    EXPECT_EQ(job.rows[0].state, "in FLX");
    EXPECT_EQ(job.rows[1].state, "outside");
    EXPECT_EQ(job.rows[0].calls_per_s, 500);
    EXPECT_EQ(job.rows[0].call, "barrier");
    EXPECT_NEAR(job.rows[0].for_s, 1, 1e-3);
    EXPECT_NEAR(job.rows[1].for_s, 1, 1e-3);
    ASSERT_EQ(job.links.size(), 2U) << "a link that carries nothing is not shown";
    EXPECT_EQ(job.links[0].name, "eth0");
    EXPECT_EQ(job.links[0].bytes_per_s, 3'000'000);
    EXPECT_EQ(job.links[0].share, 0.75);
}

/// The program computes meanwhile.
TEST(TopView, WhatIsUnderWayIsSoSinceItBegan) {
    Looks looks;
    looks.now[1].communicators[0].last.back().what.kind = CallKind::non_blocking;
    const Row row = view_of(looks.now, looks.before, 0.5).jobs.at(0).rows.at(0);
    EXPECT_EQ(row.state, "outside");
    EXPECT_NEAR(row.for_s, 1, 1e-3);
}

TEST(TopView, WhatDiedIsShownWhereNothingLives) {
    Looks looks;
    ProcessSeen dead = process(0, "6");
    dead.id.pid = dead.pid = 50;
    dead.life = Life::dead;
    looks.now.push_back(dead);
    EXPECT_EQ(view_of(looks.now, looks.before, 0.5).jobs.size(), 1U);
    const View left = view_of({dead}, {}, 0.5);
    ASSERT_EQ(left.jobs.size(), 1U);
    EXPECT_EQ(left.jobs[0].rows[0].state, "dead");
    EXPECT_EQ(left.jobs[0].rows[0].calls_per_s, 0);
}

/// What a program that was ended did last stays for a day, which nobody wants to see in a list of what runs.
TEST(TopView, WhatDiedLongAgoIsShownOnRequest) {
    ProcessSeen dead = process(0, "6");
    dead.life = Life::dead;
    EXPECT_EQ(view_of({dead}, {}, 0.5, false).jobs.size(), 1U) << "a second ago";
    dead.seen_ns += 400 * kSecond;
    const View hidden = view_of({dead}, {}, 0.5, false);
    EXPECT_TRUE(hidden.jobs.empty());
    const std::vector<std::string> lines = lines_of(hidden, 120, false);
    EXPECT_TRUE(
        std::ranges::any_of(lines, [](const std::string &line) { return line.find("--explain") != line.npos; }));
    EXPECT_EQ(view_of({dead}, {}, 0.5, true).jobs.size(), 1U);
}

TEST(TopView, LinesFit) {
    const Looks looks;
    const View view = view_of(looks.now, looks.before, 0.1);
    for (const size_t width : {20, 80, 200})
        for (const bool explain : {false, true})
            for (const std::string &line : lines_of(view, width, explain))
                EXPECT_LE(line.size(), width) << line;
    const std::vector<std::string> none = lines_of(view_of({}, {}, 0.5), 80, true);
    ASSERT_EQ(none.size(), 2U);
    EXPECT_EQ(none[1], "Nobody waits for long.");
}

TEST(TopView, SaysWhoHasACall) {
    Looks looks;
    ProcessSeen &first = looks.now[1];
    first.by_mpi = 40;
    first.communicators[0].id = record::kMpiIds;
    first.communicators[0].last.back().carrier = record::Carrier::mpi;
    looks.now[0].communicators[0].last.back().carrier = record::Carrier::stream;
    std::vector<ProcessSeen> elsewhere;
    ASSERT_TRUE(read_line(line_of(looks.now), elsewhere).ok());
    const View view = view_of(elsewhere, {}, 0.5);
    EXPECT_EQ(view.jobs[0].rows[0].state, "in MPI");
    EXPECT_EQ(view.jobs[0].rows[1].state, "outside");
    const std::vector<std::string> lines = lines_of(view, 200, false);
    EXPECT_TRUE(lines[2].ends_with("barrier, served by MPI")) << lines[2];
    EXPECT_TRUE(lines[3].ends_with("barrier, enqueued on a stream")) << lines[3];
    const auto json = nlohmann::json::parse(json_of(view, elsewhere));
    EXPECT_EQ(json["jobs"][0]["ranks"][0]["calls_by_mpi"], 40);
    EXPECT_EQ(json["jobs"][0]["ranks"][0]["way"], "served by MPI");
    const std::string text = prometheus_of(view, elsewhere);
    EXPECT_NE(text.find("flx_passed_calls_total{job=\"7\",rank=\"0\",pid=\"100\"} 40"), std::string::npos) << text;
    EXPECT_NE(text.find("flx_calls_total{job=\"7\",rank=\"0\",pid=\"100\"} 4960"), std::string::npos) << text;
}

TEST(TopView, MachinesReadIt) {
    Looks looks;
    looks.now[0].command += "\xff";  // no UTF-8
    const View view = view_of(looks.now, looks.before, 0.5);
    const auto json = nlohmann::json::parse(json_of(view, looks.now));
    EXPECT_EQ(json.at("jobs").at(0).at("ranks").at(1).at("calls"), 5000);
    EXPECT_EQ(json.at("jobs").at(0).at("links").at(0).at("name"), "eth0");
    const std::string text = prometheus_of(view, looks.now);
    EXPECT_NE(text.find("flx_calls_total{job=\"7\",rank=\"0\",pid=\"100\"} 5000\n"), std::string::npos) << text;
    EXPECT_NE(text.find("flx_link_sent_bytes{job=\"7\",rank=\"1\",pid=\"101\",link=\"eth0\"} 3000000\n"),
              std::string::npos)
        << text;
}

TEST(TopLooks, AreTheSameOnAnotherHost) {
    Looks looks;
    CommunicatorSeen &comm = looks.now[1].communicators[0];
    comm.waits_for = 1;
    comm.broken = true;
    comm.why_broken = "it is";
    comm.last.back().what.bytes = 12345;
    looks.now[0].command = "caf\xe9";  // no UTF-8
    const std::string line = line_of(looks.now);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    std::vector<ProcessSeen> read;
    ASSERT_TRUE(read_line(line, read).ok());
    ASSERT_EQ(read.size(), looks.now.size());
    EXPECT_EQ(line_of(read), line);
    EXPECT_EQ(read[1].communicators[0].waits_for, 1);
    EXPECT_EQ(read[1].communicators[0].last.back().what.bytes, 12345U);
    EXPECT_EQ(read[1].life, Life::running);
    EXPECT_FALSE(read[0].communicators[0].waits_for);
    looks.now[1].communicators[0].last.back().what.dtype = 5000;
    EXPECT_EQ(read_line(line_of(looks.now), read).fault(), Fault::not_read) << "no such type of elements";
    for (const char *wrong : {"", "{}", "[1]", "Permission denied", R"({"version":0,"processes":[]})"})
        EXPECT_EQ(read_line(wrong, read).fault(), Fault::not_read) << wrong;
}

TEST(TopView, ShowsNumbersOfContainersAsSuch) {
    Looks looks;
    for (ProcessSeen &each : looks.now)
        if (each.world_rank == 1) {
            each.pid = 0;
            each.life = Life::hidden;
        }
    const View view = view_of(looks.now, looks.before, 0.5);
    const std::vector<std::string> lines = lines_of(view, 120, false);
    const auto has = [&](const char *part) {
        return std::ranges::any_of(lines,
                                   [&](const std::string &line) { return line.find(part) != std::string::npos; });
    };
    EXPECT_TRUE(has(" 100 "));
    EXPECT_TRUE(has(" (101) "));
    EXPECT_TRUE(has("(numbers of processes in their own containers)"));
    const auto json = nlohmann::json::parse(json_of(view, looks.now));
    EXPECT_TRUE(json["jobs"][0]["ranks"][1]["pid"].is_null());
    EXPECT_EQ(json["jobs"][0]["ranks"][1]["pid_in_container"], 101);
    const std::string text = prometheus_of(view, looks.now);
    EXPECT_NE(text.find("pid=\"101\",pid_namespace=\"1\"} "), std::string::npos) << text;
    EXPECT_NE(text.find("rank=\"0\",pid=\"100\"} "), std::string::npos) << text;
}

TEST(TopView, KnowsProcessesOfTwoHostsThatHaveOneNumber) {
    Looks looks;
    for (std::vector<ProcessSeen> *look : {&looks.before, &looks.now})
        for (ProcessSeen &each : *look) {
            each.id.pid = each.pid = 7;
            each.hostname = each.world_rank == 0 ? "a" : "long";
        }
    looks.now[0].begun += 1000;
    const View view = view_of(looks.now, looks.before, 0.5);
    ASSERT_EQ(view.jobs.size(), 1U);
    EXPECT_EQ(view.jobs[0].rows[0].host, "a");
    EXPECT_EQ(view.jobs[0].rows[0].calls_per_s, 500);
    EXPECT_EQ(view.jobs[0].rows[1].calls_per_s, 1000);
    EXPECT_NE(lines_of(view, 100, false)[3].find(" long "), std::string::npos);
    EXPECT_NE(json_of(view, looks.now).find("\"host\": \"long\""), std::string::npos);
    EXPECT_TRUE(is_host("user@h1.site")) << "as ssh takes it";
    for (const char *wrong : {"", "-o", "a b", "a;b", "$a", "a'b"})
        EXPECT_FALSE(is_host(wrong)) << wrong;
}

}  // namespace
}  // namespace flx::top
