#include "measure.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "calls.h"
#include "log.h"
#include "outputs.h"
#include "real.h"

namespace flx::nccl {
namespace {

std::mutex mutex;
std::map<std::string, Tables> known;  ///< by the GPUs, in the order of ranks

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
    // In place, as programs mostly call it: no faster than otherwise.
    request.in = kind == Kind::allreduce ? bench.out : bench.in;
    request.out = bench.out;
    request.type = ncclFloat32;
    const bool blocks = kind == Kind::allgather || kind == Kind::reduce_scatter || kind == Kind::alltoall;
    request.count = std::max<size_t>(1, bytes / sizeof(float) / (blocks ? ranks : 1));
    return request;
}

/// Opens all ranks' output on all of them. False, on all: it cannot be.
bool show_all(Bootstrap &bootstrap, Lane &lane, const Engine::Bench &bench, std::vector<cuda::Showing> &shown) {
    const Work whole{Kind::allreduce, bench.out, bench.out, bench.bytes, FLX_UINT8, FLX_SUM, 0};
    cuda::Showing mine;
    lane.show(whole, false, mine);
    if (!bootstrap.allgather(&mine, sizeof mine, shown.data()).ok() || !cuda::ShownMemory::writable(shown))
        return false;
    const Status opened = agree(bootstrap, lane.open_shown(shown));
    lane.settle_shown(shown, opened.ok());
    if (!opened.ok())
        log().info("outputs cannot be opened by peers: {}", opened.sentence());
    return opened.ok();
}

}  // namespace

Status measure(Engine &engine, Bootstrap &bootstrap, Lane &lane, ncclComm_t comm, int device, const Around &around,
               Tables &tables) {
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
        tables = known[gpus];
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

    std::vector<cuda::Showing> shown(ranks);
    const bool open = points > 0 && show_all(bootstrap, lane, bench, shown);
    Table::Measured slots{};
    Table::Measured met{};
    Status status;
    for (size_t kind = 0; kind < kServedKinds; ++kind)
        for (size_t point = 0; point < points; ++point) {
            const size_t bytes = Table::bytes_at(point);
            const Request request = request_of(static_cast<Kind>(kind), bytes, ranks, bench);
            const Work work = work_of(request, ranks);
            const auto by_nccl = [&]() -> Status {
                ncclResult_t result = call_nccl(request, ranks, comm, bench.stream);
                while (result == ncclInProgress)  // a communicator that does not block
                    if (FLX_REAL(ncclCommGetAsyncError, comm, &result) != ncclSuccess)
                        result = ncclInternalError;
                return result == ncclSuccess ? Status()
                                             : fail(FLX_ERR_SYSTEM, "NCCL's {} of {} bytes gave {}",
                                                    name_of(request.kind), bytes, static_cast<int>(result));
            };
            std::vector<std::function<Status()>> ways{by_nccl, [&] { return lane.enqueue(work, bench.stream, {}); }};
            if (open && Outputs::may_be_met(request.kind, bytes))
                ways.emplace_back([&] { return lane.enqueue(work, bench.stream, shown); });
            constexpr size_t kLarge = size_t{16} << 20;
            const bool large = bytes >= kLarge;
            const int warm = large ? 1 : 3;
            const int turns = large ? 3 : 12;
            // By turns, each rank's better of two, the slowest rank's.
            constexpr double kUnknown = 1e12;
            std::array<double, 3> mine{kUnknown, kUnknown, kUnknown};
            for (int round = 0; round < 2; ++round)
                for (size_t way = 0; way < ways.size(); ++way) {
                    double us = 0;
                    Status timed;
                    if (status.ok())
                        timed = engine.time(
                            bench, device, warm, turns, [&] { return around(bench.stream, ways[way]); }, us);
                    if (!timed.ok())
                        status = std::move(timed);
                    if (status.ok())
                        mine[way] = std::min(mine[way], us);
                }
            std::vector<std::array<double, 3>> all(ranks);
            FLX_TRY(bootstrap.allgather(&mine, sizeof mine, all.data()));
            std::array<double, 3> slowest{};
            for (const auto &each : all)
                for (size_t way = 0; way < ways.size(); ++way)
                    slowest[way] = std::max(slowest[way], each[way]);
            slots[kind][point] = {slowest[1], slowest[0]};
            met[kind][point] = {slowest[2], slowest[0]};
            log().info("{} of {} bytes: NCCL {:.1f} us, FLX {:.1f} us{}", name_of(request.kind), bytes, slowest[0],
                       slowest[1], slowest[2] > 0 ? fmt::format(", into shown outputs {:.1f} us", slowest[2]) : "");
            // A rank that failed may have left its peers' calls without a partner: no further measurement then.
            FLX_TRY(agree(bootstrap, status));
        }
    lane.close_shown();
    FLX_TRY(bootstrap.barrier());
    engine.close_bench(device, bench);
    tables = {Table::of(slots), Table::of(met)};
    const std::lock_guard guard(mutex);
    known[gpus] = tables;
    return {};
}

}  // namespace flx::nccl
