// flx_lab's command line: what it takes, and what it refuses.

#include <gtest/gtest.h>

#include "apps/flx_lab/options.h"

namespace flx::bench::lab {
namespace {

Parsed parse(std::vector<const char *> arguments, int ranks = 4) {
    arguments.insert(arguments.begin(), "flx_lab");
    return parse_options(static_cast<int>(arguments.size()), arguments.data(), ranks);
}

TEST(Options, EachKindOfMeasurement) {
    const Parsed arrivals = parse({"sendrecv", "--arrivals", "2.5", "--seed", "7", "--sizes", "1M,64M"});
    ASSERT_TRUE(arrivals.options) << arrivals.text;
    EXPECT_EQ(arrivals.options->arrivals, 2.5);
    EXPECT_EQ(arrivals.options->seed, 7U);
    EXPECT_EQ(arrivals.options->sizes, std::vector<uint64_t>({1 << 20, 64 << 20}));
    EXPECT_EQ(arrivals.options->iterations, 100) << "messages";
    EXPECT_FALSE(arrivals.options->device());

    const Parsed overlap = parse({"allreduce", "--overlap", "--warmup", "0", "--json", "a"});
    ASSERT_TRUE(overlap.options) << overlap.text;
    EXPECT_TRUE(overlap.options->overlap);
    EXPECT_EQ(overlap.options->iterations, 9) << "rounds";
    EXPECT_EQ(overlap.options->warmup, 0);
    EXPECT_EQ(overlap.options->json_file, "a");
    EXPECT_EQ(parse({"allreduce", "--overlap", "--iterations", "3"}).options->iterations, 3);

    const Parsed product =
        parse({"reduce", "--beside", "product", "--against", "nccl", "--dtype", "bf16", "--root", "3"});
    ASSERT_TRUE(product.options) << product.text;
    EXPECT_TRUE(product.options->beside_product && product.options->against_nccl && product.options->device());
    EXPECT_EQ(product.options->dtype, FLX_BF16);
    EXPECT_EQ(product.options->root, 3);
    EXPECT_EQ(parse({"allgather", "--beside", "copies", "--in-place"}).options->queued_copies, 1);
    EXPECT_EQ(parse({"allgather", "--beside", "queue"}).options->queued_copies, 2);
}

TEST(Options, RefusalsSayWhatIsAllowed) {
    const auto refused = [](std::vector<const char *> arguments, const char *part, int ranks = 4) {
        const Parsed parsed = parse(std::move(arguments), ranks);
        EXPECT_FALSE(parsed.options) << part;
        EXPECT_NE(parsed.exit_code, 0) << part;
        EXPECT_NE(parsed.text.find(part), std::string::npos) << parsed.text;
    };
    refused({}, "collective is required");
    refused({"allreduce"}, "one of --arrivals, --overlap and --beside");
    refused({"sendrecv", "--arrivals", "2", "--overlap"}, "one of --arrivals, --overlap and --beside");
    refused({"allreduce", "--overlap", "--beside", "copies"}, "one of --arrivals, --overlap and --beside");
    refused({"alltoall", "--arrivals", "2"}, "--arrivals is for sendrecv");
    refused({"sendrecv", "--arrivals", "0"}, "--arrivals");
    refused({"sendrecv", "--arrivals", "2"}, "--arrivals needs two ranks", 1);
    refused({"sendrecv", "--overlap"}, "--overlap is for collectives");
    refused({"allreduce", "--overlap", "--against", "mpi"}, "known are none, nccl");
    refused({"allreduce", "--overlap", "--against", "nccl"}, "--against nccl is for --beside product");
    refused({"allreduce", "--overlap", "--check"}, "--check");
    refused({"sendrecv", "--arrivals", "2", "--check"}, "--check");
    refused({"sendrecv", "--seed", "2"}, "--seed");
    refused({"scan", "--beside", "product"}, "--beside is for allreduce");
    refused({"allreduce", "--beside", "queues"}, "known are product, copies, queue");
    refused({"allreduce", "--beside", "product", "--graph"}, "--graph");
    refused({"allgather", "--beside", "copies", "--against", "nccl"}, "--against nccl is for --beside product");
    refused({"allgather", "--beside", "copies", "--unregistered"}, "--unregistered");
    refused({"allgather", "--beside", "copies", "--iterations", "7"}, "--iterations is for --arrivals and --overlap");
    refused({"bcast", "--overlap", "--root", "4"}, "there are 4 ranks");
}

TEST(Options, HelpHasItsOwnAlone) {
    const Parsed parsed = parse({"--help"});
    EXPECT_FALSE(parsed.options);
    EXPECT_EQ(parsed.exit_code, 0);
    for (const char *name : {"--arrivals", "--seed", "--overlap", "--beside", "--sizes", "--json"}) {
        EXPECT_NE(parsed.text.find(name), std::string::npos) << name;
    }
    for (const char *name : {"--check", "--csv", "--log-iterations", "--seconds", "--blocks", "--memcpy", "--graph"}) {
        EXPECT_EQ(parsed.text.find(name), std::string::npos) << name;
    }
}

}  // namespace
}  // namespace flx::bench::lab
