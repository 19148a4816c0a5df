#include "apps/bench/command_line.h"

#include <fmt/format.h>

#include "apps/bench/sizes.h"

namespace flx::bench {

CommandLine::CommandLine(const std::string &program, const std::string &what, CallOptions &call)
    : program_(program), line_(program, what), call_(call) {
    constexpr int kMostRanks = 1 << 24;
    constexpr int kMostCalls = 1'000'000'000;
    line_.help_from_column(30);
    line_.option("collective", collective_, known_collectives()).required();
    line_.option("--sizes", sizes_, "bytes: a list 8,1K,64M, or ranges FROM:TO[:FACTOR]").shows_default();
    line_.option("--dtype", dtype_, known_dtypes()).shows_default();
    line_.option("--op", op_, known_ops() + "; only where the collective reduces").shows_default();
    line_.option("--root", call.root, "of bcast, reduce, gather, gatherv, scatter and scatterv")
        .shows_default()
        .in_range(0, kMostRanks);
    line_
        .option("--pattern", pattern_,
                "of alltoallv: uniform, one-pair (rank 0 to the one half way round) or zipf:S (the k-th pair's part "
                "is as 1/k^S); the size is what a rank sends on average, of one-pair what the one sends")
        .shows_default();
    line_.flag("--in-place", call.in_place, "input and output share memory");
    line_.option("--warmup", call.warmup, "calls of each side before timing").shows_default().in_range(0, kMostCalls);
    line_.option("--json", call.json_file, "write the results as JSON");
}

bool CommandLine::parse(int argc, const char *const *argv, int ranks) {
    if (!line_.parse(argc, argv)) {
        if (line_.problem().empty()) {
            text_ = line_.text();
        } else {
            refuse(line_.problem());
        }
        return false;
    }
    const std::string problem = read(ranks);
    if (!problem.empty()) {
        refuse(problem);
    }
    return problem.empty();
}

void CommandLine::refuse(const std::string &why) {
    text_ = fmt::format("{0}: {1}\n{0} --help lists the options.\n", program_, why);
    exit_code_ = 2;
}

/// Fills `call_` from the texts. An empty text, or what is wrong with them.
std::string CommandLine::read(int ranks) {
    const auto kind = parse_collective(collective_);
    if (!kind) {
        return fmt::format("unknown collective '{}'; known are {}", collective_, known_collectives());
    }
    const auto type = parse_dtype(dtype_);
    if (!type) {
        return fmt::format("unknown type '{}'; known are {}", dtype_, known_dtypes());
    }
    const auto reduction = parse_op(op_);
    if (!reduction) {
        return fmt::format("unknown reduction '{}'; known are {}", op_, known_ops());
    }
    const auto traffic = parse_traffic(pattern_);
    if (!traffic) {
        return fmt::format("unknown --pattern '{}'; known are uniform, one-pair, zipf:S", pattern_);
    }
    if (has_reduction(*kind) && is_float8(*type) && *reduction == FLX_PROD) {
        return fmt::format("prod does not go with {}; sum, min, max and avg do", dtype_);
    }
    if (is_scan(*kind) && *reduction == FLX_AVG) {
        return fmt::format("avg is not a reduction of {}", collective_);
    }
    if (call_.root >= ranks) {
        return fmt::format("--root {} is not a rank; there are {} ranks", call_.root, ranks);
    }
    if (traffic->kind != Traffic::Kind::kUniform && *kind != Collective::kAlltoallv) {
        return "--pattern is for alltoallv";
    }
    if (call_.in_place && (*kind == Collective::kAlltoallv || *kind == Collective::kSendrecv)) {
        return fmt::format("--in-place is not for {}", collective_);
    }
    std::string problem;
    call_.sizes = parse_sizes(sizes_, problem);
    if (*kind == Collective::kBarrier && problem.empty()) {
        call_.sizes = {0};
    }
    call_.collective = *kind;
    call_.dtype = *type;
    call_.op = *reduction;
    call_.traffic = *traffic;
    return problem;
}

}  // namespace flx::bench
