#include "apps/bench/data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>

namespace flx::bench {
namespace {

bool is_float(flx_dtype_t dtype) {
    return dtype >= FLX_F16;  // types that are measured: 8-bit floats are above
}

bool is_signed_integer(flx_dtype_t dtype) {
    return dtype == FLX_INT8 || dtype == FLX_INT16 || dtype == FLX_INT32 || dtype == FLX_INT64;
}

/// splitmix64 (Steele, Lea, Flood 2014) of an index and a rank.
uint64_t hash(uint64_t index, uint64_t rank) {
    uint64_t z = (index * 0x1000003 + rank + 1) * 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

/// Up to this magnitude the type has every integer.
int64_t exact_limit(flx_dtype_t dtype) {
    switch (dtype) {
        case FLX_F8E4M3:
            return int64_t{1} << 4;
        case FLX_F8E5M2:
            return int64_t{1} << 3;
        case FLX_F16:
            return int64_t{1} << 11;
        case FLX_BF16:
            return int64_t{1} << 8;
        case FLX_F32:
            return int64_t{1} << 24;
        case FLX_F64:
            return int64_t{1} << 53;
        default:
            return static_cast<int64_t>((~uint64_t{0} >> (64 - 8 * size_of(dtype))) >> 1);
    }
}

/// A number in [-bound, bound] from random bits.
int64_t within(uint64_t bits, int64_t bound) {
    const auto magnitude = static_cast<uint64_t>(bound);
    return static_cast<int64_t>(bits % (2 * magnitude + 1) - magnitude);
}

/// Values such that the magnitudes of one element over all ranks add up to at most `limit`.
int64_t bounded_addend(size_t index, int rank, int ranks, int64_t limit) {
    const int64_t bound = limit / ranks;
    if (bound > 0) {
        return within(hash(index, rank), bound);
    }
    // More ranks than the limit: only every stride-th rank adds something.
    const int64_t stride = (ranks + limit - 1) / limit;
    return (static_cast<int64_t>(index) + rank) % stride == 0 ? within(hash(index, rank), 1) : 0;
}

/// Values whose sum over the ranks is a multiple of `ranks`: a part that is the same on all, and one that cancels.
int64_t averaged_addend(size_t index, int rank, int ranks, int64_t limit) {
    const int64_t half_bound = limit / ranks / 2;
    const int64_t common = half_bound > 0 ? within(hash(index, ~uint64_t{0}), half_bound) : 0;
    const int64_t turn = (static_cast<int64_t>(index) + rank) % ranks;
    const int64_t pairs = std::min<int64_t>(ranks / 2, limit / 2);
    const int64_t size = std::max<int64_t>(half_bound, 1);
    if (turn < pairs) {
        return common + size;
    }
    return turn >= ranks - pairs ? common - size : common;
}

double float_input(flx_dtype_t dtype, std::optional<flx_op_t> op, size_t index, int rank, int ranks) {
    const int64_t limit = exact_limit(dtype);
    if (!op || *op == FLX_MIN || *op == FLX_MAX) {
        return static_cast<double>(within(hash(index, rank), limit));
    }
    if (*op == FLX_SUM) {
        return static_cast<double>(bounded_addend(index, rank, ranks, limit));
    }
    if (*op == FLX_AVG) {
        return static_cast<double>(averaged_addend(index, rank, ranks, limit));
    }
    const uint64_t bits = hash(index, rank);
    const bool may_be_two = (index + static_cast<size_t>(rank)) % static_cast<size_t>(ranks) < 8;
    const double magnitude = may_be_two && (bits & 1) != 0 ? 2.0 : 1.0;
    return (bits & 2) != 0 ? -magnitude : magnitude;
}

/// Two's complement in the low bits.
uint64_t integer_input(flx_dtype_t dtype, std::optional<flx_op_t> op, size_t index, int rank, int ranks) {
    const uint64_t bits = hash(index, rank);
    if (op == FLX_PROD) {
        return bits | 1;  // odd, or products of many ranks would all be 0
    }
    if (op == FLX_AVG) {
        const int64_t value = bounded_addend(index, rank, ranks, exact_limit(dtype));
        return static_cast<uint64_t>(is_signed_integer(dtype) ? value : std::abs(value));
    }
    return bits;
}

/// Cuts `bits` to the type's width and extends it to 64 bits again.
int64_t extended(flx_dtype_t dtype, uint64_t bits) {
    const auto unused = static_cast<unsigned>(64 - 8 * size_of(dtype));
    if (is_signed_integer(dtype)) {
        return static_cast<int64_t>(bits << unused) >> unused;
    }
    return static_cast<int64_t>((bits << unused) >> unused);
}

uint64_t integer_result(flx_dtype_t dtype, flx_op_t op, std::span<const uint64_t> values) {
    uint64_t result = static_cast<uint64_t>(extended(dtype, values[0]));
    for (size_t i = 1; i < values.size(); ++i) {
        const auto value = static_cast<uint64_t>(extended(dtype, values[i]));
        const bool less =
            is_signed_integer(dtype) ? static_cast<int64_t>(value) < static_cast<int64_t>(result) : value < result;
        switch (op) {
            case FLX_SUM:
            case FLX_AVG:
                result += value;
                break;
            case FLX_PROD:
                result *= value;
                break;
            case FLX_MIN:
                result = less ? value : result;
                break;
            case FLX_MAX:
                result = less ? result : value;
                break;
            default:  // not measured
                break;
        }
    }
    if (op == FLX_AVG) {
        // Magnitudes stay below 2^63 here, so that this also holds for u64; division is towards zero.
        result = static_cast<uint64_t>(static_cast<int64_t>(result) / static_cast<int64_t>(values.size()));
    }
    return result;
}

double float_result(flx_op_t op, std::span<const double> values) {
    double result = values[0];
    for (size_t i = 1; i < values.size(); ++i) {
        switch (op) {
            case FLX_SUM:
            case FLX_AVG:
                result += values[i];
                break;
            case FLX_PROD:
                result *= values[i];
                break;
            case FLX_MIN:
                result = std::min(result, values[i]);
                break;
            case FLX_MAX:
                result = std::max(result, values[i]);
                break;
            default:
                break;
        }
    }
    return op == FLX_AVG ? result / static_cast<double>(values.size()) : result;
}

/// The bits of a number with `mantissa_bits` and `exponent_bits`. `value` is one exactly, and zero or not below the
/// smallest normal number.
uint16_t small_bits(double value, int mantissa_bits, int exponent_bits) {
    if (value == 0) {
        return 0;
    }
    int exponent = 0;
    const double fraction = std::frexp(std::abs(value), &exponent);  // in [1/2, 1)
    const unsigned leading = 1U << mantissa_bits;
    const unsigned mantissa = static_cast<unsigned>(std::ldexp(fraction, mantissa_bits + 1)) - leading;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const unsigned sign = value < 0 ? leading << exponent_bits : 0U;
    return static_cast<uint16_t>(sign | static_cast<unsigned>(exponent - 1 + bias) << mantissa_bits | mantissa);
}

void store_float(flx_dtype_t dtype, double value, std::byte *dst) {
    if (dtype == FLX_F64) {
        std::memcpy(dst, &value, sizeof(value));
        return;
    }
    if (is_float8(dtype)) {
        *dst = static_cast<std::byte>(dtype == FLX_F8E4M3 ? small_bits(value, 3, 4) : small_bits(value, 2, 5));
        return;
    }
    const auto single = static_cast<float>(value);
    if (dtype == FLX_F32) {
        std::memcpy(dst, &single, sizeof(single));
        return;
    }
    const uint16_t bits =
        dtype == FLX_F16 ? small_bits(value, 10, 5) : static_cast<uint16_t>(std::bit_cast<uint32_t>(single) >> 16);
    std::memcpy(dst, &bits, sizeof(bits));
}

}  // namespace

Pattern::Pattern(flx_dtype_t dtype, std::optional<flx_op_t> op, int ranks, int last)
    : element_bytes_(size_of(dtype)), inputs_(static_cast<size_t>(ranks), Table(kPeriod * size_of(dtype))) {
    if (op) {
        result_.resize(kPeriod * element_bytes_);
    }
    const auto n = static_cast<size_t>(ranks);
    std::vector<double> reals(n);
    std::vector<uint64_t> integers(n);
    for (size_t i = 0; i < kPeriod; ++i) {
        const size_t at = i * element_bytes_;
        for (int rank = 0; rank < ranks; ++rank) {
            const auto r = static_cast<size_t>(rank);
            if (is_float(dtype)) {
                reals[r] = float_input(dtype, op, i, rank, ranks);
                store_float(dtype, reals[r], &inputs_[r][at]);
            } else {
                integers[r] = integer_input(dtype, op, i, rank, ranks);
                std::memcpy(&inputs_[r][at], &integers[r], element_bytes_);  // little endian
            }
        }
        const size_t added = last < 0 ? n : static_cast<size_t>(last) + 1;
        if (op && is_float(dtype)) {
            store_float(dtype, float_result(*op, std::span(reals).first(added)), &result_[at]);
        } else if (op) {
            const uint64_t result = integer_result(dtype, *op, std::span(integers).first(added));
            std::memcpy(&result_[at], &result, element_bytes_);
        }
    }
}

size_t Pattern::entry(size_t first, uint64_t call) const {
    constexpr uint64_t kStride = 1009;
    return (first + call % kPeriod * kStride) % kPeriod;
}

void Pattern::write_input(void *dst, int rank, size_t first, size_t count, uint64_t call) const {
    write(inputs_[static_cast<size_t>(rank)], dst, first, count, call);
}

void Pattern::write_result(void *dst, size_t first, size_t count, uint64_t call) const {
    write(result_, dst, first, count, call);
}

void Pattern::write(const Table &table, void *dst, size_t first, size_t count, uint64_t call) const {
    auto *out = static_cast<std::byte *>(dst);
    size_t at = entry(first, call);
    while (count > 0) {
        const size_t run = std::min(count, kPeriod - at);
        std::memcpy(out, &table[at * element_bytes_], run * element_bytes_);
        out += run * element_bytes_;
        count -= run;
        at = 0;
    }
}

size_t Pattern::count_wrong(const Table &table, const void *got, size_t first, size_t count, uint64_t call) const {
    const auto *in = static_cast<const std::byte *>(got);
    size_t at = entry(first, call);
    size_t wrong = 0;
    while (count > 0) {
        const size_t run = std::min(count, kPeriod - at);
        const std::byte *expected = &table[at * element_bytes_];
        if (std::memcmp(in, expected, run * element_bytes_) != 0) {
            for (size_t i = 0; i < run; ++i) {
                wrong += std::memcmp(in + i * element_bytes_, expected + i * element_bytes_, element_bytes_) != 0;
            }
        }
        in += run * element_bytes_;
        count -= run;
        at = 0;
    }
    return wrong;
}

size_t Pattern::count_wrong_input(const void *got, int rank, size_t first, size_t count, uint64_t call) const {
    return count_wrong(inputs_[static_cast<size_t>(rank)], got, first, count, call);
}

size_t Pattern::count_wrong_result(const void *got, size_t first, size_t count, uint64_t call) const {
    return count_wrong(result_, got, first, count, call);
}

namespace {

/// Where this rank's input is, and which elements of the pattern it holds. Null: it has none.
struct Input {
    std::byte *memory = nullptr;
    size_t count = 0;
    bool overwritten = false;  ///< the call writes its result there
};

Input input_of(const Job &job) {
    const size_t bytes = size_of(job.dtype);
    const size_t own_begin = job.begin_of(job.rank) * bytes;
    switch (job.kind) {
        case Collective::kAllreduce:
        case Collective::kReduceScatterBlock:
        case Collective::kReduceScatter:
        case Collective::kScan:
        case Collective::kExscan:
            return {job.in_place ? job.recv : job.send, job.shape.send_elements, job.in_place};
        case Collective::kAllgather:
        case Collective::kAllgatherv:
            return {job.in_place ? job.recv + own_begin : job.send, job.own_block(), job.in_place};
        case Collective::kGather:
        case Collective::kGatherv:
            return job.in_place && job.rank == job.root ? Input{job.recv + own_begin, job.own_block(), true}
                                                        : Input{job.send, job.own_block(), false};
        case Collective::kScatter:
        case Collective::kScatterv:
            return job.rank == job.root ? Input{job.send, job.shape.send_elements, false} : Input{};
        case Collective::kReduce:
            return job.in_place && job.rank == job.root ? Input{job.recv, job.shape.send_elements, true}
                                                        : Input{job.send, job.shape.send_elements, false};
        case Collective::kBcast:
            return job.rank == job.root ? Input{job.recv, job.shape.send_elements, true} : Input{};
        case Collective::kAlltoall:
        case Collective::kAlltoallv:
        case Collective::kSendrecv:
            return {job.in_place ? job.recv : job.send, job.counts.send_at.back() + job.counts.send.back(),
                    job.in_place};
        case Collective::kBarrier:
            break;
    }
    return {};
}

/// Bytes of `recv` that the call may use: all of the input too where a reduce-scatter works in place.
size_t recv_bytes(const Job &job) {
    if (is_exchange(job.kind)) {
        return (job.counts.receive_at.back() + job.counts.receive.back()) * size_of(job.dtype);
    }
    const bool input_there =
        job.in_place && (job.kind == Collective::kReduceScatterBlock || job.kind == Collective::kReduceScatter);
    return (input_there ? job.shape.send_elements : job.shape.recv_elements) * size_of(job.dtype);
}

size_t count_unpoisoned(const std::byte *memory, size_t count, size_t element_bytes) {
    size_t touched = 0;
    for (size_t i = 0; i < count; ++i, memory += element_bytes) {
        touched += std::any_of(memory, memory + element_bytes, [](std::byte b) { return b != kPoison; });
    }
    return touched;
}

}  // namespace

Pattern pattern_for(const Job &job) {
    const int last = !is_scan(job.kind) ? -1 : job.kind == Collective::kScan ? job.rank : std::max(0, job.rank - 1);
    return {job.dtype, has_reduction(job.kind) ? std::optional(job.op) : std::nullopt, job.ranks, last};
}

void prepare(const Job &job, const Pattern &pattern, uint64_t call) {
    std::memset(job.recv, static_cast<int>(kPoison), recv_bytes(job) + kGuardBytes);
    const Input input = input_of(job);
    if (input.memory != nullptr) {
        pattern.write_input(input.memory, job.rank, 0, input.count, call);
    }
}

size_t count_wrong(const Job &job, const Pattern &pattern, uint64_t call) {
    const size_t bytes = size_of(job.dtype);
    const size_t count = job.shape.count;
    size_t wrong = count_unpoisoned(job.recv + recv_bytes(job), kGuardBytes / bytes, bytes);
    const Input input = input_of(job);
    if (input.memory != nullptr && !input.overwritten) {
        wrong += pattern.count_wrong_input(input.memory, job.rank, 0, input.count, call);
    }
    switch (job.kind) {
        case Collective::kAllreduce:
        case Collective::kScan:
            wrong += pattern.count_wrong_result(job.recv, 0, count, call);
            break;
        case Collective::kExscan:  // rank 0's is undefined
            wrong += job.rank == 0 ? 0 : pattern.count_wrong_result(job.recv, 0, count, call);
            break;
        case Collective::kReduceScatterBlock:
        case Collective::kReduceScatter:
            wrong += pattern.count_wrong_result(job.recv, job.begin_of(job.rank), job.own_block(), call);
            break;
        case Collective::kGather:
        case Collective::kGatherv:
            if (job.rank != job.root) {
                wrong += count_unpoisoned(job.recv, job.shape.recv_elements, bytes);
                break;
            }
            [[fallthrough]];
        case Collective::kAllgather:
        case Collective::kAllgatherv:
            for (int r = 0; r < job.ranks; ++r) {
                wrong += pattern.count_wrong_input(job.recv + job.begin_of(r) * bytes, r, 0, job.block_of(r), call);
            }
            break;
        case Collective::kScatter:
        case Collective::kScatterv:
            wrong += job.in_place && job.rank == job.root
                         ? count_unpoisoned(job.recv, count, bytes)
                         : pattern.count_wrong_input(job.recv, job.root, job.begin_of(job.rank), job.own_block(), call);
            break;
        case Collective::kBcast:
            wrong += pattern.count_wrong_input(job.recv, job.root, 0, count, call);
            break;
        case Collective::kReduce:
            wrong += job.rank == job.root ? pattern.count_wrong_result(job.recv, 0, count, call)
                                          : count_unpoisoned(job.recv, count, bytes);
            break;
        case Collective::kAlltoall:
        case Collective::kAlltoallv:
        case Collective::kSendrecv:
            for (int r = 0; r < job.ranks; ++r) {
                const Counts theirs(job.shape.matrix, r, job.ranks);
                wrong += pattern.count_wrong_input(job.recv + job.counts.receive_at[r] * bytes, r,
                                                   theirs.send_at[job.rank], job.counts.receive[r], call);
            }
            break;
        case Collective::kBarrier:
            break;
    }
    return wrong;
}

}  // namespace flx::bench
