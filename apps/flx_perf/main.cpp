/// flx_perf: how long a collective takes over all links, and beside MPI.

#include <fmt/format.h>
#include <mpi.h>

#include "apps/common/progress.h"
#include "apps/common/ranks.h"
#include "apps/common/result_file.h"
#include "apps/flx_perf/algorithms.h"
#include "apps/flx_perf/measure.h"
#include "apps/flx_perf/measure_device.h"
#include "apps/flx_perf/page.h"

namespace flx::bench::perf {
namespace {

using apps::any_failed;
using apps::rank_0_says;
using apps::say;

/// The files that results go to; open on rank 0.
class Files {
  public:
    explicit Files(const Options &options)
        : json_(options.json_file), csv_(options.csv_file), log_(options.log_file), page_(options.page_file) {}

    [[nodiscard]] std::string problem() const {
        if (!no_page_.empty()) {
            return no_page_;
        }
        for (const apps::ResultFile *file : {&json_, &csv_, &log_, &page_}) {
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
        json_.write(json_of(results));
        csv_.write(csv_of(results));
        if (!results.options.page_file.empty()) {
            std::string page;
            if (const Status status = page_of(results, page); status.ok()) {
                page_.write(page);
            } else {
                no_page_ = "there is no page: " + status.sentence();
            }
        }
        for (apps::ResultFile *file : {&json_, &csv_, &log_, &page_}) {
            file->close();
        }
    }

  private:
    apps::ResultFile json_;
    apps::ResultFile csv_;
    apps::ResultFile log_;
    apps::ResultFile page_;
    std::string no_page_;  // why, where one was wanted and is not there
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
    return measure_on_devices(options, *calls, comm, links, rank, files);
}

int run(const Options &options) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    Files files(rank == 0 ? options : Options{});
    if (rank_0_says(!files.problem().empty())) {
        say(stderr, files.problem());
        return 2;
    }
    if (options.device && !apps::all_can(take_device(MPI_COMM_WORLD))) {
        return 2;
    }
    flx_comm_t comm = nullptr;
    if (any_failed(flx_comm_create(MPI_COMM_WORLD, nullptr, &comm), "making the communicator")) {
        return 2;
    }
    const auto measure = options.device ? measure_devices : options.all_algorithms ? measure_algorithms : measure_all;
    const int code = measure(options, comm, rank, files);
    return any_failed(flx_comm_free(&comm), "freeing the communicator") ? 2 : code;
}

}  // namespace
}  // namespace flx::bench::perf

int main(int argc, char **argv) {
    return flx::apps::with_mpi(argc, argv, flx::bench::perf::parse_options, flx::bench::perf::run);
}
