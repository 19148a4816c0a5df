#include "runtime/front/nccl/measure.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/front/nccl/calls.h"
#include "runtime/front/nccl/outputs.h"
#include "runtime/front/nccl/real.h"

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

/// A call of about `bytes` in all, of 32-bit floats that are added, in even parts.
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

/// The same with a trait.
Request request_with(Trait trait, Kind kind, size_t bytes, int ranks, const Engine::Bench &bench) {
    Request request = request_of(kind, bytes, ranks, bench);
    const auto of_type = [&request](ncclDataType_t type) {
        request.count = request.count * sizeof(float) / size_of(type);
        request.type = type;
    };
    switch (trait) {
        case Trait::half:
            of_type(ncclBfloat16);
            break;
        case Trait::eighth:
            of_type(ncclFloat8e4m3);
            break;
        case Trait::wide:
            of_type(ncclFloat64);
            break;
        case Trait::narrow:
            of_type(ncclInt8);
            break;
        case Trait::extreme:
            request.op = ncclMax;
            break;
        case Trait::beside:
            request.count -= 1;
            break;
    }
    return request;
}

/// Opens all ranks' output on all of them. False, on all: it cannot be.
bool show_all(Bootstrap &bootstrap, Lane &lane, const Engine::Bench &bench, std::vector<cuda::Showing> &shown) {
    const Operation whole{.collective = algorithms::Collective::allreduce,
                          .in = bench.out,
                          .out = bench.out,
                          .count = bench.bytes,
                          .dtype = FLX_UINT8};
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

/// Some of a call: messages of so many bytes to the next rank and from the one before; or, `ring` false, from every
/// other rank to the next.
std::vector<cuda::Message> messages_of(bool ring, size_t bytes, int rank, int ranks, const Engine::Bench &bench) {
    const cuda::Message to_next{static_cast<char *>(bench.in), bytes, (rank + 1) % ranks, true};
    const cuda::Message from_last{static_cast<char *>(bench.out), bytes, (rank + ranks - 1) % ranks, false};
    if (ring)
        return {to_next, from_last};
    if (rank % 2 == 1)
        return {from_last};
    return rank + 1 < ranks ? std::vector{to_next} : std::vector<cuda::Message>();
}

ncclResult_t send_by_nccl(const std::vector<cuda::Message> &messages, ncclComm_t comm, cudaStream_t stream) {
    FLX_REAL(ncclGroupStart);
    ncclResult_t result = ncclSuccess;
    for (const cuda::Message &message : messages)
        if (result == ncclSuccess)
            result = message.sends
                         ? FLX_REAL(ncclSend, message.memory, message.bytes, ncclUint8, message.peer, comm, stream)
                         : FLX_REAL(ncclRecv, message.memory, message.bytes, ncclUint8, message.peer, comm, stream);
    const ncclResult_t ended = FLX_REAL(ncclGroupEnd);
    return result != ncclSuccess ? result : ended;
}

/// Ways of carrying out the same, by turns.
struct Race {
    Engine &engine;
    Bootstrap &bootstrap;
    const Engine::Bench &bench;
    int device;
    const Around &around;
    const std::function<bool()> &over;

    /// Collective. `us`: per way the slowest rank's better of two, in microseconds.
    Status run(const std::vector<std::function<Status()>> &ways, size_t bytes, std::array<double, 3> &us) const {
        constexpr size_t kLarge = size_t{16} << 20;
        const bool large = bytes >= kLarge;
        const int warm = large ? 1 : 3;
        const int turns = large ? 3 : 12;
        constexpr double kUnknown = 1e12;
        std::array<double, 3> mine{kUnknown, kUnknown, kUnknown};
        Status status;
        for (int round = 0; round < 2; ++round)
            for (size_t way = 0; way < ways.size(); ++way) {
                double once = 0;
                Status timed;
                if (status.ok() && over())
                    status = fail(Fault::comm_ended, "the communicator was aborted while it was measured");
                if (status.ok())
                    timed = engine.time(
                        bench, device, warm, turns, [&] { return around(bench.stream, ways[way]); }, once);
                if (!timed.ok())
                    status = std::move(timed);
                if (status.ok())
                    mine[way] = std::min(mine[way], once);
            }
        std::vector<std::array<double, 3>> all(bootstrap.size());
        FLX_TRY(bootstrap.allgather(&mine, sizeof mine, all.data()));
        us = {};
        for (const auto &each : all)
            for (size_t way = 0; way < ways.size(); ++way)
                us[way] = std::max(us[way], each[way]);
        // A rank that failed may have left its peers' calls without a partner: no further measurement then.
        return agree(bootstrap, std::move(status));
    }
};

/// What a call of NCCL's gave in the end.
ncclResult_t settled(ncclResult_t result, ncclComm_t comm, const std::function<bool()> &over) {
    while (result == ncclInProgress)  // a communicator that does not block
        if (over() || FLX_REAL(ncclCommGetAsyncError, comm, &result) != ncclSuccess)
            result = ncclInternalError;
    return result;
}

/// Collective: the GPUs by rank, as `known` has them, and whether all ranks have measured between them before; where
/// they have little memory, either with as little or with all. Processes may see their GPUs under other numbers; then
/// all of them say 0, and the first answer serves all.
Status look_up(Bootstrap &bootstrap, int device, bool small, std::string &gpus, bool &all_know) {
    std::vector<int> devices(bootstrap.size());
    FLX_TRY(bootstrap.allgather(&device, sizeof device, devices.data()));
    for (const int each : devices)
        gpus += fmt::format("{} ", each);
    const std::string with_little = gpus + "with little memory";
    struct Have {
        uint8_t full = 0;
        uint8_t small = 0;
    };
    Have have;
    {
        const std::lock_guard guard(mutex);
        have = {known.contains(gpus), known.contains(with_little)};
    }
    std::vector<Have> all_have(bootstrap.size());
    FLX_TRY(bootstrap.allgather(&have, sizeof have, all_have.data()));
    const auto all = [&](uint8_t Have::*which) {
        return std::all_of(all_have.begin(), all_have.end(), [&](const Have &each) { return each.*which != 0; });
    };
    const bool with_all = all(&Have::full);
    all_know = with_all || (small && all(&Have::small));
    if (small && !with_all)
        gpus = with_little;
    return {};
}

/// Collective: rank 0's, on all ranks. Each has kept what it measured with others of its GPUs by turns of its own.
Status agree_on(Bootstrap &bootstrap, Tables &tables) {
    static_assert(std::is_trivially_copyable_v<Tables>);
    std::vector<Tables> all(bootstrap.size());
    FLX_TRY(bootstrap.allgather(&tables, sizeof tables, all.data()));
    tables = all[0];
    return {};
}

/// Collective: memory for as large calls as all ranks have it for; `points` of the tables can be measured in it.
Status open_bench(Engine &engine, Bootstrap &bootstrap, int device, Engine::Bench &bench, size_t &points) {
    uint64_t mine = 0;
    for (size_t most = Table::kPoints; most > 0 && mine == 0; most -= 2)
        if (engine.open_bench(device, Table::bytes_at(most - 1), bench).ok())
            mine = most;
    std::vector<uint64_t> all(bootstrap.size());
    FLX_TRY(bootstrap.allgather(&mine, sizeof mine, all.data()));
    points = *std::min_element(all.begin(), all.end());
    return {};
}

/// What is measured of FLX through slots, and into shown outputs.
struct Measurements {
    Table::Measured slots{};
    Table::Measured met{};
    Table::MeasuredTraits slots_traits{};
    Table::MeasuredTraits met_traits{};
};

/// Calls that are measured on one communicator.
struct Calls {
    const Race &race;
    Lane &lane;
    ncclComm_t comm;
    std::span<const cuda::Showing> shown;  ///< all ranks' outputs; none where they are not open

    /// Collective: one of them. `label`: for the log.
    Status measure(const Request &request, std::string_view label, Table::Times &slots, Table::Times &met) const {
        const int ranks = race.bootstrap.size();
        const cudaStream_t stream = race.bench.stream;
        const size_t bytes = bytes_of(request, ranks);
        const Operation operation = operation_of(request, ranks);
        std::vector<std::function<Status()>> ways{
            [&]() -> Status {
                const ncclResult_t result = settled(call_nccl(request, ranks, comm, stream), comm, race.over);
                return result == ncclSuccess ? Status()
                                             : fail(Fault::nccl_refused, "NCCL's {} of {} bytes gave {}",
                                                    name_of(request.kind), bytes, static_cast<int>(result));
            },
            [&] { return lane.enqueue(operation, stream, {}); }};
        if (!shown.empty() && Outputs::may_be_met(request.kind, bytes))
            ways.emplace_back([&] { return lane.enqueue(operation, stream, shown); });
        std::array<double, 3> us{};
        FLX_TRY(race.run(ways, bytes, us));
        slots = {us[1], us[0]};
        met = {us[2], us[0]};
        log().info("{}{} of {} bytes: NCCL {:.1f} us, FLX {:.1f} us{}", name_of(request.kind), label, bytes, us[0],
                   us[1], us[2] > 0 ? fmt::format(", into shown outputs {:.1f} us", us[2]) : "");
        return {};
    }
};

/// Collective.
Status measure_calls(const Calls &calls, size_t points, Measurements &all) {
    const int ranks = calls.race.bootstrap.size();
    for (size_t kind = 0; kind < kServedKinds; ++kind)
        for (size_t point = 0; point < points; ++point) {
            const Request request =
                request_of(static_cast<Kind>(kind), Table::bytes_at(point), ranks, calls.race.bench);
            FLX_TRY(calls.measure(request, "", all.slots[kind][point], all.met[kind][point]));
        }
    return {};
}

/// Collective: those of what makes calls slower that NCCL knows.
Status measure_traits(const Calls &calls, size_t points, Measurements &all) {
    const int ranks = calls.race.bootstrap.size();
    const uint8_t mine = known_to(real().version, ncclFloat8e4m3) && calls.race.engine.adds_float8(calls.race.device);
    std::vector<uint8_t> float8(ranks);
    FLX_TRY(calls.race.bootstrap.allgather(&mine, sizeof mine, float8.data()));
    const bool has_float8 = std::find(float8.begin(), float8.end(), 0) == float8.end();
    for (size_t number = 0; number < kTraits; ++number) {
        const auto trait = static_cast<Trait>(number);
        if (trait == Trait::eighth && !has_float8)
            continue;
        for (const Kind kind : Table::measured_kinds(trait))
            for (size_t i = 0; i < Table::kTraitPoints.size() && Table::kTraitPoints[i] < points; ++i) {
                const size_t bytes = Table::bytes_at(Table::kTraitPoints[i]);
                const Request request = request_with(trait, kind, bytes, ranks, calls.race.bench);
                const auto row = static_cast<size_t>(kind);
                FLX_TRY(calls.measure(request, fmt::format(" {}", text_of(trait)), all.slots_traits[number][row][i],
                                      all.met_traits[number][row][i]));
            }
    }
    return {};
}

/// Collective. Each rank's messages to the next, and some ranks' alone: where FLX gains least.
Status measure_messages(const Race &race, Lane &lane, ncclComm_t comm, size_t points, Table::Measured &slots) {
    const int ranks = race.bootstrap.size();
    const cudaStream_t stream = race.bench.stream;
    for (size_t point = 0; point < points; ++point) {
        const size_t bytes = Table::bytes_at(point);
        Table::Times &times = slots[Table::kMessages][point];
        for (const bool ring : {true, false}) {
            const std::vector<cuda::Message> messages =
                messages_of(ring, bytes, race.bootstrap.rank(), ranks, race.bench);
            std::array<double, 3> us{};
            const auto by_nccl = [&]() -> Status {
                const ncclResult_t result = settled(send_by_nccl(messages, comm, stream), comm, race.over);
                return result == ncclSuccess ? Status()
                                             : fail(Fault::nccl_refused, "NCCL's messages of {} bytes gave {}", bytes,
                                                    static_cast<int>(result));
            };
            FLX_TRY(race.run({by_nccl, [&] { return lane.post(messages, stream); }}, bytes, us));
            if (ring || us[1] * times.nccl > us[0] * times.flx)
                times = {us[1], us[0]};
            log().info("messages of {} bytes, {}: NCCL {:.1f} us, FLX {:.1f} us", bytes,
                       ring ? "each rank's to the next" : "one way", us[0], us[1]);
        }
    }
    return {};
}

}  // namespace

