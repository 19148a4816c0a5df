#include "apps/flx_perf/algorithms.h"

#include <fmt/format.h>

#include <algorithm>

namespace flx::bench::perf {
namespace {

struct Range {
    uint64_t least;
    uint64_t most;
};

/// What FLX_ALGORITHM calls it: those with blocks of given lengths run what those with equal ones do.
std::string_view rule_name(Collective collective) {
    switch (collective) {
        case Collective::kAllgatherv:
            return name_of(Collective::kAllgather);
        case Collective::kReduceScatter:
            return name_of(Collective::kReduceScatterBlock);
        default:
            return name_of(collective);
    }
}

/// Whether lengths of messages decide, which only their ends know: a rule for it has no sizes.
bool goes_by_messages(Collective collective) {
    return collective == Collective::kAlltoallv || collective == Collective::kGatherv ||
           collective == Collective::kScatterv;
}

void note(const char *name, double predicted_us, void *arg) {
    static_cast<std::vector<Algorithms::One> *>(arg)->push_back({name, predicted_us, nullptr, false});
}

}  // namespace

flx_status_t Algorithms::open(Collective collective, const std::vector<uint64_t> &sizes, flx_comm_t comm) {
    const std::string asked(flx_name_of(collective));
    std::map<std::string, Range> ranges;
    for (const uint64_t bytes : sizes) {
        std::vector<One> &all = by_size_[bytes];
        all.clear();
        flx_status_t status = flx_comm_algorithms(comm, asked.c_str(), bytes, note, &all);
        const char *chosen = nullptr;
        if (status == FLX_SUCCESS) {
            status = flx_comm_algorithm(comm, asked.c_str(), bytes, FLX_F32, FLX_SUM, &chosen);
        }
        if (status != FLX_SUCCESS) {
            return status;
        }
        for (One &one : all) {
            one.chosen = one.name == chosen;
            Range &range = ranges.try_emplace(one.name, Range{bytes, bytes}).first->second;
            range = {std::min(range.least, bytes), std::max(range.most, bytes)};
        }
    }
    for (auto &[bytes, all] : by_size_) {
        for (One &one : all) {
            one.comm = comm;
            if (all.size() == 1) {
                continue;  // nothing to force
            }
            flx_comm_t &made = made_[one.name];
            if (made == nullptr) {
                const Range &range = ranges.at(one.name);
                std::string rule = fmt::format("{}:{}", rule_name(collective), one.name);
                if (!goes_by_messages(collective)) {
                    rule += fmt::format("@{}-{}", range.least, range.most + 1);
                }
                flx_config_t config = FLX_CONFIG_INIT;
                config.algorithm = rule.c_str();
                const flx_status_t status = flx_comm_create(MPI_COMM_WORLD, &config, &made);
                if (status != FLX_SUCCESS) {
                    return status;
                }
            }
            one.comm = made;
        }
    }
    return FLX_SUCCESS;
}

flx_status_t Algorithms::close() {
    flx_status_t result = FLX_SUCCESS;
    for (auto &[name, comm] : made_) {
        const flx_status_t status = comm != nullptr ? flx_comm_free(&comm) : FLX_SUCCESS;
        result = result == FLX_SUCCESS ? status : result;
    }
    made_.clear();
    by_size_.clear();
    return result;
}

}  // namespace flx::bench::perf
