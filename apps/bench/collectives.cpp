#include "apps/bench/collectives.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace flx::bench {
namespace {

constexpr std::array<std::string_view, 17> kCollectives = {"allreduce",  "reduce_scatter_block",
                                                           "allgather",  "bcast",
                                                           "reduce",     "barrier",
                                                           "alltoall",   "alltoallv",
                                                           "sendrecv",   "gather",
                                                           "scatter",    "scan",
                                                           "exscan",     "reduce_scatter",
                                                           "allgatherv", "gatherv",
                                                           "scatterv"};
struct Dtype {
    flx_dtype_t dtype;
    std::string_view name;
    size_t bytes;
};
constexpr std::array kDtypes = {
    Dtype{FLX_INT8, "i8", 1},       Dtype{FLX_UINT8, "u8", 1},   Dtype{FLX_INT16, "i16", 2},
    Dtype{FLX_UINT16, "u16", 2},    Dtype{FLX_INT32, "i32", 4},  Dtype{FLX_UINT32, "u32", 4},
    Dtype{FLX_INT64, "i64", 8},     Dtype{FLX_UINT64, "u64", 8}, Dtype{FLX_F8E4M3, "f8e4m3", 1},
    Dtype{FLX_F8E5M2, "f8e5m2", 1}, Dtype{FLX_F16, "f16", 2},    Dtype{FLX_BF16, "bf16", 2},
    Dtype{FLX_F32, "f32", 4},       Dtype{FLX_F64, "f64", 8}};
constexpr std::array<std::string_view, 5> kOps = {"sum", "prod", "min", "max", "avg"};

template <typename T, size_t N>
std::optional<T> find_name(const std::array<std::string_view, N> &names, std::string_view name) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
        return std::nullopt;
    }
    return static_cast<T>(found - names.begin());
}

/// Of a type that is measured.
const Dtype &entry_of(flx_dtype_t dtype) {
    return *std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype &entry) { return entry.dtype == dtype; });
}

}  // namespace

std::string_view flx_name_of(Collective kind) {
    return kind == Collective::kSendrecv ? "send_recv" : name_of(kind);
}

std::string_view name_of(Collective kind) {
    return kCollectives[static_cast<size_t>(kind)];
}
std::string_view name_of(flx_dtype_t dtype) {
    return entry_of(dtype).name;
}
std::string_view name_of(flx_op_t op) {
    return kOps[static_cast<size_t>(op)];
}
std::optional<Collective> parse_collective(std::string_view name) {
    return find_name<Collective>(kCollectives, name);
}
std::optional<flx_dtype_t> parse_dtype(std::string_view name) {
    const auto found =
        std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype &entry) { return entry.name == name; });
    return found == kDtypes.end() ? std::nullopt : std::optional(found->dtype);
}
std::optional<flx_op_t> parse_op(std::string_view name) {
    return find_name<flx_op_t>(kOps, name);
}
std::string known_collectives() {
    return fmt::format("{}", fmt::join(kCollectives, ", "));
}
std::string known_dtypes() {
    std::string names;
    for (const Dtype &entry : kDtypes)
        names += fmt::format("{}{}", names.empty() ? "" : ", ", entry.name);
    return names;
}
std::string known_ops() {
    return fmt::format("{}", fmt::join(kOps, ", "));
}

size_t size_of(flx_dtype_t dtype) {
    return entry_of(dtype).bytes;
}

bool is_float8(flx_dtype_t dtype) {
    return dtype == FLX_F8E4M3 || dtype == FLX_F8E5M2;
}

bool has_reduction(Collective kind) {
    return kind == Collective::kAllreduce || kind == Collective::kReduceScatterBlock || kind == Collective::kReduce ||
           kind == Collective::kReduceScatter || is_scan(kind);
}

bool is_uneven(Collective kind) {
    return kind == Collective::kReduceScatter || kind == Collective::kAllgatherv || kind == Collective::kGatherv ||
           kind == Collective::kScatterv;
}

bool is_scan(Collective kind) {
    return kind == Collective::kScan || kind == Collective::kExscan;
}

bool is_for_devices(Collective kind) {
    return kind == Collective::kAlltoall || kind == Collective::kSendrecv ||
           static_cast<int>(kind) < static_cast<int>(Collective::kBarrier);
}

bool is_exchange(Collective kind) {
    return kind == Collective::kAlltoall || kind == Collective::kAlltoallv || kind == Collective::kSendrecv;
}

