/// flx_perf: how long a collective takes over all links, and beside MPI.

#include <fmt/format.h>
#include <mpi.h>

#include <cstdlib>

#include "apps/common/progress.h"
#include "apps/common/ranks.h"
#include "apps/common/result_file.h"
#include "apps/flx_perf/algorithms.h"
#include "apps/flx_perf/beside_measure.h"
#include "apps/flx_perf/load_measure.h"
#include "apps/flx_perf/measure.h"
#include "apps/flx_perf/measure_device.h"
#include "apps/flx_perf/overlap_measure.h"
#include "apps/flx_perf/replay.h"

namespace flx::bench::perf {
namespace {

using apps::any_failed;
using apps::rank_0_says;
using apps::say;

/// The files that results go to; open on rank 0.
class Files {
  public:
    explicit Files(const Options &options) : json_(options.json_file), csv_(options.csv_file), log_(options.log_file) {}

    [[nodiscard]] std::string problem() const {
        for (const apps::ResultFile *file : {&json_, &csv_, &log_}) {
            if (!file->problem().empty()) {
                return file->problem();
            }
        }
        return {};
    }

    void write_log_header(const std::vector<std::string> &links) { log_.write(log_header(links)); }
    void write_log(const std::vector<LoggedCall> &calls, uint64_t bytes) {
        for (const LoggedCall &call : calls) {
            log_.write(log_line(iteration_++, call, bytes));
        }
        log_.flush();
    }
    void write_results(const Results &results) {
        write_json(json_of(results));
        csv_.write(csv_of(results));
        csv_.close();
        log_.close();
    }
    void write_json(const nlohmann::ordered_json &json) {
        json_.write(json.dump(2) + "\n");
        json_.close();
    }

