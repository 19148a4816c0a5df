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
};

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

Table Table::all() {
    Table table;
    for (auto &kind : table.faster_)
        kind.fill(true);
    return table;
}

Table Table::of(const Measured &measured) {
    Table table;
    table.measured_ = measured;
    for (size_t row = 0; row < kRows; ++row)
        for (size_t point = 0; point < kPoints; ++point) {
            const Times &times = measured[row][point];
            table.faster_[row][point] = times.flx > 0 && times.flx < kClearly * times.nccl;
        }
    // FLX's messages go through slots at one rate, while NCCL's still gain there.
    for (size_t row = 0; row < kRows; ++row)
        table.faster_[row][kPoints] = row != kMessages && table.faster_[row][kPoints - 1];
    return table;
}

bool Table::serves(Kind kind, size_t bytes) const {
    const size_t row = is_message(kind) ? kMessages : static_cast<size_t>(kind);
    if (row >= kRows || (row == kMessages && !is_message(kind)))
        return false;
    const auto &faster = faster_[row];
    size_t above = 0;
    while (above < kPoints && bytes_at(above) < bytes)
        ++above;
    if (above == kPoints)
        return faster[kPoints];
    return faster[above] && (above == 0 || bytes_at(above) == bytes || faster[above - 1]);
}

std::vector<Decision> Table::explain(std::string_view way) const {
    std::vector<Decision> decisions;
    for (size_t row = 0; row < kRows; ++row)
        if (std::optional<Decision> decision = explain_row(row, way))
            decisions.push_back(std::move(*decision));
    return decisions;
}

std::vector<Decision> Tables::explain() const {
    std::vector<Decision> decisions = slots.explain("");
    std::ranges::move(met.explain(" into open outputs"), std::back_inserter(decisions));
    return decisions;
}

std::optional<Decision> Table::explain_row(size_t row, std::string_view way) const {
    const auto &faster = faster_[row];
    std::vector<std::string> sizes;
    std::vector<std::string> times;
    bool all = false;
    for (size_t point = 0; point < kPoints; ++point) {
        const Times &took = measured_[row][point];
        if (took.flx > 0)
            times.push_back(fmt::format("{} {:.1f} {:.1f}", size_text(bytes_at(point)), took.nccl, took.flx));
    }
    for (size_t first = 0; first < kPoints; ++first) {
        if (!faster[first])
            continue;
        size_t last = first;
        while (last + 1 < kPoints && faster[last + 1])
            ++last;
        const bool beyond = last + 1 == kPoints && faster[kPoints];
        all = first == 0 && beyond;
        sizes.push_back(range_text(first, last, beyond));
        first = last;
    }
    if (times.empty())
        return std::nullopt;
    const std::string_view name = row == kMessages ? "Send and Recv" : name_of(static_cast<Kind>(row));
    return Decision{fmt::format("{}{}", name, way), 0,
                    all             ? "FLX"
                    : sizes.empty() ? "NCCL"
                                    : fmt::format("FLX {}, else NCCL", fmt::join(sizes, ", ")),
                    fmt::format("us of NCCL and of FLX: {}", fmt::join(times, ", "))};
}

Reason route(const Request &request, int ranks, const Table &table) {
    const size_t element = size_of(request.type);
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
    return table.serves(request.kind, bytes_of(request, ranks)) ? Reason::none : Reason::slower;
}

bool known_to(int version, ncclDataType_t type) {
    constexpr int kFloat8 = 22400;
    return version >= kFloat8 || !is_float8(type);
}

}  // namespace flx::nccl
