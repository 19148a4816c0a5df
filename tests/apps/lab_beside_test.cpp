// Collectives beside matrix products: figures from times, and the reports.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/flx_lab/beside.h"

namespace flx::bench::lab {
namespace {

TEST(Beside, PiecesWithinATime) {
    const std::vector<double> marks{1, 2, 4, 8};
    EXPECT_DOUBLE_EQ(pieces_between(marks, 0, 10), 3);
    EXPECT_DOUBLE_EQ(pieces_between(marks, 1, 8), 3);
    EXPECT_DOUBLE_EQ(pieces_between(marks, 1.5, 5), 0.5 + 1 + 0.25);
    EXPECT_DOUBLE_EQ(pieces_between(marks, 2.5, 3), 0.25);
    EXPECT_DOUBLE_EQ(pieces_between(marks, 9, 10), 0);
    EXPECT_DOUBLE_EQ(pieces_between(marks, 5, 3), 0);
    EXPECT_DOUBLE_EQ(pieces_between({}, 0, 1), 0);
    EXPECT_DOUBLE_EQ(pieces_between({1, 1, 2}, 0, 3), 1) << "a piece of no length";
}

Beside size_of(double alone, double beside, double product_alone, double product_beside) {
    Beside size;
    size.bytes = 1 << 20;
    size.product = {product_alone, product_alone, product_alone};
    size.sides.push_back({Side::spare, "engines", {alone, alone, alone}, {beside, beside, beside}, {}, 7});
    size.sides.back().product = {product_beside, product_beside, product_beside};
    return size;
}

TEST(Beside, BothIsTheSumOfSpeeds) {
    const Beside free = size_of(1e-3, 1e-3, 2e-3, 2e-3);
    EXPECT_DOUBLE_EQ(both(free, free.sides[0]), 2);
    const Beside in_turn = size_of(1e-3, 2e-3, 2e-3, 4e-3);
    EXPECT_DOUBLE_EQ(both(in_turn, in_turn.sides[0]), 1);
    const Beside none = size_of(1e-3, 0, 2e-3, 0);
    EXPECT_DOUBLE_EQ(both(none, none.sides[0]), 0) << "nothing ran together";
}

TEST(Beside, Reports) {
    Options options;
    options.collective = Collective::kAllgather;
    BesideResults results;
    results.machine.ranks = 2;
    results.machine.mpi = "NCCL 2.28.9, NVLS off";
    results.product_side = 8192;
    results.product_flops = 1e12;
    results.sizes.push_back(size_of(1e-3, 1.5e-3, 2e-3, 2.5e-3));
    const std::string header = beside_header(options, results);
    EXPECT_NE(header.find("allgather"), std::string::npos);
    EXPECT_NE(header.find("8192x8192"), std::string::npos);
    EXPECT_NE(header.find("NVLS off"), std::string::npos);
    const std::string rows = beside_rows(results.sizes[0]);
    for (const char *expected :
         {"1 MiB", "FLX, spare", "engines", "1000.0", "1500.0", "50%", "2000.0", "2500.0", "25.0%", "1.47", "7"})
        EXPECT_NE(rows.find(expected), std::string::npos) << expected << " in " << rows;
    const nlohmann::ordered_json json = beside_json(options, results);
    ASSERT_EQ(json["results"].size(), 1U);
    EXPECT_EQ(json["results"][0]["side"], "FLX, spare");
    EXPECT_DOUBLE_EQ(json["results"][0]["product_tflops"], 500);
    EXPECT_EQ(json["results"][0]["wrong"], 7);
}

}  // namespace
}  // namespace flx::bench::lab
