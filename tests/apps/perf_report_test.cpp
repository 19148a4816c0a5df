// What flx_perf writes: the shape of its JSON and CSV, the table's columns, and the list of settings.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/flx_perf/page.h"
#include "apps/flx_perf/report.h"

namespace flx::bench::perf {
namespace {

Results example(bool with_peer, bool with_memcpy = false) {
    Results results;
    results.options.against_mpi = with_peer;
    results.options.beside_memcpy = with_memcpy;
    results.machine.text = "node1: some CPU";
    results.machine.ranks = 4;
    results.machine.hosts = 2;
    results.links = {"shm", "eth0"};
    for (const uint64_t bytes : {uint64_t{8}, uint64_t{1} << 20}) {
        Result result;
        result.bytes = bytes;
        result.algorithm = "ring";
        result.us = {10, 9, 12};
        if (with_peer) {
            const double us = bytes == 8 ? 5 : 20;
            result.peer = PeerResult{{us, us, us}, {us / 10, us / 10, us / 10}, Summary{1, 0.98, 1.03}, {}};
        }
        if (with_memcpy) {
            result.memcpy = Summary{4, 3, 5};
        }
        result.busbw_GBps = 1.5;
        result.wrong = bytes == 8 ? 2 : 0;
        result.partition = {0.75, 0.25};
        result.first_call = {0.5, 0.5};
        result.last_call = {0.875, 0.125};
        results.results.push_back(result);
    }
    return results;
}

std::vector<std::string> lines_of(const std::string &text) {
    std::istringstream stream(text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) {
        lines.push_back(line);
    }
    return lines;
}

size_t commas(const std::string &line) {
    return static_cast<size_t>(std::count(line.begin(), line.end(), ','));
}

TEST(Json, HasWhatIsPromised) {
    const auto json = nlohmann::json::parse(json_of(example(true)));
    EXPECT_EQ(json["machine"], "node1: some CPU");
    EXPECT_EQ(json["ranks"], 4);
    ASSERT_EQ(json["results"].size(), 2U);
    const auto &row = json["results"][1];
    EXPECT_EQ(row["collective"], "allreduce");
    EXPECT_EQ(row["memory"], "host");
    EXPECT_EQ(row["dtype"], "f32");
    EXPECT_EQ(row["op"], "sum");
    EXPECT_EQ(row["bytes"], 1 << 20);
    EXPECT_EQ(row["algorithm"], "ring");
    EXPECT_EQ(row["flx_us"], 10.0);
    EXPECT_EQ(row["peer"], "mpi");
    EXPECT_EQ(row["peer_us"], 20.0);
    EXPECT_EQ(row["ratio"], 2.0);
    EXPECT_EQ(row["busbw_GBps"], 1.5);
    EXPECT_EQ(row["wrong"], 0);
    EXPECT_EQ(row["partition"], nlohmann::json::parse(R"([{"link":"shm","share":0.75},{"link":"eth0","share":0.25}])"));
    EXPECT_EQ(json["results"][0]["wrong"], 2);
}

TEST(Json, WithoutAPeerItsFiguresAreNull) {
    const auto json = nlohmann::json::parse(json_of(example(false)));
    EXPECT_EQ(json["results"][0]["peer"], "none");
    EXPECT_TRUE(json["results"][0]["peer_us"].is_null());
    EXPECT_TRUE(json["results"][0]["ratio"].is_null());
}

TEST(Json, HasTheMemcpyOnlyWhereItWasMeasured) {
    const auto row = nlohmann::json::parse(json_of(example(true, true)))["results"][1];
    EXPECT_EQ(row["memcpy_us"], 4.0);
    EXPECT_EQ(row["times_memcpy"], 2.5);
    EXPECT_FALSE(nlohmann::json::parse(json_of(example(true)))["results"][1].contains("memcpy_us"));
}

TEST(Json, CollectivesWithoutReductionHaveNoOp) {
    Results results = example(false);
    results.options.collective = Collective::kBcast;
    EXPECT_EQ(nlohmann::json::parse(json_of(results))["results"][0]["op"], "none");
    EXPECT_EQ(nlohmann::json::parse(json_of(results))["results"][0]["dtype"], "f32");
    results.options.collective = Collective::kBarrier;
    EXPECT_EQ(nlohmann::json::parse(json_of(results))["results"][0]["dtype"], "none");
}

TEST(Page, HasTheResults) {
    std::string page;
    const Status status = page_of(example(true), page);
    ASSERT_TRUE(status.ok()) << status.sentence();
    EXPECT_EQ(page.find("<!doctype html>"), 0U);
    EXPECT_NE(page.find("<h1>allreduce</h1>"), std::string::npos);
    EXPECT_NE(page.find("node1: some CPU"), std::string::npos);
    EXPECT_NE(page.find("shm 75"), std::string::npos);
    EXPECT_NE(page.find("2 elements of results were wrong"), std::string::npos);
}

TEST(Csv, EveryLineHasTheHeadersColumns) {
    for (const bool with_peer : {true, false}) {
        const std::vector<std::string> lines = lines_of(csv_of(example(with_peer)));
        ASSERT_EQ(lines.size(), 3U);
        EXPECT_EQ(commas(lines[1]), commas(lines[0]));
        EXPECT_EQ(commas(lines[2]), commas(lines[0]));
        EXPECT_NE(lines[0].find("shm_share,eth0_share"), std::string::npos);
    }
}

TEST(Table, ColumnsLineUpWithTheirTitles) {
    for (const int which : {0, 1, 2, 3}) {
        const Results results = example(which % 2 == 0, which / 2 == 0);
        const std::string titles = lines_of(header_text(results.options, results.machine)).back();
        const std::string row = row_text(results.options, results.links, results.results[1]);
        const size_t links = titles.find("links");
        ASSERT_NE(links, std::string::npos);
        EXPECT_EQ(row.substr(links), "shm 75.0%, eth0 25.0%\n");
        EXPECT_EQ(row.substr(titles.find("algorithm"), 4), "ring");
    }
}

TEST(Table, EndSaysHowTheVectorMovedAndTheLeastRatio) {
    const std::string text = footer_text(example(true));
    EXPECT_NE(text.find("1 MiB, first call -> last call"), std::string::npos) << text;
    EXPECT_NE(text.find("shm 0.500 -> 0.875, eth0 0.500 -> 0.125"), std::string::npos) << text;
    EXPECT_NE(text.find("geometric mean 1.00, least 0.50 at 8 B"), std::string::npos) << text;
    EXPECT_NE(text.find("wrong elements: 2"), std::string::npos) << text;
}

TEST(Table, SaysWhyThereIsNoPeer) {
    Results results = example(true);
    results.results[0].peer.reset();
    results.results[0].why_no_peer = "MPI has no average";
    EXPECT_NE(row_text(results.options, results.links, results.results[0]).find("none"), std::string::npos);
    EXPECT_NE(footer_text(results).find("MPI has no average"), std::string::npos);
}

TEST(Log, LinesMatchTheHeader) {
    EXPECT_EQ(log_header({"shm", "eth0"}),
              "iteration,seconds,us,wrong,shm_share,shm_bytes,shm_vector,eth0_share,eth0_bytes,eth0_vector,size\n");
    EXPECT_EQ(log_line(3, {0.5, 12.25, 1, {300, 100}, {0.5, 0.5}}, 64),
              "3,0.500000,12.250,1,0.750000,300,0.500000,0.250000,100,0.500000,64\n");
    EXPECT_EQ(log_line(3, {0.5, 12.25, {}, {0, 0}, {1, 0}}, 64),
              "3,0.500000,12.250,,0.000000,0,1.000000,0.000000,0,0.000000,64\n");
}

TEST(Settings, OnlyWhatAPersonSet) {
    EXPECT_EQ(mpi_settings_of({"PATH=/bin", "UCX_TLS=tcp", "OMPI_MCA_orte_launch=1", "OMPI_MCA_btl=tcp,self",
                               "OMPI_MCA_ess_base_vpid=0", "OMPI_MCA_pmix=^s1", "FLX_LINKS=shm"}),
              std::vector<std::string>({"OMPI_MCA_btl=tcp,self", "UCX_TLS=tcp"}));
}

}  // namespace
}  // namespace flx::bench::perf
