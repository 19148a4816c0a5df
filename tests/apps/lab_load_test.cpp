// Collectives while copies begin and end: how near the shares that follow come to those that stay.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/flx_lab/load.h"

namespace flx::bench::lab {
namespace {

UnderLoad run_of(const std::vector<double> &loaded) {
    UnderLoad size;
    size.bytes = 1 << 30;
    size.bus_bytes = 1e9;
    size.statics = {{0, 2.5e-3, 2.6e-3}, {0.05, 2.2e-3, 3.0e-3}, {0.1, 2.4e-3, 4.0e-3}};
    for (auto &phase : size.phases)
        phase.assign(40, {2.2e-3, 0.05});
    for (size_t i = 0; i < size.phases[1].size(); ++i)
        size.phases[1][i] = {i < loaded.size() ? loaded[i] : 2.6e-3, 0.01};
    return size;
}

TEST(UnderLoad, BestOfThoseThatStay) {
    const UnderLoad size = run_of({});
    EXPECT_DOUBLE_EQ(best_static(size, false).forced, 0.05);
    EXPECT_DOUBLE_EQ(best_static(size, true).forced, 0);
}

TEST(UnderLoad, HowSoonAndHowNear) {
    const UnderLoad slow = run_of({4e-3, 4e-3, 4e-3, 3e-3, 3e-3, 3e-3});
    EXPECT_DOUBLE_EQ(following(slow, 0).ratio, 1);
    EXPECT_EQ(following(slow, 0).after, 0);
    EXPECT_DOUBLE_EQ(following(slow, 1).ratio, 1);
    EXPECT_EQ(following(slow, 1).after, 4) << "of calls 4 to 8 three are close enough";
    const UnderLoad never = run_of(std::vector<double>(40, 2.8e-3));
    EXPECT_NEAR(following(never, 1).ratio, 2.6 / 2.8, 1e-9);
    EXPECT_EQ(following(never, 1).after, -1);
}

TEST(UnderLoad, Reports) {
    const UnderLoad size = run_of({4e-3});
    const std::string text = load_text(size);
    for (const char *expected : {"1 GiB", "5.0%: 454.5 / 333.3", "250 (1.0%)", "0.97 of it from call 0 on", "1.000 of"})
        EXPECT_NE(text.find(expected), std::string::npos) << expected << " in " << text;
    UnderLoadResults results;
    results.sizes.push_back(size);
    const nlohmann::ordered_json json = load_json(Options{}, results);
    ASSERT_EQ(json["results"].size(), 1U);
    EXPECT_EQ(json["results"][0]["static"].size(), 3U);
    EXPECT_EQ(json["results"][0]["phases"][1]["calls"].size(), 40U);
    EXPECT_DOUBLE_EQ(json["results"][0]["phases"][1]["calls"][0]["busbw_GBps"], 250);
}

}  // namespace
}  // namespace flx::bench::lab
