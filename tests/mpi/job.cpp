#include "tests/mpi/job.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <numeric>

#include "tests/mpi/harness.h"

namespace flx::test {
namespace {

constexpr std::byte kFill{0xa5};
constexpr size_t kGuard = 64;
constexpr std::array kNames = {"barrier",        "allreduce", "reduce",    "reduce_scatter_block",
                               "reduce_scatter", "bcast",     "allgather", "allgatherv",
                               "gather",         "gatherv",   "scatter",   "scatterv",
                               "alltoall",       "alltoallv", "scan",      "exscan"};

/// Elements that `from` has for `to`, where lengths are given. Some are none.
size_t length(const JobCase &c, int from, int to) {
    if (c.count == 0)
        return 0;
    const uint64_t random = Random::mix(c.seed + static_cast<uint64_t>(from) * 31 + static_cast<uint64_t>(to) * 977);
    return random % 4 == 0 ? 0 : (c.count + random % (c.count + 3)) / 2;
}

/// Blocks one after the other in an order of their own, with gaps.
std::vector<size_t> places(const std::vector<size_t> &counts, size_t gap) {
    std::vector<size_t> displs(counts.size());
    size_t at = gap;
    for (size_t i = counts.size(); i-- > 0;) {
        displs[i] = at;
        at += counts[i] + gap;
    }
    return displs;
}

template <typename Blocking, typename NonBlocking, typename Init, typename... Arguments>
flx_status_t by(Manner manner, flx_comm_t comm, flx_request_t *request, Blocking blocking, NonBlocking non_blocking,
                Init init, Arguments... arguments) {
    switch (manner) {
        case Manner::blocking:
            return blocking(arguments..., comm);
        case Manner::non_blocking:
            return non_blocking(arguments..., comm, request);
        default:
            return init(arguments..., comm, request);
    }
}

std::vector<int> ints(const std::vector<size_t> &numbers) {
    return {numbers.begin(), numbers.end()};
}

MPI_Datatype mpi_type(flx_dtype_t dtype) {
    switch (dtype) {
        case FLX_INT8:
            return MPI_INT8_T;
        case FLX_UINT8:
            return MPI_UINT8_T;
        case FLX_INT16:
            return MPI_INT16_T;
        case FLX_INT32:
            return MPI_INT32_T;
        case FLX_UINT32:
            return MPI_UINT32_T;
        case FLX_INT64:
            return MPI_INT64_T;
        case FLX_UINT64:
            return MPI_UINT64_T;
        case FLX_F32:
            return MPI_FLOAT;
        case FLX_F64:
            return MPI_DOUBLE;
        case FLX_COMPLEX_F64:
            return MPI_C_DOUBLE_COMPLEX;
        case FLX_F64_INT32:
            return MPI_DOUBLE_INT;
        case FLX_INT32_INT32:
            return MPI_2INT;
        default:
            return MPI_DATATYPE_NULL;
    }
}

MPI_Op mpi_op(int op) {
    constexpr int kNone = -1;
    static const std::array<MPI_Op, 13> ops = {MPI_SUM,  MPI_PROD, MPI_MIN, MPI_MAX,  MPI_OP_NULL, MPI_LAND,  MPI_LOR,
                                               MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_MINLOC,  MPI_MAXLOC};
    return op > kNone && op < static_cast<int>(ops.size()) ? ops[static_cast<size_t>(op)] : MPI_OP_NULL;
}

}  // namespace

const char *name_of(Kind kind) {
    return kNames[static_cast<size_t>(kind)];
}

bool kind_reduces(Kind kind) {
    return kind == Kind::allreduce || kind == Kind::reduce || kind == Kind::reduce_scatter_block ||
           kind == Kind::reduce_scatter || kind == Kind::scan || kind == Kind::exscan;
}

std::string to_string(const JobCase &c) {
    return fmt::format("{} dtype {} op {} count {} root {}{} seed {}", name_of(c.kind), static_cast<int>(c.dtype), c.op,
                       c.count, c.root, c.in_place ? ", in place" : "", c.seed);
}

Job::Job(const JobCase &c, int rank, int size) : case_(c), rank_(rank), size_(size), element_(element_size(c.dtype)) {
    reduces_ = kind_reduces(c.kind);
    if (c.op == kCompose) {
        own_op_ = flx_op_create(compose_all, &reductions_, 0, &op_) == FLX_SUCCESS;
    } else if (c.op == kScaledSum) {
        std::array<std::byte, 16> factor{};
        store(c.dtype, {rank + 1, 0}, factor.data());
        own_op_ = flx_op_create_scaled_sum(factor.data(), c.dtype, &op_) == FLX_SUCCESS;
    } else {
        op_ = static_cast<flx_op_t>(c.op);
    }
    lay_out();
    in_before_ = in_.memory;
    out_before_ = out_.memory;
}

Job::~Job() {
    if (own_op_)
        flx_op_free(&op_);
}

void Job::make(Side &side, size_t elements) const {
    // Not aligned to more than an element.
    const size_t shift = case_.seed % 3 * element_;
    side.memory.assign(elements * element_ + 2 * kGuard + shift, kFill);
    side.data = side.memory.data() + kGuard + shift;
    side.elements = elements;
}

void Job::put(Side &side, size_t at, size_t count, int rank, size_t first) const {
    for (size_t i = 0; i < count; ++i)
        store(case_.dtype, input(reduces_ ? case_.op : -1, case_.dtype, rank, first + i, case_.seed),
              side.data + (at + i) * element_);
}

/// Inputs are numbered so that element i of what rank r sends to rank s has index s·stride + i.
void Job::lay_out() {
    const size_t n = case_.count;
    const auto ranks = static_cast<size_t>(size_);
    const auto own = static_cast<size_t>(rank_);
    const size_t stride = 2 * n + 8;
    const bool root = rank_ == case_.root;
    const size_t gap = case_.seed % 2 * 3;
    in_place_ = case_.in_place;
    switch (case_.kind) {
        case Kind::barrier:
            break;
        case Kind::allreduce:
        case Kind::scan:
        case Kind::exscan:
        case Kind::reduce: {
            const bool result = case_.kind != Kind::reduce || root;
            in_place_ = in_place_ && result;
            make(out_, result ? n : 0);
            make(in_, in_place_ ? 0 : n);
            put(in_place_ ? out_ : in_, 0, n, rank_, 0);
            if (case_.kind == Kind::exscan && rank_ == 0)
                break;
            const int last = case_.kind == Kind::scan ? rank_ : case_.kind == Kind::exscan ? rank_ - 1 : size_ - 1;
            if (result)
                ranges_.push_back({0, n, last, 0});
            break;
        }
        case Kind::reduce_scatter_block:
        case Kind::reduce_scatter: {
            counts_.assign(ranks, n);
            for (int to = 0; case_.kind == Kind::reduce_scatter && to < size_; ++to)
                counts_[static_cast<size_t>(to)] = length(case_, 0, to);
            const size_t total = std::accumulate(counts_.begin(), counts_.end(), size_t{0});
            const size_t before = std::accumulate(counts_.begin(), counts_.begin() + rank_, size_t{0});
            make(out_, in_place_ ? total : counts_[own]);
            make(in_, in_place_ ? 0 : total);
            put(in_place_ ? out_ : in_, 0, total, rank_, 0);
            ranges_.push_back({0, counts_[own], size_ - 1, before});
            break;
        }
        case Kind::bcast:
            make(out_, n);
            in_place_ = true;
            if (root)
                put(out_, 0, n, rank_, 0);
            ranges_.push_back({0, n, case_.root, 0});
            break;
        case Kind::allgather:
        case Kind::gather:
        case Kind::allgatherv:
        case Kind::gatherv: {
            const bool lengths = case_.kind == Kind::allgatherv || case_.kind == Kind::gatherv;
            const bool result = case_.kind == Kind::allgather || case_.kind == Kind::allgatherv || root;
            in_place_ = in_place_ && result;
            for (int from = 0; from < size_; ++from)
                counts_.push_back(lengths ? length(case_, from, 0) : n);
            displs_ = lengths ? places(counts_, gap) : std::vector<size_t>(ranks);
            for (size_t from = 0; !lengths && from < ranks; ++from)
                displs_[from] = from * n;
            make(out_, result ? std::accumulate(counts_.begin(), counts_.end(), size_t{0}) + (ranks + 1) * gap : 0);
            make(in_, in_place_ ? 0 : counts_[own]);
            put(in_place_ ? out_ : in_, in_place_ ? displs_[own] : 0, counts_[own], rank_, 0);
            for (int from = 0; result && from < size_; ++from)
                ranges_.push_back({displs_[static_cast<size_t>(from)], counts_[static_cast<size_t>(from)], from, 0});
            break;
        }
        case Kind::scatter:
        case Kind::scatterv: {
            const bool lengths = case_.kind == Kind::scatterv;
            in_place_ = in_place_ && root;
            for (int to = 0; to < size_; ++to)
                counts_.push_back(lengths ? length(case_, 0, to) : n);
            displs_ = lengths ? places(counts_, gap) : std::vector<size_t>(ranks);
            for (size_t to = 0; !lengths && to < ranks; ++to)
                displs_[to] = to * n;
            make(in_, root ? std::accumulate(counts_.begin(), counts_.end(), size_t{0}) + (ranks + 1) * gap : 0);
            make(out_, in_place_ ? 0 : counts_[own]);
            for (size_t to = 0; root && to < ranks; ++to)
                put(in_, displs_[to], counts_[to], rank_, to * stride);
            if (!in_place_)
                ranges_.push_back({0, counts_[own], case_.root, own * stride});
            break;
        }
        case Kind::alltoall:
        case Kind::alltoallv: {
            const bool lengths = case_.kind == Kind::alltoallv;
            for (int peer = 0; peer < size_; ++peer) {
                // In place, what two ranks exchange has one length.
                const int low = std::min(peer, rank_);
                const int high = std::max(peer, rank_);
                counts_.push_back(!lengths ? n : in_place_ ? length(case_, low, high) : length(case_, peer, rank_));
                sendcounts_.push_back(!lengths ? n : in_place_ ? counts_.back() : length(case_, rank_, peer));
            }
            displs_ = places(counts_, lengths ? gap : 0);
            sdispls_ = in_place_ ? displs_ : places(sendcounts_, lengths ? gap : 0);
            for (size_t peer = 0; !lengths && peer < ranks; ++peer)
                displs_[peer] = sdispls_[peer] = peer * n;
            const size_t gaps = (ranks + 1) * gap;
            make(out_, std::accumulate(counts_.begin(), counts_.end(), size_t{0}) + gaps);
            make(in_, in_place_ ? 0 : std::accumulate(sendcounts_.begin(), sendcounts_.end(), size_t{0}) + gaps);
            for (size_t to = 0; to < ranks; ++to)
                put(in_place_ ? out_ : in_, sdispls_[to], sendcounts_[to], rank_, to * stride);
            for (int from = 0; from < size_; ++from)
                ranges_.push_back(
                    {displs_[static_cast<size_t>(from)], counts_[static_cast<size_t>(from)], from, own * stride});
            break;
        }
    }
}

std::pmr::memory_resource &job_memory(std::pmr::memory_resource *other) {
    static std::pmr::memory_resource *memory = std::pmr::new_delete_resource();
    if (other != nullptr)
        memory = other;
    return *memory;
}

void Job::refill() {
    std::memcpy(in_.memory.data(), in_before_.data(), in_before_.size());
    std::memcpy(out_.memory.data(), out_before_.data(), out_before_.size());
}

bool Job::as_before() const {
    return in_.memory == in_before_ && out_.memory == out_before_;
}

flx_status_t Job::call(Manner manner, flx_comm_t comm, flx_request_t *request) {
    const void *in = in_place_ ? FLX_IN_PLACE : in_.data;
    void *out = out_.data;
    const size_t n = case_.count;
    const flx_dtype_t dtype = case_.dtype;
    const int root = case_.root;
    const auto own = static_cast<size_t>(rank_);
#define FLX_BY(name, ...) \
    by(manner, comm, request, flx_##name, flx_i##name, flx_##name##_init __VA_OPT__(, ) __VA_ARGS__)
    switch (case_.kind) {
        case Kind::barrier:
            return FLX_BY(barrier);
        case Kind::allreduce:
            return FLX_BY(allreduce, in, out, n, dtype, op_);
        case Kind::reduce:
            return FLX_BY(reduce, in, out, n, dtype, op_, root);
        case Kind::reduce_scatter_block:
            return FLX_BY(reduce_scatter_block, in, out, n, dtype, op_);
        case Kind::reduce_scatter:
            return FLX_BY(reduce_scatter, in, out, counts_.data(), dtype, op_);
        case Kind::bcast:
            return FLX_BY(bcast, out, n, dtype, root);
        case Kind::allgather:
            return FLX_BY(allgather, in, out, n, dtype);
        case Kind::allgatherv:
            return FLX_BY(allgatherv, in, counts_[own], out, counts_.data(), displs_.data(), dtype);
        case Kind::gather:
            return FLX_BY(gather, in, out, n, dtype, root);
        case Kind::gatherv:
            return FLX_BY(gatherv, in, counts_[own], out, counts_.data(), displs_.data(), dtype, root);
        case Kind::scatter:
            return FLX_BY(scatter, in_.data, in_place_ ? FLX_IN_PLACE : out, n, dtype, root);
        case Kind::scatterv:
            return FLX_BY(scatterv, in_.data, counts_.data(), displs_.data(), in_place_ ? FLX_IN_PLACE : out,
                          counts_[own], dtype, root);
        case Kind::alltoall:
            return FLX_BY(alltoall, in, out, n, dtype);
        case Kind::alltoallv:
            return FLX_BY(alltoallv, in, out, sendcounts_.data(), sdispls_.data(), counts_.data(), displs_.data(),
                          dtype);
        case Kind::scan:
            return FLX_BY(scan, in, out, n, dtype, op_);
        case Kind::exscan:
            if (own == 0 && !in_place_) {  // what rank 0 does not get need have no place of its own, or none at all
                const std::array<void *, 4> places = {out, nullptr, in_.data, reinterpret_cast<void *>(64)};
                return FLX_BY(exscan, in, places[case_.seed % places.size()], n, dtype, op_);
            }
            return FLX_BY(exscan, in, out, n, dtype, op_);
    }
#undef FLX_BY
    return FLX_ERR_ARGUMENT;
}

Element Job::expected(const Range &range, size_t i) const {
    return reduces_ ? reduced(case_.op, case_.dtype, range.rank, range.first + i, case_.seed)
                    : input(-1, case_.dtype, range.rank, range.first + i, case_.seed);
}

std::string Job::verdict() const {
    std::pmr::vector<std::byte> rest = out_.memory;
    for (const Range &range : ranges_) {
        for (size_t i = 0; i < range.count; ++i) {
            const size_t at = (range.at + i) * element_;
            std::array<std::byte, 64> memory{};
            store(case_.dtype, expected(range, i), memory.data());
            const Element should = load(case_.dtype, memory.data());
            const Element is = load(case_.dtype, out_.data + at);
            if (!(is == should))
                return fmt::format("{}: rank {}: element {} is {}, {} and should be {}, {}", to_string(case_), rank_,
                                   range.at + i, is.a, is.b, should.a, should.b);
        }
        const auto offset = static_cast<size_t>(out_.data - out_.memory.data()) + range.at * element_;
        if (range.count != 0)
            std::memcpy(rest.data() + offset, out_before_.data() + offset, range.count * element_);
    }
    // In place, reduce_scatter may leave anything behind its result, and exscan in rank 0's buffer nothing new.
    const bool scratch = in_place_ && (case_.kind == Kind::reduce_scatter_block || case_.kind == Kind::reduce_scatter);
    const size_t from = scratch ? 0 : rest.size();
    for (size_t i = 0; i < rest.size(); ++i) {
        const auto data = static_cast<size_t>(out_.data - out_.memory.data());
        const bool inside = i >= data && i < data + out_.elements * element_;
        if (rest[i] != out_before_[i] && !(inside && i >= from))
            return fmt::format("{}: rank {}: byte {} beside the result was written", to_string(case_), rank_, i);
    }
    if (in_.memory != in_before_)
        return fmt::format("{}: rank {}: the input was written", to_string(case_), rank_);
    return {};
}

bool Job::mpi_can() const {
    if (mpi_type(case_.dtype) == MPI_DATATYPE_NULL)
        return false;
    if (!reduces_)
        return true;
    // Open MPI 4.1.4 gets sums of one byte wrong.
    return mpi_op(case_.op) != MPI_OP_NULL && element_ > 1;
}

std::string Job::compare_with_mpi(MPI_Comm comm) {
    const std::pmr::vector<std::byte> ours = out_.memory;
    refill();
    const void *in = in_place_ ? MPI_IN_PLACE : static_cast<const void *>(in_.data);
    void *out = out_.data;
    const auto n = static_cast<int>(case_.count);
    const int root = case_.root;
    const MPI_Datatype type = mpi_type(case_.dtype);
    const MPI_Op op = reduces_ ? mpi_op(case_.op) : MPI_OP_NULL;
    const std::vector<int> counts = ints(counts_);
    const std::vector<int> displs = ints(displs_);
    const std::vector<int> sendcounts = ints(sendcounts_);
    const std::vector<int> sdispls = ints(sdispls_);
    const int own = counts.empty() ? 0 : counts[static_cast<size_t>(rank_)];
    void *here = in_place_ ? MPI_IN_PLACE : out;
    switch (case_.kind) {
        case Kind::barrier:
            MPI_Barrier(comm);
            break;
        case Kind::allreduce:
            MPI_Allreduce(in, out, n, type, op, comm);
            break;
        case Kind::reduce:
            MPI_Reduce(in, out, n, type, op, root, comm);
            break;
        case Kind::reduce_scatter_block:
            MPI_Reduce_scatter_block(in, out, n, type, op, comm);
            break;
        case Kind::reduce_scatter:
            MPI_Reduce_scatter(in, out, counts.data(), type, op, comm);
            break;
        case Kind::bcast:
            MPI_Bcast(out, n, type, root, comm);
            break;
        case Kind::allgather:
            MPI_Allgather(in, n, type, out, n, type, comm);
            break;
        case Kind::allgatherv:
            MPI_Allgatherv(in, own, type, out, counts.data(), displs.data(), type, comm);
            break;
        case Kind::gather:
            MPI_Gather(in, n, type, out, n, type, root, comm);
            break;
        case Kind::gatherv:
            MPI_Gatherv(in, own, type, out, counts.data(), displs.data(), type, root, comm);
            break;
        case Kind::scatter:
            MPI_Scatter(in_.data, n, type, here, n, type, root, comm);
            break;
        case Kind::scatterv:
            MPI_Scatterv(in_.data, counts.data(), displs.data(), type, here, own, type, root, comm);
            break;
        case Kind::alltoall:
            MPI_Alltoall(in, n, type, out, n, type, comm);
            break;
        case Kind::alltoallv:
            MPI_Alltoallv(in, sendcounts.data(), sdispls.data(), type, out, counts.data(), displs.data(), type, comm);
            break;
        case Kind::scan:
            MPI_Scan(in, out, n, type, op, comm);
            break;
        case Kind::exscan:
            MPI_Exscan(in, out, n, type, op, comm);
            break;
    }
    for (const Range &range : ranges_) {
        for (size_t i = 0; i < range.count; ++i) {
            const auto at = static_cast<size_t>(out_.data - out_.memory.data()) + (range.at + i) * element_;
            const Element mine = load(case_.dtype, ours.data() + at);
            const Element theirs = load(case_.dtype, out_.memory.data() + at);
            if (!(mine == theirs))
                return fmt::format("{}: rank {}: element {} is {}, {} by FLX and {}, {} by MPI", to_string(case_),
                                   rank_, range.at + i, mine.a, mine.b, theirs.a, theirs.b);
        }
    }
    return {};
}

}  // namespace flx::test