namespace {

Shape exchange_shape(Collective kind, uint64_t bytes, flx_dtype_t dtype, int ranks, const Traffic &traffic) {
    const auto n = static_cast<size_t>(ranks);
    const bool blocks = kind == Collective::kAlltoall || traffic.kind == Traffic::Kind::kUniform;
    const size_t least = kind == Collective::kSendrecv || !blocks ? 1 : n;
    const size_t elements = bytes == 0 ? 0 : std::max<size_t>(bytes / size_of(dtype) / least, 1) * least;
    Shape shape;
    shape.matrix = kind == Collective::kSendrecv
                       ? ring_matrix(elements, ranks)
                       : traffic_matrix(kind == Collective::kAlltoall ? Traffic{} : traffic, elements, ranks);
    shape.count = kind == Collective::kAlltoall ? elements / n : elements;
    for (int rank = 0; rank < ranks; ++rank) {
        const Counts counts(shape.matrix, rank, ranks);
        shape.send_elements = std::max(shape.send_elements, counts.send_at.back() + counts.send.back());
        shape.recv_elements = std::max(shape.recv_elements, counts.receive_at.back() + counts.receive.back());
    }
    shape.bytes = elements * size_of(dtype);
    return shape;
}

/// Equal blocks, every second of which gives a quarter to the one before it.
void make_uneven(Shape &shape, int ranks) {
    const size_t equal = shape.count;
    const auto n = static_cast<size_t>(ranks);
    size_t at = 0;
    for (size_t rank = 0; rank < n; ++rank) {
        const size_t moved = rank % 2 == 0 && rank + 1 == n ? 0 : equal / 4;
        shape.blocks.push_back(rank % 2 == 0 ? equal + moved : equal - moved);
        shape.begins.push_back(at);
        at += shape.blocks.back();
    }
    shape.count = *std::max_element(shape.blocks.begin(), shape.blocks.end());
    shape.int_blocks.assign(shape.blocks.begin(), shape.blocks.end());
    shape.int_begins.assign(shape.begins.begin(), shape.begins.end());
}

/// Whether a rank's input (output) is all ranks' blocks.
bool takes_all(Collective kind) {
    return kind == Collective::kReduceScatterBlock || kind == Collective::kReduceScatter ||
           kind == Collective::kScatter || kind == Collective::kScatterv;
}

bool gives_all(Collective kind) {
    return kind == Collective::kAllgather || kind == Collective::kAllgatherv || kind == Collective::kGather ||
           kind == Collective::kGatherv;
}

}  // namespace

Shape shape_for(Collective kind, uint64_t bytes, flx_dtype_t dtype, int ranks, const Traffic &traffic) {
    if (is_exchange(kind)) {
        return exchange_shape(kind, bytes, dtype, ranks, traffic);
    }
    const auto n = static_cast<size_t>(ranks);
    const bool blocks = takes_all(kind) || gives_all(kind);
    Shape shape;
    if (kind == Collective::kBarrier) {
        return shape;
    }
    const size_t unit = size_of(dtype) * (blocks ? n : 1);
    shape.count = bytes == 0 ? 0 : std::max<size_t>(1, bytes / unit);
    const size_t all = n * shape.count;
    if (is_uneven(kind)) {
        make_uneven(shape, ranks);
    }
    shape.send_elements = takes_all(kind) ? all : shape.count;
    shape.recv_elements = gives_all(kind) ? all : shape.count;
    shape.bytes = std::max(shape.send_elements, shape.recv_elements) * size_of(dtype);
    return shape;
}

double bus_factor(Collective kind, int ranks, const Traffic &traffic) {
    const double n = ranks;
    switch (kind) {
        case Collective::kAllreduce:
            return 2.0 * (n - 1) / n;
        case Collective::kReduceScatterBlock:
        case Collective::kAllgather:
        case Collective::kReduceScatter:
        case Collective::kAllgatherv:
        case Collective::kGather:
        case Collective::kGatherv:
        case Collective::kScatter:
        case Collective::kScatterv:
        case Collective::kAlltoall:
            return (n - 1) / n;
        case Collective::kScan:
        case Collective::kExscan:
        case Collective::kBcast:
        case Collective::kReduce:
        case Collective::kSendrecv:
            return 1.0;
        case Collective::kAlltoallv:
            return traffic.kind == Traffic::Kind::kUniform ? (n - 1) / n : 1.0;
        case Collective::kBarrier:
            break;
    }
    return 0.0;
}

}  // namespace flx::bench
