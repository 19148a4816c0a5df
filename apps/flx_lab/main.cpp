/// flx_lab: what FLX does in the midst of what else programs do.

#include <mpi.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "apps/common/ranks.h"
#include "apps/common/result_file.h"
#include "apps/flx_lab/beside_measure.h"
#include "apps/flx_lab/load_measure.h"
#include "apps/flx_lab/overlap_measure.h"
#include "apps/flx_lab/replay.h"

namespace flx::bench::lab {
namespace {

using apps::any_failed;

/// On standard output, by rank 0.
void show(const std::string &text) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        apps::say(stdout, text);
    }
}

/// The exit code, when the results are in their file, which only rank 0 has open. Collective.
int finish(apps::ResultFile &file, bool wrong, const nlohmann::ordered_json &json) {
    file.write(json.dump(2) + "\n");
    file.close();
    return apps::exit_code(file.problem(), wrong);
}

int measure_arrivals(const Options &options, apps::ResultFile &file) {
    ArrivalsResult result;
    result.machine = describe_machine(MPI_COMM_WORLD);
    if (const flx_status_t status = replay(options, MPI_COMM_WORLD, result); status != FLX_SUCCESS) {
        apps::give_up("arrivals", apps::reason(status));
    }
    show(arrivals_text(options, result));
    return finish(file, result.bound.wrong + result.lent.wrong != 0, arrivals_json(options, result));
}

int measure_beside_computation(const Options &options, flx_comm_t comm, apps::ResultFile &file) {
    OverlapResults results{describe_machine(MPI_COMM_WORLD), {}};
    uint64_t wrong = 0;
    show(overlap_header(options, results.machine));
    const flx_status_t status = measure_overlap(options, comm, MPI_COMM_WORLD, results, [&](const Overlap &overlap) {
        wrong += overlap.wrong;
        show(overlap_row(overlap));
    });
    if (status != FLX_SUCCESS) {
        apps::give_up(std::string(name_of(options.collective)), apps::reason(status));
    }
    return finish(file, wrong != 0, overlap_json(options, results));
}

int measure_beside_products(const Options &options, DeviceCalls &calls, flx_comm_t comm, apps::ResultFile &file) {
    std::string why;
    const auto measurer = BesideMeasurer::make(options, calls, comm, MPI_COMM_WORLD, why);
    if (!apps::all_can(why)) {
        return 2;
    }
    BesideResults results{describe_machine(MPI_COMM_WORLD), kProductSide, measurer->flops(), {}};
    calls.describe(results.machine);
    show(beside_header(options, results));
    uint64_t wrong = 0;
    for (const Shape &shape : shapes_of(options, results.machine.ranks)) {
        results.sizes.push_back(measurer->measure(shape));
        for (const BesideSide &side : results.sizes.back().sides) {
            wrong += side.side == Side::peer ? 0 : side.wrong;
        }
        show(beside_rows(results.sizes.back()));
    }
    return finish(file, wrong != 0, beside_json(options, results));
}

int measure_beside_copies(const Options &options, DeviceCalls &calls, flx_comm_t comm, LinkCounters &links,
                          apps::ResultFile &file) {
    std::string why;
    const auto measurer = LoadMeasurer::make(options, calls, comm, MPI_COMM_WORLD, links, why);
    if (!apps::all_can(why)) {
        return 2;
    }
    UnderLoadResults results{describe_machine(MPI_COMM_WORLD), {}};
    calls.describe(results.machine);
    show(load_header(options, results.machine));
    uint64_t wrong = 0;
    for (const Shape &shape : shapes_of(options, results.machine.ranks)) {
        results.sizes.push_back(measurer->measure(shape));
        wrong += results.sizes.back().wrong;
        show(load_text(results.sizes.back()));
    }
    return finish(file, wrong != 0, load_json(options, results));
}

int measure_on_devices(const Options &options, flx_comm_t comm, apps::ResultFile &file) {
    LinkCounters links(comm, MPI_COMM_WORLD);
    if (any_failed(links.status(), "reading the links")) {
        return 2;
    }
    DeviceSettings settings;
    settings.nccl = options.against_nccl;
    std::string why;
    const auto calls = DeviceCalls::make(options, settings, comm, MPI_COMM_WORLD, why);
    if (!apps::all_can(why)) {
        return 2;
    }
    return options.beside_product ? measure_beside_products(options, *calls, comm, file)
                                  : measure_beside_copies(options, *calls, comm, links, file);
}

int run(const Options &options) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    apps::ResultFile file(rank == 0 ? options.json_file : "");
    if (apps::rank_0_says(!file.problem().empty())) {
        apps::say(stderr, file.problem());
        return 2;
    }
    if (options.device() && !apps::all_can(take_device(MPI_COMM_WORLD))) {
        return 2;
    }
    if (options.arrivals > 0) {
        return measure_arrivals(options, file);
    }
    if (options.overlap) {
        constexpr int kUnlessSet = 0;
        setenv("FLX_PROGRESS_THREAD", "on", kUnlessSet);
    }
    flx_comm_t comm = nullptr;
    if (any_failed(flx_comm_create(MPI_COMM_WORLD, nullptr, &comm), "making the communicator")) {
        return 2;
    }
    const int code =
        options.overlap ? measure_beside_computation(options, comm, file) : measure_on_devices(options, comm, file);
    return any_failed(flx_comm_free(&comm), "freeing the communicator") ? 2 : code;
}

}  // namespace
}  // namespace flx::bench::lab

int main(int argc, char **argv) {
    return flx::apps::with_mpi(argc, argv, flx::bench::lab::parse_options, flx::bench::lab::run);
}