  private:
    apps::ResultFile json_;
    apps::ResultFile csv_;
    apps::ResultFile log_;
    int64_t iteration_ = 0;
};

/// The exit code, after `write` on rank 0. Collective.
template <typename Write>
int finish(const Files &files, int rank, bool wrong, Write &&write) {
    if (rank == 0) {
        write();
    }
    return apps::exit_code(files.problem(), wrong);
}

/// Whether all ranks have their links and buffers; else it says why not. Collective.
bool can_measure(const LinkCounters &links, const Measurer &measurer, int rank) {
    if (any_failed(links.status(), "reading the links")) {
        return false;
    }
    if (!measurer.ready() && rank == 0) {
        say(stderr, "flx_perf: not enough memory for buffers of the largest size\n");
    }
    return measurer.ready();
}

/// Measures every algorithm at every size. Collective.
int measure_algorithms(const Options &options, flx_comm_t comm, int rank, Files &files) {
    Results results{options, describe_machine(MPI_COMM_WORLD), {}, {}};
    const std::vector<Shape> shapes = shapes_of(options, results.machine.ranks);
    std::vector<uint64_t> sizes;
    for (const Shape &shape : shapes) {
        sizes.push_back(shape.bytes);
    }
    Algorithms algorithms;
    if (any_failed(algorithms.open(options.collective, sizes, comm), "making the communicators of the algorithms")) {
        return 2;
    }
    uint64_t wrong = 0;
    for (const Shape &shape : shapes) {
        for (const Algorithms::One &one : algorithms.of(shape.bytes)) {
            LinkCounters links(one.comm, MPI_COMM_WORLD);
            Measurer measurer(options, one.comm, MPI_COMM_WORLD, links);
            if (!can_measure(links, measurer, rank)) {
                return 2;
            }
            if (results.results.empty()) {
                results.links = links.names();
                if (rank == 0) {
                    say(stdout, header_text(options, results.machine));
                }
            }
            Result result = measurer.measure(shape, [](double) {});
            result.predicted_us = one.predicted_us;
            result.chosen = one.chosen;
            wrong += result.wrong;
            if (rank == 0) {
                say(stdout, row_text(options, results.links, result));
            }
            results.results.push_back(std::move(result));
        }
    }
    const int code = finish(files, rank, wrong != 0, [&] {
        say(stdout, footer_text(results));
        files.write_results(results);
    });
    return any_failed(algorithms.close(), "freeing the communicators of the algorithms") ? 2 : code;
}

int measure_all(const Options &options, flx_comm_t comm, int rank, Files &files) {
    LinkCounters links(comm, MPI_COMM_WORLD);
    Measurer measurer(options, comm, MPI_COMM_WORLD, links);
    if (!can_measure(links, measurer, rank)) {
        return 2;
    }
    Results results{options, describe_machine(MPI_COMM_WORLD), links.names(), {}};
    const std::vector<Shape> shapes = shapes_of(options, results.machine.ranks);
    constexpr uint64_t kParts = 1000;  // of the bar, for each size
    apps::Progress progress("measuring", shapes.size() * kParts, rank == 0);
    uint64_t wrong = 0;
    if (rank == 0) {
        say(stdout, header_text(options, results.machine));
        files.write_log_header(links.names());
        progress.update(0);
    }
    for (const Shape &shape : shapes) {
        const uint64_t before = results.results.size() * kParts;
        results.results.push_back(measurer.measure(
            shape, [&](double part) { progress.update(before + static_cast<uint64_t>(part * kParts)); }));
        wrong += results.results.back().wrong;
        if (rank == 0) {
            progress.clear();
            say(stdout, row_text(options, links.names(), results.results.back()));
            files.write_log(measurer.log(), shape.bytes);
        }
    }
    return finish(files, rank, wrong != 0, [&] {
        say(stdout, footer_text(results));
        files.write_results(results);
    });
}

/// As measure_all, on GPU memory.
int measure_on_devices(const Options &options, DeviceCalls &calls, flx_comm_t comm, LinkCounters &links, int rank,
                       Files &files) {
    Results results{options, describe_machine(MPI_COMM_WORLD), links.names(), {}};
    calls.describe(results.machine);
    if (rank == 0) {
        say(stdout, header_text(options, results.machine));
    }
    uint64_t wrong = 0;
    for (const Shape &shape : shapes_of(options, results.machine.ranks)) {
        results.results.push_back(measure_device(options, calls, comm, MPI_COMM_WORLD, links, shape));
        wrong += results.results.back().wrong;
        if (rank == 0) {
            say(stdout, row_text(options, results.links, results.results.back()));
        }
    }
    return finish(files, rank, wrong != 0, [&] {
        say(stdout, footer_text(results));
        files.write_results(results);
    });
}

int measure_beside_products(const Options &options, DeviceCalls &calls, flx_comm_t comm, int rank, Files &files) {
    std::string why;
    const auto measurer = BesideMeasurer::make(options, calls, comm, MPI_COMM_WORLD, why);
    if (!apps::all_can(why)) {
        return 2;
    }
    BesideResults results{describe_machine(MPI_COMM_WORLD), kProductSide, measurer->flops(), {}};
    calls.describe(results.machine);
    if (rank == 0) {
        say(stdout, beside_header(options, results));
    }
    uint64_t wrong = 0;
    for (const Shape &shape : shapes_of(options, results.machine.ranks)) {
        results.sizes.push_back(measurer->measure(shape));
        for (const BesideSide &side : results.sizes.back().sides) {
            wrong += side.side == Side::peer ? 0 : side.wrong;
        }
        if (rank == 0) {
            say(stdout, beside_rows(results.sizes.back()));
        }
    }
    return finish(files, rank, wrong != 0, [&] { files.write_json(beside_json(options, results)); });
}

int measure_beside_copies(const Options &options, DeviceCalls &calls, flx_comm_t comm, LinkCounters &links, int rank,
                          Files &files) {
    std::string why;
    const auto measurer = LoadMeasurer::make(options, calls, comm, MPI_COMM_WORLD, links, why);
    if (!apps::all_can(why)) {
        return 2;
    }
    UnderLoadResults results{describe_machine(MPI_COMM_WORLD), {}};
    calls.describe(results.machine);
    if (rank == 0) {
        say(stdout, load_header(options, results.machine));
    }
    uint64_t wrong = 0;
    for (const Shape &shape : shapes_of(options, results.machine.ranks)) {
        results.sizes.push_back(measurer->measure(shape));
        wrong += results.sizes.back().wrong;
        if (rank == 0) {
            say(stdout, load_text(results.sizes.back()));
        }
    }
    return finish(files, rank, wrong != 0, [&] { files.write_json(load_json(options, results)); });
}

int measure_devices(const Options &options, flx_comm_t comm, int rank, Files &files) {
    LinkCounters links(comm, MPI_COMM_WORLD);
    if (any_failed(links.status(), "reading the links")) {
        return 2;
    }
    std::string why;
    const auto calls = DeviceCalls::make(options, {options.registered, options.graph, options.against_nccl}, comm,
                                         MPI_COMM_WORLD, why);
    if (!apps::all_can(why)) {
        return 2;
    }
    if (options.queued_copies > 0) {
        return measure_beside_copies(options, *calls, comm, links, rank, files);
    }
    if (options.beside_product) {
        return measure_beside_products(options, *calls, comm, rank, files);
    }
    return measure_on_devices(options, *calls, comm, links, rank, files);
}

int measure_arrivals(const Options &options, int rank, Files &files) {
    ArrivalsResult result;
    result.machine = describe_machine(MPI_COMM_WORLD);
    if (const flx_status_t status = replay(options, MPI_COMM_WORLD, result); status != FLX_SUCCESS) {
        apps::give_up("arrivals", apps::reason(status));
    }
    return finish(files, rank, result.bound.wrong + result.lent.wrong != 0, [&] {
        say(stdout, arrivals_text(options, result));
        files.write_json(arrivals_json(options, result));
    });
}

int measure_beside_computation(const Options &options, flx_comm_t comm, int rank, Files &files) {
    OverlapResults results{describe_machine(MPI_COMM_WORLD), {}};
    uint64_t wrong = 0;
    if (rank == 0) {
        say(stdout, overlap_header(options, results.machine));
    }
    const flx_status_t status = measure_overlap(options, comm, MPI_COMM_WORLD, results, [&](const Overlap &overlap) {
        wrong += overlap.wrong;
        if (rank == 0) {
            say(stdout, overlap_row(overlap));
        }
    });
    if (status != FLX_SUCCESS) {
        apps::give_up(std::string(name_of(options.collective)), apps::reason(status));
    }
    return finish(files, rank, wrong != 0, [&] { files.write_json(overlap_json(options, results)); });
}

int run(int argc, char **argv) {
    int rank = 0;
    int ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const Parsed parsed = parse_options(argc, argv, ranks);
    if (!parsed.options) {
        if (rank == 0) {
            say(parsed.exit_code == 0 ? stdout : stderr, parsed.text);
        }
        return parsed.exit_code;
    }
    Files files(rank == 0 ? *parsed.options : Options{});
    if (rank_0_says(!files.problem().empty())) {
        say(stderr, files.problem());
        return 2;
    }
    if (parsed.options->device && !apps::all_can(take_device(MPI_COMM_WORLD))) {
        return 2;
    }
    if (parsed.options->arrivals > 0) {
        return measure_arrivals(*parsed.options, rank, files);
    }
    if (parsed.options->overlap) {
        constexpr int kUnlessSet = 0;
        setenv("FLX_PROGRESS_THREAD", "on", kUnlessSet);
    }
    flx_comm_t comm = nullptr;
    if (any_failed(flx_comm_create(MPI_COMM_WORLD, nullptr, &comm), "making the communicator")) {
        return 2;
    }
    const auto measure = parsed.options->overlap          ? measure_beside_computation
                         : parsed.options->device         ? measure_devices
                         : parsed.options->all_algorithms ? measure_algorithms
                                                          : measure_all;
    const int code = measure(*parsed.options, comm, rank, files);
    return any_failed(flx_comm_free(&comm), "freeing the communicator") ? 2 : code;
}

}  // namespace
}  // namespace flx::bench::perf

int main(int argc, char **argv) {
    return flx::apps::with_mpi(argc, argv, flx::bench::perf::run);
}
