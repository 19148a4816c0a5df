#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "apps/flx_report/data/collector.h"
#include "apps/flx_report/options.h"
#include "apps/flx_report/page/charts.h"
#include "apps/flx_report/page/drawing.h"
#include "apps/flx_report/page/page.h"
#include "apps/flx_report/text.h"
#include "tests/apps/report_read.h"

namespace flx::report {
namespace {

size_t count(const std::string &text, const std::string &what) {
    size_t found = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
        ++found;
    return found;
}

TEST(ReportText, LeavesNoMarkup) {
    EXPECT_EQ(html("<a href=\"x\" id='y'>&"), "&lt;a href=&quot;x&quot; id=&#39;y&#39;&gt;&amp;");
    EXPECT_EQ(html("a\nb\tc"), "a b c");
    EXPECT_EQ(html("\x1b[31m\u202eabc\u2066"), "\uFFFD[31m\uFFFDabc\uFFFD") << "controls show";
    EXPECT_EQ(html("gr\u00fcn \U0001f600"), "gr\u00fcn \U0001f600");
    EXPECT_EQ(html("\xff\xc0\xaf\xed\xa0\x80 \xe2\x82"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD \uFFFD\uFFFD");
    EXPECT_EQ(html("123456", 3), "123…");
    EXPECT_EQ(html("<<<<", 2), "&lt;&lt;…");
}

TEST(ReportText, IsJsonThatEndsNoScript) {
    const std::string text = "</script><!-- \" \\ \x01 \u2028";
    const std::string result = json(text);
    EXPECT_EQ(result.find_first_of("<>&"), std::string::npos);
    EXPECT_EQ(nlohmann::json::parse(result), "</script><!-- \" \\ \uFFFD \uFFFD");
}

TEST(ReportText, HasThreeDigits) {
    const auto plain = [](std::string text) {
        for (size_t at = text.find("\u00a0"); at != std::string::npos; at = text.find("\u00a0"))
            text.replace(at, 2, 1, ' ');
        return text;
    };
    EXPECT_EQ(plain(time_text(0)), "0");
    EXPECT_EQ(plain(time_text(0.25)), "250 ns");
    EXPECT_EQ(plain(time_text(9.999)), "10.0 µs");
    EXPECT_EQ(plain(time_text(999.6)), "1.00 ms");
    EXPECT_EQ(plain(time_text(123456)), "123 ms");
    EXPECT_EQ(plain(time_text(7.2e9)), "7200 s");
    EXPECT_EQ(plain(time_text(7.2e10)), "72,000 s");
    EXPECT_EQ(plain(rate_text(1234.5)), "1.23 GB/s");
    EXPECT_EQ(plain(bytes_text(999)), "999 B");
    EXPECT_EQ(plain(bytes_text(1e6)), "1.00 MB");
    EXPECT_EQ(plain(percent_text(0.00001)), "< 0.01 %");
    EXPECT_EQ(plain(percent_text(1.2)), "120 %");
    EXPECT_EQ(plain(size_text(3 << 20)), "3 MiB");
    EXPECT_EQ(count_text(1234567), "1,234,567");
    EXPECT_EQ(counted(1, "call"), "1 call");
    EXPECT_EQ(counted(2000, "call"), "2,000 calls");
}

TEST(ReportDrawing, NamesRanksInOrder) {
    EXPECT_EQ(ranges_text({}), "");
    EXPECT_EQ(ranges_text({0, 1, 2, 3, 8, 10, 11}), "0–3, 8, 10, 11");
}

/// Each tag but those that HTML does not close is closed, in order.
void expect_closed(const std::string &page) {
    static const std::regex tag("<(/?)([a-z][a-z0-9]*)((?:[^>\"]|\"[^\"]*\")*)>");
    std::string body = page;
    for (const char *element : {"style", "script"}) {
        const std::string open = fmt::format("<{}", element);
        const std::string close = fmt::format("</{}>", element);
        for (size_t at = body.find(open); at != std::string::npos; at = body.find(open, at)) {
            const size_t end = body.find(close, at);
            ASSERT_NE(end, std::string::npos);
            body.erase(at, end + close.size() - at);
        }
    }
    std::vector<std::string> open;
    for (auto it = std::sregex_iterator(body.begin(), body.end(), tag); it != std::sregex_iterator(); ++it) {
        const std::string name = (*it)[2];
        const std::string rest = (*it)[3];
        if (name == "meta" || name == "link" || (!rest.empty() && rest.back() == '/'))
            continue;
        if ((*it)[1].length() == 0) {
            open.push_back(name);
            continue;
        }
        ASSERT_FALSE(open.empty()) << name;
        ASSERT_EQ(open.back(), name);
        open.pop_back();
    }
    EXPECT_TRUE(open.empty());
}

const std::string kBad = "</script><script>alert(1)</script>\\\" onload='x' <!--";

/// `@` becomes what is hostile, and `#` a rank.
std::string filled(const std::string &line, int rank) {
    std::string result;
    for (const char c : line) {
        if (c == '@')
            result += kBad;
        else if (c == '#')
            result += std::to_string(rank);
        else
            result += c;
    }
    return result;
}

std::string hostile_trace() {
    std::string text =
        filled(R"({"otherData":{"flx":"@","command":"@","job":"@","began":"@","ranks":9,"hosts":2,"lost_calls":1,)"
               R"("clocks":[{"host":"@","error_us":1}],"links":[{"rank":0,"host":"@","name":"@","rate_MBps":5},)"
               R"({"rank":1,"host":"b","name":"@","rate_MBps":5}]},"traceEvents":[)",
               0);
    const std::vector<std::string> lines = {
        R"j({"ph":"M","name":"process_name","pid":#,"args":{"name":"rank (@, pid 1)"}})j",
        R"j({"ph":"M","name":"thread_name","pid":#,"tid":1,"args":{"name":"MPI @"}})j",
        (R"({"ph":"X","cat":"call","name":"@","pid":#,"tid":1,"ts":1,"dur":900,)"
         R"("args":{"communicator":1,"number":3,"bytes":9,"way":"@","error":"@"}})"),
        R"({"ph":"X","cat":"call","name":"@","pid":#,"tid":1,"ts":2,"dur":9,"args":{"way":"@","unfinished":true}})",
        R"({"ph":"X","cat":"link","name":"@","pid":#,"tid":1,"ts":1,"dur":9,"args":{"link":"@","bytes":50}})",
        R"({"ph":"C","name":"shares","pid":#,"ts":1,"args":{"@":0.5}})",
        R"({"ph":"i","cat":"link","name":"@ carries nothing","pid":#,"ts":1})"};
    for (int rank = 0; rank < 2; ++rank)
        for (const std::string &line : lines) {
            text += rank == 0 && &line == &lines.front() ? "\n" : ",\n";
            text += filled(line, rank);
        }
    text += "\n]}\n";
    return text;
}

TEST(ReportPage, EscapesAll) {
    Bench bench;
    bench.name = bench.machine = bench.mpi = bench.mode = "</script><script>alert(1)</script>\" onload='x' <!--";
    bench.ranks = bench.hosts = 2;
    BenchRow row;
    row.collective = row.algorithm = row.peer = bench.name;
    row.flx_us = row.peer_us = 1;
    bench.rows = {row, row};
    bench.rows[1].bytes = 8;
    const std::string page = page_of(read(hostile_trace()), {bench}, "</title><script>alert(1)</script>.json");
    EXPECT_EQ(page.find("<script>alert"), std::string::npos);
    EXPECT_EQ(page.find("onload='"), std::string::npos);
    EXPECT_EQ(page.find("<!--"), std::string::npos);
    EXPECT_EQ(count(page, "<script"), count(page, "</script>"));
    EXPECT_EQ(count(page, "<script>"), 1U) << "page.js, and no other that runs";
    EXPECT_EQ(page.find("http://"), std::string::npos) << "no other file is needed";
    EXPECT_EQ(page.find("https://"), std::string::npos);
    expect_closed(page);
    // What the script reads is JSON.
    const std::string open = "<script type=\"application/json\">";
    size_t charts = 0;
    for (size_t at = page.find(open); at != std::string::npos; at = page.find(open, at + 1), ++charts) {
        const size_t from = at + open.size();
        EXPECT_TRUE(nlohmann::json::accept(page.substr(from, page.find("</script>", from) - from)));
    }
    EXPECT_GE(charts, 3U);
}

TEST(ReportOptions, AreATraceOrResults) {
    Options options;
    int code = 0;
    const std::array<const char *, 3> results = {"flx_report", "--bench", "some/perf.json"};
    EXPECT_TRUE(parse(3, results.data(), options, code));
    EXPECT_EQ(options.out, "some/perf.html");
    EXPECT_TRUE(options.trace.empty());
    Options none;
    testing::internal::CaptureStderr();
    EXPECT_FALSE(parse(1, results.data(), none, code));
    EXPECT_NE(testing::internal::GetCapturedStderr().find("a trace, or --bench, is required"), std::string::npos);
    EXPECT_NE(code, 0);
}

TEST(ReportPage, IsMadeOfResultsAlone) {
    Bench bench;
    bench.name = "<b>";
    bench.ranks = bench.hosts = 2;
    BenchRow row;
    row.collective = "allreduce";
    row.flx_us = 2;
    row.shares = {{"rail1", 0.75}, {"</td>", 0.25}};
    bench.rows = {row, row};
    bench.rows[1].bytes = 8;
    const std::string page = page_of_results({bench}, "measured by <i>");
    EXPECT_NE(page.find("<h1>allreduce</h1>"), std::string::npos);
    EXPECT_NE(page.find("measured by &lt;i&gt;"), std::string::npos);
    EXPECT_NE(page.find("<h2 id=\"bench-title\">Results</h2>"), std::string::npos);
    EXPECT_NE(page.find("rail1 75"), std::string::npos);
    EXPECT_EQ(page.find("ceiling"), std::string::npos) << "without a trace nothing is known of links";
    EXPECT_EQ(page.find("were wrong"), std::string::npos);
    EXPECT_EQ(page.find("href=\"#calls\""), std::string::npos);
    expect_closed(page);
    bench.rows[0].peer = "mpi";
    bench.rows[0].peer_us = 3;
    bench.rows[1].wrong = 2;
    const std::string beside = page_of_results({bench}, "");
    EXPECT_NE(beside.find(">Beside its peer</h2>"), std::string::npos);
    EXPECT_NE(beside.find("2 elements of results were wrong"), std::string::npos);
    expect_closed(beside);
}

TEST(ReportPage, SaysWhatThereIsNot) {
    const std::string empty = page_of(read("{\"traceEvents\":[\n]}\n"), {}, "t.json");
    EXPECT_NE(empty.find("The trace has no calls."), std::string::npos);
    EXPECT_NE(empty.find("The trace names no host."), std::string::npos);
    EXPECT_EQ(empty.find("id=\"bench\""), std::string::npos);
    EXPECT_EQ(empty.find("nan"), std::string::npos);
    expect_closed(empty);
    const std::string cut = page_of(read("{\"traceEvents\":[\n{\"ph\":\"X\",\"cat\":\"call\",\"name\":\"barrier\","
                                         "\"pid\":0,\"ts\":0,\"dur\":0},\n{"),
                                    {}, "t.json");
    EXPECT_NE(cut.find("The trace has no end"), std::string::npos);
    EXPECT_EQ(cut.find("nan"), std::string::npos);
    EXPECT_EQ(cut.find("inf"), std::string::npos);
    expect_closed(cut);
}

TEST(ReportPage, NamesCommunicatorsOfMpi) {
    const std::string page =
        page_of(read("{\"traceEvents\":[\n"
                     "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":500000000,"
                     "\"args\":{\"name\":\"MPI_COMM_WORLD\"}},\n"
                     "{\"ph\":\"X\",\"cat\":\"call\",\"name\":\"bcast\",\"pid\":0,\"tid\":500000000,\"ts\":1,\"dur\":2,"
                     "\"args\":{\"communicator\":500000000,\"number\":7,\"unfinished\":true}}\n]}\n"),
                {}, "t.json");
    EXPECT_NE(page.find("7 of MPI_COMM_WORLD"), std::string::npos);
    EXPECT_EQ(page.find("500000000"), std::string::npos);
}

TEST(ReportPage, TablesHaveCaptionsAndScopes) {
    const std::string page = page_of(read(hostile_trace()), {}, "t.json");
    EXPECT_EQ(count(page, "<table>"), count(page, "<caption"));
    EXPECT_EQ(count(page, "<th"), count(page, "<th scope=") + count(page, "<thead"));
    EXPECT_EQ(count(page, "<svg"), count(page, "role=\"img\" aria-label=\"") + count(page, "<svg class=\"key\""));
}

TEST(ReportPage, ManyRanksAndLongRunsStaySmall) {
    std::string text = "{\"traceEvents\":[\n";
    for (int i = 0; i < 20000; ++i)
        text += fmt::format(
            "{}{{\"ph\":\"X\",\"cat\":\"link\",\"name\":\"x\",\"pid\":{},\"ts\":{},\"dur\":900,\"args\":{{\"link\":\"r{"
            "}\","
            "\"bytes\":9}}}}",
            i == 0 ? "" : ",\n", i % 500, i * 1000, i % 40);
    const std::string page = page_of(read(text + "\n]}\n"), {}, "t.json");
    EXPECT_LT(page.size(), 1'000'000U);
    const std::regex points("points=\"([^\"]*)\"");
    for (auto it = std::sregex_iterator(page.begin(), page.end(), points); it != std::sregex_iterator(); ++it)
        EXPECT_LE(count((*it)[1], " "), kMostSteps + 2);
}

}  // namespace
}  // namespace flx::report