Status measure(Engine &engine, Bootstrap &bootstrap, Lane &lane, ncclComm_t comm, int device, const Around &around,
               const std::function<bool()> &over, Tables &tables) {
    std::string gpus;
    bool all_know = false;
    FLX_TRY(look_up(bootstrap, device, lane.is_small(), gpus, all_know));
    if (all_know) {
        {
            const std::lock_guard guard(mutex);
            tables = known[gpus];
        }
        return agree_on(bootstrap, tables);
    }
    Engine::Bench bench;
    size_t points = 0;
    FLX_TRY(open_bench(engine, bootstrap, device, bench, points));
    std::vector<cuda::Showing> shown(bootstrap.size());
    const bool open = points > 0 && show_all(bootstrap, lane, bench, shown);
    const Race race{engine, bootstrap, bench, device, around, over};
    const Calls calls{race, lane, comm, std::span(shown).first(open ? shown.size() : 0)};
    Measurements all;
    FLX_TRY(measure_calls(calls, points, all));
    FLX_TRY(measure_traits(calls, points, all));
    FLX_TRY(measure_messages(race, lane, comm, points, all.slots));
    lane.close_shown();
    FLX_TRY(bootstrap.barrier());
    engine.close_bench(device, bench);
    tables = {Table::of(all.slots, all.slots_traits), Table::of(all.met, all.met_traits), !lane.is_small()};
    const std::lock_guard guard(mutex);
    known[gpus] = tables;
    return {};
}

}  // namespace flx::nccl
