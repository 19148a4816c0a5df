#include "apps/flx_trainer/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

namespace flx::trainer {
namespace {

const char *name_of(Backend backend) {
    return backend == Backend::flx ? "FLX" : "MPI_Allreduce";
}

bool equal_hashes(const Run &run) {
    return std::all_of(run.hashes.begin(), run.hashes.end(), [&](std::uint64_t h) { return h == run.hashes[0]; });
}

// The largest difference over what both have; NaN where one holds a NaN.
double largest_difference(const std::vector<double> &a, const std::vector<double> &b) {
    double largest = 0.0;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
        const double difference = std::abs(a[i] - b[i]);
        largest = difference <= largest ? largest : difference;
        if (std::isnan(difference)) {
            return difference;
        }
    }
    return largest;
}

// "rank 1 has 0x…, ranks 0, 2, 3 have 0x…"
std::string describe_hashes(const Run &run) {
    std::map<std::uint64_t, std::vector<std::size_t>> groups;
    for (std::size_t rank = 0; rank < run.hashes.size(); ++rank) {
        groups[run.hashes[rank]].push_back(rank);
    }
    std::vector<std::string> parts;
    for (const auto &[hash, ranks] : groups) {
        parts.push_back(ranks.size() == 1 ? fmt::format("rank {} has {:#018x}", ranks[0], hash)
                                          : fmt::format("ranks {} have {:#018x}", fmt::join(ranks, ", "), hash));
    }
    return fmt::format("{}", fmt::join(parts, "; "));
}

double share_of(const LinkBytes &link, const std::vector<LinkBytes> &links) {
    double sum = 0.0;
    for (const LinkBytes &other : links) {
        sum += static_cast<double>(other.bytes);
    }
    return sum > 0.0 ? static_cast<double>(link.bytes) / sum : 0.0;
}

}  // namespace

std::vector<Check> judge(const Options &options, const Outcome &outcome) {
    std::vector<Check> checks;
    for (const Run &run : outcome.runs) {
        const char *name = name_of(run.backend);
        checks.push_back({"accuracy", run.accuracy >= options.min_accuracy,
                          fmt::format("{}: {:.2f} % of the test images are recognised; at least {:.2f} % are asked for",
                                      name, run.accuracy, options.min_accuracy)});
        const bool same = equal_hashes(run);
        checks.push_back({"weights", same && run.finite,
                          !same         ? fmt::format("{}: the ranks' weights differ after epoch {}: {}", name,
                                                      run.hashes_epoch + 1, describe_hashes(run))
                          : !run.finite ? fmt::format("{}: some weights are not finite numbers", name)
                                        : fmt::format("{}: the weights' hash is {:#018x} on all {} ranks", name,
                                                      run.hashes[0], run.hashes.size())});
        if (!outcome.reference.epoch_losses.empty()) {
            const double difference = largest_difference(run.epoch_losses, outcome.reference.epoch_losses);
            checks.push_back(
                {"losses", difference <= options.loss_tolerance,
                 fmt::format("{}: mean losses of the first {} epochs differ by {:.1e} from one rank's on the "
                             "same batches; at most {:.1e} is allowed",
                             name, outcome.reference.epoch_losses.size(), difference, options.loss_tolerance)});
        }
    }
    return checks;
}

