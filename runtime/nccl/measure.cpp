#include "measure.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "calls.h"
#include "log.h"
#include "real.h"

namespace flx::nccl {
namespace {

std::mutex mutex;
std::map<std::string, Table> known;  ///< by the GPUs, in the order of ranks

/// By NCCL, of whatever version.
ncclResult_t call_nccl(const Request &request, int ranks, ncclComm_t comm, cudaStream_t stream) {
    if (request.kind != Kind::alltoall)
        return pass_on(request, comm, stream);
    const Request &r = request;
    // Versions before 2.28 have no ncclAlltoAll; it does the same.
    FLX_REAL(ncclGroupStart);
    ncclResult_t result = ncclSuccess;
    const size_t bytes = r.count * size_of(r.type);
    for (int peer = 0; peer < ranks && result == ncclSuccess; ++peer) {
        result =
            FLX_REAL(ncclSend, static_cast<const char *>(r.in) + peer * bytes, r.count, r.type, peer, comm, stream);
        if (result == ncclSuccess)
            result = FLX_REAL(ncclRecv, static_cast<char *>(r.out) + peer * bytes, r.count, r.type, peer, comm, stream);
    }
    const ncclResult_t ended = FLX_REAL(ncclGroupEnd);
    return result != ncclSuccess ? result : ended;
}

/// A call of about `bytes` in all.
Request request_of(Kind kind, size_t bytes, int ranks, const Engine::Bench &bench) {
    Request request;
    request.kind = kind;
    request.in = bench.in;
    request.out = bench.out;
    request.type = ncclFloat32;
    const bool blocks = kind == Kind::allgather || kind == Kind::reduce_scatter || kind == Kind::alltoall;
    request.count = std::max<size_t>(1, bytes / sizeof(float) / (blocks ? ranks : 1));
    return request;
}

}  // namespace

Status measure(Engine &engine, Bootstrap &bootstrap, Lane &lane, ncclComm_t comm, int device, Table &table) {
    const int ranks = bootstrap.size();
    std::vector<int> devices(ranks);
    FLX_TRY(bootstrap.allgather(&device, sizeof device, devices.data()));
    std::string gpus;
    for (const int each : devices)
        gpus += fmt::format("{} ", each);
    // Processes may see their GPUs under other numbers; then all of them say 0, and the first answer serves all.
    uint8_t have = 0;
    {
        const std::lock_guard guard(mutex);
        have = known.contains(gpus) ? 1 : 0;
    }
    std::vector<uint8_t> all_have(ranks);
    FLX_TRY(bootstrap.allgather(&have, sizeof have, all_have.data()));
    if (std::count(all_have.begin(), all_have.end(), 1) == ranks) {
        const std::lock_guard guard(mutex);
        table = known[gpus];
        return {};
    }

    // As much as all have memory for.
    Engine::Bench bench;
    uint64_t points = 0;
    for (size_t most = Table::kPoints; most > 0 && points == 0; most -= 2)
        if (engine.open_bench(device, Table::bytes_at(most - 1), bench).ok())
            points = most;
    std::vector<uint64_t> all_points(ranks);
    FLX_TRY(bootstrap.allgather(&points, sizeof points, all_points.data()));
    points = *std::min_element(all_points.begin(), all_points.end());

    Table::Measured measured{};
    Status status;
    for (size_t kind = 0; kind < kServedKinds; ++kind)
        for (size_t point = 0; point < points; ++point) {
            const Request request = request_of(static_cast<Kind>(kind), Table::bytes_at(point), ranks, bench);
            const Work work = work_of(request, ranks);
            const auto by_flx = [&] { return lane.enqueue(work, bench.stream); };
            const auto by_nccl = [&]() -> Status {
                ncclResult_t result = call_nccl(request, ranks, comm, bench.stream);
                while (result == ncclInProgress)  // a communicator that does not block
                    if (FLX_REAL(ncclCommGetAsyncError, comm, &result) != ncclSuccess)
                        result = ncclInternalError;
                return result == ncclSuccess
                           ? Status()
                           : fail(FLX_ERR_SYSTEM, "NCCL's {} of {} bytes gave {}", name_of(request.kind),
                                  Table::bytes_at(point), static_cast<int>(result));
            };
            constexpr size_t kLarge = size_t{16} << 20;
            const bool large = Table::bytes_at(point) >= kLarge;
            const int warm = large ? 1 : 3;
            const int turns = large ? 3 : 12;
            // By turns, each rank's better of two, the slowest rank's.
            constexpr double kUnknown = 1e12;
            std::array<double, 2> mine{kUnknown, kUnknown};
            for (int round = 0; round < 2; ++round)
                for (int side = 0; side < 2; ++side) {
                    double us = 0;
                    Status timed;
                    if (status.ok())
                        timed = side == 0 ? engine.time(bench, device, warm, turns, by_flx, us)
                                          : engine.time(bench, device, warm, turns, by_nccl, us);
                    if (!timed.ok())
                        status = std::move(timed);
                    if (status.ok())
                        mine[side] = std::min(mine[side], us);
                }
            std::vector<std::array<double, 2>> all(ranks);
            FLX_TRY(bootstrap.allgather(&mine, sizeof mine, all.data()));
            Table::Times &times = measured[kind][point];
            for (const auto &each : all) {
                times.flx = std::max(times.flx, each[0]);
                times.nccl = std::max(times.nccl, each[1]);
            }
            log().info("{} of {} bytes: FLX {:.1f} us, NCCL {:.1f} us", name_of(request.kind), Table::bytes_at(point),
                       times.flx, times.nccl);
            // A rank that failed may have left its peers' calls without a partner: no further measurement then.
            FLX_TRY(agree(bootstrap, status));
        }
    engine.close_bench(device, bench);
    table = Table::of(measured);
    const std::lock_guard guard(mutex);
    known[gpus] = table;
    return {};
}

}  // namespace flx::nccl
