// flx_perf's command line: sizes, refusals, and what shapes and bus bandwidth follow from it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "apps/bench/sizes.h"
#include "apps/flx_perf/options.h"

namespace flx::bench::perf {
namespace {

std::vector<uint64_t> sizes(std::string_view text) {
    std::string problem;
    std::vector<uint64_t> parsed = parse_sizes(text, problem);
    EXPECT_EQ(problem, "") << text;
    return parsed;
}

Parsed parse(std::vector<const char *> arguments, int ranks = 4) {
    arguments.insert(arguments.begin(), "flx_perf");
    return parse_options(static_cast<int>(arguments.size()), arguments.data(), ranks);
}

using List = std::vector<uint64_t>;

TEST(Sizes, Lists) {
    EXPECT_EQ(sizes("8"), List({8}));
    EXPECT_EQ(sizes("8,1K,64M"), List({8, 1024, uint64_t{64} << 20}));
    EXPECT_EQ(sizes("0,3B,2k,2KiB,1G,1T"), List({0, 3, 2048, 2048, uint64_t{1} << 30, uint64_t{1} << 40}));
}

TEST(Sizes, Ranges) {
    EXPECT_EQ(sizes("8:64"), List({8, 16, 32, 64}));
    EXPECT_EQ(sizes("8:100:4"), List({8, 32}));
    EXPECT_EQ(sizes("1K:1K"), List({1024}));
    EXPECT_EQ(sizes("4,1K:4K:2,9"), List({4, 1024, 2048, 4096, 9}));
    EXPECT_EQ(sizes("8:64M").size(), 24U);
    EXPECT_EQ(sizes("1:18446744073709551615").size(), 64U) << "ends without overflow";
}

TEST(Sizes, WhatIsNone) {
    for (const char *text : {"", "x", "8x", "-8", "1.5K", "8,,9", "8,", "1KB1", "8 ", "99999999999999999999",
                             "18446744073709551615K", "0:8", "8:4", "8:64:1", "8:64:2:2", ":", "8:", "K", "8iB"}) {
        std::string problem;
        EXPECT_TRUE(parse_sizes(text, problem).empty()) << text;
        EXPECT_NE(problem, "") << text;
    }
}

TEST(Sizes, Texts) {
    EXPECT_EQ(size_text(0), "0 B");
    EXPECT_EQ(size_text(1000), "1000 B");
    EXPECT_EQ(size_text(1024), "1 KiB");
    EXPECT_EQ(size_text(1536), "1536 B");
    EXPECT_EQ(size_text(uint64_t{64} << 20), "64 MiB");
    EXPECT_EQ(size_text(uint64_t{2048} << 30), "2048 GiB");
}

TEST(Options, DefaultsAndEveryOption) {
    const Parsed plain = parse({"allreduce"});
    ASSERT_TRUE(plain.options);
    EXPECT_EQ(plain.options->collective, Collective::kAllreduce);
    EXPECT_EQ(plain.options->sizes.front(), 8U);
    EXPECT_EQ(plain.options->sizes.back(), uint64_t{64} << 20);
    EXPECT_EQ(plain.options->dtype, FLX_F32);
    EXPECT_EQ(plain.options->op, FLX_SUM);
    EXPECT_FALSE(plain.options->against_mpi);
    EXPECT_EQ(plain.options->blocks, 0) << "chosen later";

    const Parsed full = parse({"reduce",
                               "--sizes",
                               "8,1K",
                               "--iterations",
                               "70",
                               "--warmup",
                               "0",
                               "--dtype",
                               "bf16",
                               "--op",
                               "max",
                               "--against",
                               "mpi",
                               "--check",
                               "--check-peer",
                               "--in-place",
                               "--root",
                               "3",
                               "--blocks",
                               "9",
                               "--compute",
                               "1.5",
                               "--json",
                               "a",
                               "--csv",
                               "b",
                               "--log-iterations",
                               "c"});
    ASSERT_TRUE(full.options) << full.text;
    EXPECT_EQ(full.options->collective, Collective::kReduce);
    EXPECT_EQ(full.options->sizes, List({8, 1024}));
    EXPECT_EQ(full.options->iterations, 70);
    EXPECT_EQ(full.options->warmup, 0);
    EXPECT_EQ(full.options->dtype, FLX_BF16);
    EXPECT_EQ(full.options->op, FLX_MAX);
    EXPECT_EQ(full.options->root, 3);
    EXPECT_EQ(full.options->blocks, 9);
    EXPECT_EQ(full.options->compute_ms, 1.5);
    EXPECT_TRUE(full.options->against_mpi && full.options->check_every && full.options->check_peer);
    EXPECT_TRUE(full.options->in_place);
    EXPECT_EQ(full.options->json_file + full.options->csv_file + full.options->log_file, "abc");
    EXPECT_EQ(parse({"allreduce", "--seconds", "2.5"}).options->seconds, 2.5);
    EXPECT_EQ(parse({"barrier"}).options->sizes, List({0}));
}

TEST(Options, EveryNameIsKnown) {
    for (const char *name :
         {"allreduce", "reduce_scatter_block", "allgather", "bcast", "reduce", "barrier", "alltoall", "alltoallv",
          "sendrecv", "gather", "scatter", "scan", "exscan", "reduce_scatter", "allgatherv", "gatherv", "scatterv"}) {
        const Parsed parsed = parse({name});
        ASSERT_TRUE(parsed.options) << name;
        EXPECT_EQ(name_of(parsed.options->collective), name);
    }
    for (const char *name :
         {"i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64"}) {
        const Parsed parsed = parse({"bcast", "--dtype", name});
        ASSERT_TRUE(parsed.options) << name;
        EXPECT_EQ(name_of(parsed.options->dtype), name);
    }
    for (const char *name : {"sum", "prod", "min", "max", "avg"}) {
        EXPECT_EQ(name_of(parse({"allreduce", "--op", name}).options->op), name);
    }
}

TEST(Options, RefusalsSayWhatIsAllowed) {
    const auto refused = [](std::vector<const char *> arguments, const char *part) {
        const Parsed parsed = parse(std::move(arguments));
        EXPECT_FALSE(parsed.options) << part;
        EXPECT_NE(parsed.exit_code, 0) << part;
        EXPECT_NE(parsed.text.find(part), std::string::npos) << parsed.text;
    };
    refused({}, "collective is required");
    refused({"alltoal"}, "known are allreduce, reduce_scatter_block, allgather, bcast, reduce, barrier");
    refused({"scan", "--op", "avg"}, "avg is not a reduction of scan");
    refused({"alltoallv", "--pattern", "zipf"}, "known are uniform, one-pair, zipf:S");
    refused({"alltoallv", "--pattern", "zipf:x"}, "known are uniform, one-pair, zipf:S");
    refused({"alltoall", "--pattern", "one-pair"}, "--pattern is for alltoallv");
    refused({"sendrecv", "--in-place"}, "--in-place is not for sendrecv");
    refused({"allreduce", "--dtype", "f8"}, "known are i8, u8");
    refused({"reduce", "--dtype", "f8e5m2", "--op", "prod"}, "prod does not go with f8e5m2; sum, min, max and avg do");
    refused({"allreduce", "--op", "xor"}, "known are sum, prod, min, max, avg");
    refused({"allreduce", "--against", "gloo"}, "known are none, mpi, nccl");
    refused({"allreduce", "--against", "nccl"}, "on device memory FLX is compared with nccl");
    refused({"allreduce", "--sizes", "12Q"}, "'12Q'");
    refused({"bcast", "--root", "4"}, "there are 4 ranks");
    refused({"bcast", "--root", "-1"}, "--root");
    refused({"allreduce", "--blocks", "6"}, "--blocks");
    refused({"allreduce", "--iterations", "0"}, "--iterations");
    refused({"allreduce", "--iterations", "many"}, "--iterations");
    refused({"allreduce", "--iterations", "7", "--seconds", "1"}, "excludes");
    refused({"allreduce", "--max-seconds", "0"}, "--max-seconds");
    refused({"allreduce", "--check-peer"}, "--against mpi");
    refused({"allreduce", "--compute", "1", "--seconds", "1"}, "excludes");
    refused({"allreduce", "--compute", "-1"}, "--compute");
    refused({"allreduce", "--memory", "device", "--compute", "1"}, "host memory");
    refused({"allreduce", "--unheard-of"}, "--unheard-of");
    refused({"allreduce", "bcast"}, "bcast");
}

TEST(Options, ThoseOfTheLaboratoryAreRefusedByItsName) {
    const auto refused = [](std::vector<const char *> arguments, const char *name) {
        const Parsed parsed = parse(std::move(arguments));
        EXPECT_FALSE(parsed.options) << name;
        EXPECT_EQ(parsed.exit_code, 2) << name;
        EXPECT_NE(parsed.text.find(std::string(name) + " is an option of flx_lab"), std::string::npos) << parsed.text;
    };
    refused({"sendrecv", "--arrivals", "2"}, "--arrivals");
    refused({"sendrecv", "--seed=2"}, "--seed");
    refused({"allreduce", "--overlap", "--check"}, "--overlap");
    refused({"allreduce", "--memory", "device", "--beside", "copies"}, "--beside");
    refused({"--beside=product"}, "--beside");
    const Parsed help = parse({"--help", "--overlap"});
    EXPECT_EQ(help.exit_code, 0);
    for (const char *name : {"--arrivals", "--seed", "--overlap", "--beside"}) {
        EXPECT_EQ(help.text.find(name), std::string::npos) << name;
    }
    EXPECT_EQ(parse({"allreduce", "--json", "--overlap"}).options->json_file, "--overlap") << "a name of a file";
}

TEST(Options, HelpIsNoError) {
    const Parsed parsed = parse({"--help"});
    EXPECT_FALSE(parsed.options);
    EXPECT_EQ(parsed.exit_code, 0);
    EXPECT_NE(parsed.text.find("--log-iterations"), std::string::npos);
}

TEST(Shapes, SizesAreThoseOfNcclTests) {
    const Shape all = shape_for(Collective::kAllreduce, 1024, FLX_F32, 4);
    EXPECT_EQ(all.count, 256U);
    EXPECT_EQ(all.send_elements, 256U);
    EXPECT_EQ(all.recv_elements, 256U);
    EXPECT_EQ(all.bytes, 1024U);
    const Shape gather = shape_for(Collective::kAllgather, 1024, FLX_F32, 4);
    EXPECT_EQ(gather.count, 64U);
    EXPECT_EQ(gather.send_elements, 64U);
    EXPECT_EQ(gather.recv_elements, 256U);
    EXPECT_EQ(gather.bytes, 1024U);
    const Shape scatter = shape_for(Collective::kReduceScatterBlock, 1030, FLX_F32, 3);
    EXPECT_EQ(scatter.count, 85U);
    EXPECT_EQ(scatter.send_elements, 255U);
    EXPECT_EQ(scatter.recv_elements, 85U);
    EXPECT_EQ(scatter.bytes, 1020U);
    EXPECT_EQ(shape_for(Collective::kAllgather, 8, FLX_F32, 4).bytes, 16U) << "one element a block at least";
    EXPECT_EQ(shape_for(Collective::kBcast, 0, FLX_F32, 4).bytes, 0U);
    EXPECT_EQ(shape_for(Collective::kBarrier, 64, FLX_F32, 4).bytes, 0U);
}

TEST(Shapes, BusFactorsAreThoseOfNcclTests) {
    EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllreduce, 4), 1.5);
    EXPECT_DOUBLE_EQ(bus_factor(Collective::kReduceScatterBlock, 4), 0.75);
    EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllgather, 4), 0.75);
    EXPECT_DOUBLE_EQ(bus_factor(Collective::kBcast, 4), 1.0);
    EXPECT_DOUBLE_EQ(bus_factor(Collective::kReduce, 4), 1.0);
    EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllreduce, 1), 0.0);
}

