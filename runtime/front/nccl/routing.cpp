#include "runtime/front/nccl/routing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "runtime/base/text.h"

namespace flx::nccl {
namespace {

constexpr std::array<std::string_view, kKinds> kNames = {
    "AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AlltoAll", "Gather", "Scatter", "Send", "Recv"};

constexpr std::array<std::string_view, kReasons> kTexts = {
    "",
    "FLX_NCCL is off",
    "one rank",
    "more than 8 ranks",
    "ranks on several hosts, or some without FLX",
    "FLX has no GPU to use",
    "FLX could not make a communicator",
    "the communicator was revoked",
    "no bytes",
    "arguments for NCCL to judge",
    "a product of 8-bit floats",
    "a reduction of the program's own",
    "FLX has no such form",
    "memory of a symmetric window",
    "NCCL is faster at this size",
    "grouped with others of its communicator",
    "ranks did not come with the same all-to-all at once",
    "a rank's message to itself",
    "the program chose how NCCL does it",
    "the program or its NCCL is newer than FLX knows",
    "the communicator is suspended",
    "the communicator has little memory of the GPUs",
};

constexpr std::array<std::string_view, kTraits> kTraitTexts = {
    "of 16-bit floats",  "of 8-bit floats",       "of 8 bytes each",
    "of 8-bit integers", "by minimum or maximum", "in parts beside lines of 16 bytes"};

/// A win within the noise is none.
constexpr double kClearly = 0.97;

bool reduces(Kind kind) {
    return algorithms::reduces(collective_of(kind));
}
bool has_blocks(Kind kind) {
    return kind != Kind::allreduce && kind != Kind::reduce && kind != Kind::broadcast && !is_message(kind);
}
bool has_root(Kind kind) {
    return kind == Kind::broadcast || kind == Kind::reduce || is_message(kind);
}

/// Of a row of sizes at which FLX was faster. `beyond`: and beyond all that are measured.
std::string range_text(size_t first, size_t last, bool beyond) {
    const std::string from = size_text(Table::bytes_at(first));
    const std::string to = size_text(Table::bytes_at(last));
    if (beyond)
        return fmt::format("from {}", from);
    if (first == 0)
        return fmt::format("up to {}", to);
    return first == last ? fmt::format("at {}", from) : fmt::format("from {} to {}", from, to);
}

void add_times(std::vector<std::string> &times, size_t point, const Table::Times &took) {
    if (took.flx > 0)
        times.push_back(fmt::format("{} {:.1f} {:.1f}", size_text(Table::bytes_at(point)), took.nccl, took.flx));
}

/// Nothing, where nothing was measured. `faster`: by point, and beyond.
std::optional<Decision> decision_of(std::string about, std::span<const bool> faster,
                                    const std::vector<std::string> &times) {
    if (times.empty())
        return std::nullopt;
    std::vector<std::string> sizes;
    bool all = false;
    for (size_t first = 0; first < Table::kPoints; ++first) {
        if (!faster[first])
            continue;
        size_t last = first;
        while (last + 1 < Table::kPoints && faster[last + 1])
            ++last;
        const bool beyond = last + 1 == Table::kPoints && faster[Table::kPoints];
        all = first == 0 && beyond;
        sizes.push_back(range_text(first, last, beyond));
        first = last;
    }
    return Decision{std::move(about), 0,
                    all             ? "FLX"
                    : sizes.empty() ? "NCCL"
                                    : fmt::format("FLX {}, else NCCL", fmt::join(sizes, ", ")),
                    fmt::format("us of NCCL and of FLX: {}", fmt::join(times, ", "))};
}

flx_dtype_t dtype_of(ncclDataType_t type) {
    constexpr std::array kTypes = {FLX_INT8, FLX_UINT8, FLX_INT32, FLX_UINT32, FLX_INT64,  FLX_UINT64,
                                   FLX_F16,  FLX_F32,   FLX_F64,   FLX_BF16,   FLX_F8E4M3, FLX_F8E5M2};
    return static_cast<size_t>(type) < kTypes.size() ? kTypes[type] : FLX_UINT8;
}
bool is_float8(ncclDataType_t type) {
    return type == ncclFloat8e4m3 || type == ncclFloat8e5m2;
}

}  // namespace

std::string_view name_of(Kind kind) {
    return kNames[static_cast<size_t>(kind)];
}
algorithms::Collective collective_of(Kind kind) {
    using enum algorithms::Collective;
    constexpr std::array<algorithms::Collective, kKinds> kCollectives = {
        allreduce, allgather, reduce_scatter_block, bcast, reduce, alltoall, gather, scatter, send_recv, send_recv};
    return kCollectives[static_cast<size_t>(kind)];
}
std::string_view text_of(Reason reason) {
    return kTexts[static_cast<size_t>(reason)];
}

std::string_view text_of(Trait trait) {
    return kTraitTexts[static_cast<size_t>(trait)];
}

size_t size_of(ncclDataType_t type) {
    constexpr std::array<size_t, 12> kSizes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return static_cast<size_t>(type) < kSizes.size() ? kSizes[type] : 0;
}

size_t bytes_of(const Request &request, int ranks) {
    return request.count * size_of(request.type) * (has_blocks(request.kind) ? ranks : 1);
}

Operation operation_of(const Request &request, int ranks) {
    constexpr std::array kOps = {FLX_SUM, FLX_PROD, FLX_MAX, FLX_MIN, FLX_AVG};
    Operation operation;
    operation.collective = collective_of(request.kind);
    operation.in = request.in;
    operation.out = request.out;
    operation.count = request.count * (has_blocks(request.kind) ? ranks : 1);
    operation.dtype = dtype_of(request.type);
    if (reduces(request.kind))
        operation.op = kOps[request.op];
    operation.root = request.root;
    return operation;
}

uint8_t traits_of(const Request &request, int ranks) {
    uint8_t traits = 0;
    const auto has = [&traits](Trait trait) { traits |= static_cast<uint8_t>(1U << static_cast<unsigned>(trait)); };
    if (reduces(request.kind)) {
        if (request.type == ncclFloat16 || request.type == ncclBfloat16)
            has(Trait::half);
        else if (is_float8(request.type))
            has(Trait::eighth);
        else if (size_of(request.type) == sizeof(double))
            has(Trait::wide);
        else if (size_of(request.type) == 1)
            has(Trait::narrow);
        if (request.op == ncclMin || request.op == ncclMax)
            has(Trait::extreme);
    }
    constexpr size_t kLine = 16;
    if (has_blocks(request.kind) && bytes_of(request, ranks) / ranks % kLine != 0)
        has(Trait::beside);
    return traits;
}

std::span<const Kind> Table::measured_kinds(Trait trait) {
    static constexpr std::array kSums = {Kind::allreduce};
    static constexpr std::array kParts = {Kind::allgather, Kind::reduce_scatter, Kind::alltoall};
    return trait == Trait::beside ? std::span<const Kind>(kParts) : std::span<const Kind>(kSums);
}

namespace {

bool is_clear(const Table::Times &times) {
    return times.flx > 0 && times.flx < kClearly * times.nccl;
}

/// What a call with the trait would take, as far as one can tell from those that were measured.
Table::Times with_trait(const Table::Measured &plain, const Table::MeasuredTraits &traits, size_t trait, size_t kind,
                        size_t point) {
    const std::span<const Kind> kinds = Table::measured_kinds(static_cast<Trait>(trait));
    const bool itself = std::find(kinds.begin(), kinds.end(), static_cast<Kind>(kind)) != kinds.end();
    const size_t as = itself ? kind : static_cast<size_t>(kinds.front());
    Table::Times times = plain[kind][point];
    // As at the nearest point where both were measured; of two, as where FLX loses more.
    size_t nearest = Table::kPoints;
    Table::Times ratio{1, 1};
    for (size_t i = 0; i < Table::kTraitPoints.size(); ++i) {
        const size_t at = Table::kTraitPoints[i];
        const Table::Times &slow = traits[trait][as][i];
        const Table::Times &base = plain[as][at];
        const size_t away = at > point ? at - point : point - at;
        if (slow.flx <= 0 || base.flx <= 0 || away > nearest)
            continue;
        const Table::Times here{slow.flx / base.flx, slow.nccl / base.nccl};
        if (away < nearest || here.flx * ratio.nccl > ratio.flx * here.nccl)
            ratio = here;
        nearest = away;
    }
    if (point < Table::kTraitPoints.front())
        return times;
    times.flx *= ratio.flx;
    times.nccl *= ratio.nccl;
    return times;
}

}  // namespace

Table Table::all() {
    Table table;
    for (auto &kind : table.faster_)
        kind.fill(true);
    table.with_trait_.fill(table.faster_);
    return table;
}

Table Table::of(const Measured &measured, const MeasuredTraits &traits) {
    Table table;
    table.measured_ = measured;
    table.measured_traits_ = traits;
    for (size_t row = 0; row < kRows; ++row)
        for (size_t point = 0; point < kPoints; ++point)
            table.faster_[row][point] = is_clear(measured[row][point]);
    for (size_t trait = 0; trait < kTraits; ++trait)
        for (size_t kind = 0; kind < kServedKinds; ++kind)
            for (size_t point = 0; point < kPoints; ++point)
                table.with_trait_[trait][kind][point] = is_clear(with_trait(measured, traits, trait, kind, point));
    // FLX's messages go through slots at one rate, while NCCL's still gain there.
    const auto beyond = [](Faster &faster) {
        for (size_t row = 0; row < kRows; ++row)
            faster[row][kPoints] = row != kMessages && faster[row][kPoints - 1];
    };
    beyond(table.faster_);
    std::ranges::for_each(table.with_trait_, beyond);
    return table;
}

bool Table::serves(Kind kind, size_t bytes, uint8_t traits) const {
    const size_t row = is_message(kind) ? kMessages : static_cast<size_t>(kind);
    if (row >= kRows || (row == kMessages && !is_message(kind)))
        return false;
    bool all = serves(faster_, row, bytes);
    for (size_t trait = 0; trait < kTraits; ++trait)
        all = all && ((traits >> trait & 1) == 0 || serves(with_trait_[trait], row, bytes));
    return all;
}

bool Table::serves(const Faster &faster, size_t row, size_t bytes) {
    const auto &at = faster[row];
    size_t above = 0;
    while (above < kPoints && bytes_at(above) < bytes)
        ++above;
    if (above == kPoints)
        return at[kPoints];
    return at[above] && (above == 0 || bytes_at(above) == bytes || at[above - 1]);
}

std::vector<Decision> Table::explain(std::string_view way) const {
    std::vector<Decision> decisions;
    for (size_t row = 0; row < kRows; ++row)
        if (std::optional<Decision> decision = explain_row(row, way))
            decisions.push_back(std::move(*decision));
    for (size_t trait = 0; trait < kTraits; ++trait)
        for (const Kind kind : measured_kinds(static_cast<Trait>(trait)))
            if (std::optional<Decision> decision = explain_trait(trait, static_cast<size_t>(kind), way))
                decisions.push_back(std::move(*decision));
    return decisions;
}

std::vector<Decision> Tables::explain() const {
    std::vector<Decision> decisions = slots.explain("");
    std::ranges::move(met.explain(" into open outputs"), std::back_inserter(decisions));
    return decisions;
}

std::optional<Decision> Table::explain_row(size_t row, std::string_view way) const {
    std::vector<std::string> times;
    for (size_t point = 0; point < kPoints; ++point)
        add_times(times, point, measured_[row][point]);
    const std::string_view name = row == kMessages ? "Send and Recv" : name_of(static_cast<Kind>(row));
    return decision_of(fmt::format("{}{}", name, way), faster_[row], times);
}

std::optional<Decision> Table::explain_trait(size_t trait, size_t kind, std::string_view way) const {
    std::vector<std::string> times;
    for (size_t i = 0; i < kTraitPoints.size(); ++i)
        add_times(times, kTraitPoints[i], measured_traits_[trait][kind][i]);
    return decision_of(
        fmt::format("{} {}{}", name_of(static_cast<Kind>(kind)), text_of(static_cast<Trait>(trait)), way),
        with_trait_[trait][kind], times);
}

Reason route(const Request &request, int ranks, const Table &table) {
    const size_t element = size_of(request.type);
    if (request.config != nullptr)
        return Reason::configured;
    if (static_cast<size_t>(request.kind) >= kServedKinds && !is_message(request.kind))
        return Reason::form;
    if (request.count == 0)
        return Reason::empty;
    if (element == 0 || (has_root(request.kind) && (request.root < 0 || request.root >= ranks)))
        return Reason::invalid;
    constexpr size_t kMost = SIZE_MAX / 16;
    if (request.count > kMost / element / static_cast<size_t>(ranks))
        return Reason::invalid;
    if (reduces(request.kind)) {
        if (request.op < 0 || request.op >= ncclNumOps)
            return Reason::reduction;
        if (is_float8(request.type) && request.op == ncclProd)
            return Reason::type;
    }
    return table.serves(request.kind, bytes_of(request, ranks), traits_of(request, ranks)) ? Reason::none
                                                                                           : Reason::slower;
}

bool known_to(int version, ncclDataType_t type) {
    constexpr int kFloat8 = 22400;
    return version >= kFloat8 || !is_float8(type);
}

bool is_newer(unsigned built, int version) {
    return built != 0 ? built > kNcclNewest : version > kNcclNewest;
}

}  // namespace flx::nccl