void print_report(const Options &options, int ranks, const Outcome &outcome, const std::vector<Check> &checks) {
    const auto row = [&](const char *label, auto text_of) {
        std::string line = fmt::format("{:<44}", label);
        for (const Run &run : outcome.runs) {
            line += fmt::format("{:>20}", text_of(run));
        }
        fmt::print("{}\n", line);
    };
    const double steps = static_cast<double>(outcome.steps_per_epoch * options.epochs);
    fmt::print("\n{} ranks, {} parameters, {} steps of {} samples, gradients in {} buckets of up to {} bytes\n", ranks,
               outcome.parameters, outcome.steps_per_epoch * options.epochs, options.batch, outcome.buckets,
               options.bucket_bytes);
    row("", [](const Run &run) { return std::string(name_of(run.backend)); });
    row("test accuracy", [](const Run &run) { return fmt::format("{:.2f} %", run.accuracy); });
    row("mean loss of the first epoch", [](const Run &run) { return fmt::format("{:.6f}", run.epoch_losses.front()); });
    row("mean loss of the last epoch", [](const Run &run) { return fmt::format("{:.6f}", run.epoch_losses.back()); });
    row("weights' hash on rank 0", [](const Run &run) { return fmt::format("{:#018x}", run.hashes[0]); });
    row("communication of one step",
        [&](const Run &run) { return fmt::format("{:.0f} us", run.reducing_s * 1e6 / steps); });
    row("communication in all", [](const Run &run) { return fmt::format("{:.3f} s", run.reducing_s); });
    row("  and waiting for the last rank before it",
        [](const Run &run) { return fmt::format("{:.3f} s", run.waiting_s); });
    fmt::print(
        "Communication is the slowest rank's time from a barrier until all buckets are reduced, the sum over steps; "
        "the wait in the barrier is the ranks' mean.\n");
    if (outcome.runs.size() == 2 && outcome.runs[0].reducing_s > 0.0) {
        fmt::print("Both models took their steps in turn. MPI_Allreduce's time / FLX's: {:.2f}\n",
                   outcome.runs[1].reducing_s / outcome.runs[0].reducing_s);
    }
    if (!outcome.links.empty()) {
        std::vector<std::string> parts;
        for (const LinkBytes &link : outcome.links) {
            parts.push_back(
                fmt::format("{} {:.1f} % ({} bytes)", link.name, 100.0 * share_of(link, outcome.links), link.bytes));
        }
        fmt::print("Links, as they counted what they sent: {}\n", fmt::join(parts, ", "));
    }
    fmt::print("{:.1f} s of training, {:.1f} s of one rank alone\n\n", outcome.training_s, outcome.reference_s);
    for (const Check &check : checks) {
        fmt::print("{:<4}  {:<8}  {}\n", check.passed ? "ok" : "FAIL", check.name, check.sentence);
    }
    const auto failed = std::count_if(checks.begin(), checks.end(), [](const Check &check) { return !check.passed; });
    if (failed > 0) {
        fmt::print("flx_trainer: {} of {} checks failed\n", failed, checks.size());
    } else {
        fmt::print("flx_trainer: all {} checks passed\n", checks.size());
    }
    std::fflush(stdout);
}

bool write_json(const std::string &path, const Options &options, int ranks, const Outcome &outcome,
                const std::vector<Check> &checks, std::string &error) {
    using nlohmann::json;
    json root = {{"ranks", ranks},
                 {"parameters", outcome.parameters},
                 {"epochs", options.epochs},
                 {"batch", options.batch},
                 {"steps", outcome.steps_per_epoch * options.epochs},
                 {"bucket_bytes", options.bucket_bytes},
                 {"buckets", outcome.buckets},
                 {"seed", options.seed},
                 {"training_s", outcome.training_s},
                 {"reference_s", outcome.reference_s}};
    root["runs"] = json::array();
    for (const Run &run : outcome.runs) {
        std::vector<std::string> hashes;
        for (const std::uint64_t hash : run.hashes) {
            hashes.push_back(fmt::format("{:#018x}", hash));
        }
        root["runs"].push_back({{"reduce", run.backend == Backend::flx ? "flx" : "mpi"},
                                {"accuracy", run.accuracy},
                                {"epoch_losses", run.epoch_losses},
                                {"communication_s", run.reducing_s},
                                {"waiting_s", run.waiting_s},
                                {"hashes", hashes}});
    }
    root["reference"] = {{"epoch_losses", outcome.reference.epoch_losses}};
    root["links"] = json::array();
    for (const LinkBytes &link : outcome.links) {
        root["links"].push_back({{"link", link.name}, {"bytes", link.bytes}, {"share", share_of(link, outcome.links)}});
    }
    root["checks"] = json::array();
    bool passed = true;
    for (const Check &check : checks) {
        passed = passed && check.passed;
        root["checks"].push_back({{"name", check.name}, {"passed", check.passed}, {"sentence", check.sentence}});
    }
    root["passed"] = passed;
    std::ofstream file(path);
    file << root.dump(2) << '\n';
    file.close();
    if (!file) {
        error = fmt::format("{} cannot be written.", path);
        return false;
    }
    return true;
}

}  // namespace flx::trainer