TEST(Exchanges, SizesAndMatrices) {
    const Shape all = shape_for(Collective::kAlltoall, 1030, FLX_F32, 4);
    EXPECT_EQ(all.count, 64U);
    EXPECT_EQ(all.bytes, 1024U);
    EXPECT_EQ(all.matrix, std::vector<size_t>(16, 64));
    EXPECT_DOUBLE_EQ(bus_factor(Collective::kAlltoall, 4), 0.75);

    const Shape ring = shape_for(Collective::kSendrecv, 40, FLX_F32, 3);
    EXPECT_EQ(ring.matrix, (std::vector<size_t>{0, 10, 0, 0, 0, 10, 10, 0, 0}));
    EXPECT_DOUBLE_EQ(bus_factor(Collective::kSendrecv, 3), 1.0);

    const Traffic pair = *parse_traffic("one-pair");
    const Shape one = shape_for(Collective::kAlltoallv, 40, FLX_F32, 4, pair);
    EXPECT_EQ(one.matrix[2], 10U);
    EXPECT_EQ(one.send_elements, 10U);
    EXPECT_EQ(one.bytes, 40U);
    EXPECT_DOUBLE_EQ(bus_factor(Collective::kAlltoallv, 4, pair), 1.0);
}

TEST(Exchanges, ZipfGivesPairsTheirPartAndNothingToOneself) {
    constexpr int kRanks = 8;
    constexpr size_t kElements = 1 << 20;
    std::vector<size_t> matrix = traffic_matrix(*parse_traffic("zipf:1.2"), kElements, kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
        EXPECT_EQ(matrix[rank * kRanks + rank], 0U);
        const Counts counts(matrix, rank, kRanks);
        EXPECT_EQ(counts.send[(rank + 1) % kRanks], matrix[rank * kRanks + (rank + 1) % kRanks]);
        EXPECT_EQ(counts.receive[(rank + 1) % kRanks], matrix[(rank + 1) % kRanks * kRanks + rank]);
    }
    std::sort(matrix.begin(), matrix.end(), std::greater<>());
    EXPECT_NEAR(static_cast<double>(matrix[0]) / static_cast<double>(matrix[1]), std::pow(2, 1.2), 1e-3);
    EXPECT_NEAR(static_cast<double>(matrix[0]) / static_cast<double>(matrix[9]), std::pow(10, 1.2), 1e-2);
    const size_t sum = std::accumulate(matrix.begin(), matrix.end(), size_t{0});
    EXPECT_NEAR(static_cast<double>(sum), static_cast<double>(kElements * kRanks), 100);
}

}  // namespace
}  // namespace flx::bench::perf
