#include "tests/mpi/reference.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory_resource>
#include <new>
#include <sstream>
#include <type_traits>

namespace flx::test {
namespace {

// 8- and 16-bit floats, written apart from the library's so that an error in those is seen.
struct E4m3 {
    uint8_t bits;
    static constexpr int kFraction = 3;
    static constexpr int kBias = 7;
    static constexpr double kLargest = 448;
};
struct E5m2 {
    uint8_t bits;
    static constexpr int kFraction = 2;
    static constexpr int kBias = 15;
    static constexpr double kLargest = 57344;
};
template <typename T>
constexpr bool kFloat8 = std::is_same_v<T, E4m3> || std::is_same_v<T, E5m2>;
struct F16 {
    uint16_t bits;
};
struct Bf16 {
    uint16_t bits;
};

template <typename T>
struct Limits {
    static constexpr double kEps =
        std::is_floating_point_v<T> ? static_cast<double>(std::numeric_limits<T>::epsilon()) : 0;
};
template <>
struct Limits<E4m3> {
    static constexpr double kEps = 0x1p-3;
};
template <>
struct Limits<E5m2> {
    static constexpr double kEps = 0x1p-2;
};
template <>
struct Limits<F16> {
    static constexpr double kEps = 0x1p-10;
};
template <>
struct Limits<Bf16> {
    static constexpr double kEps = 0x1p-7;
};

template <typename T>
requires kFloat8<T>
double decode(T value) {
    const int exponent = (value.bits & 0x7f) >> T::kFraction;
    const int leading = 1 << T::kFraction;
    const int fraction = value.bits & (leading - 1);
    const int lowest = 1 - T::kBias - T::kFraction;
    double magnitude =
        exponent == 0 ? std::ldexp(fraction, lowest) : std::ldexp(leading + fraction, lowest + exponent - 1);
    if ((value.bits & 0x7f) == 0x7f || magnitude > 1.25 * T::kLargest)
        magnitude = std::numeric_limits<double>::quiet_NaN();
    else if (magnitude > T::kLargest)
        magnitude = std::numeric_limits<double>::infinity();
    return (value.bits & 0x80) != 0 ? -magnitude : magnitude;
}
double decode(F16 value) {
    const int exponent = value.bits >> 10 & 31;
    const int fraction = value.bits & 1023;
    double magnitude = 0;
    if (exponent == 31)
        magnitude = fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    else
        magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    return (value.bits & 0x8000) != 0 ? -magnitude : magnitude;
}
double decode(Bf16 value) {
    return std::bit_cast<float>(uint32_t{value.bits} << 16);
}
double decode(float value) {
    return value;
}
double decode(double value) {
    return value;
}

/// The nearest value of a binary format with `digits` significant bits whose smallest step is 2^`lowest`.
double nearest(double value, int digits, int lowest) {
    if (value == 0 || !std::isfinite(value))
        return value;
    const int step = std::max(std::ilogb(value) - (digits - 1), lowest);
    return std::ldexp(std::nearbyint(std::ldexp(value, -step)), step);
}

/// Infinities of e4m3 are its largest number.
template <typename T>
requires kFloat8<T>
void encode(double value, T &out) {
    const int lowest = 1 - T::kBias - T::kFraction;
    const double magnitude = std::fabs(nearest(value, T::kFraction + 1, lowest));
    int bits = 0;
    if (std::isnan(value))
        bits = 0x7f;
    else if (std::isinf(value) && std::is_same_v<T, E5m2>)
        bits = 0x7c;
    else if (magnitude > 0)  // counted from the smallest number on
        for (out.bits = 0; decode(out) < std::min(magnitude, T::kLargest); ++out.bits)
            bits = out.bits + 1;
    out.bits = static_cast<uint8_t>(bits | (std::signbit(value) && !std::isnan(value) ? 0x80 : 0));
}
void encode(double value, F16 &out) {
    const double rounded = nearest(value, 11, -24);
    const double magnitude = std::fabs(rounded);
    uint16_t bits = 0;
    if (std::isnan(rounded)) {
        bits = 0x7e00;
    } else if (magnitude > 65504) {
        bits = 0x7c00;
    } else if (magnitude < 0x1p-14) {
        bits = static_cast<uint16_t>(std::ldexp(magnitude, 24));
    } else {
        const int exponent = std::ilogb(magnitude);
        bits = static_cast<uint16_t>((exponent + 15) << 10 |
                                     static_cast<int>(std::ldexp(magnitude, 10 - exponent) - 1024));
    }
    out.bits = bits | (std::signbit(value) ? 0x8000 : 0);
}
void encode(double value, Bf16 &out) {
    const auto single = static_cast<float>(nearest(value, 8, -133));
    out.bits = std::isnan(value) ? 0x7fc0 : static_cast<uint16_t>(std::bit_cast<uint32_t>(single) >> 16);
}
void encode(double value, float &out) {
    out = static_cast<float>(value);
}
void encode(double value, double &out) {
    out = value;
}

/// Calls `body` with a null pointer to the C++ type of `dtype`.
template <typename Body>
auto with_type(flx_dtype_t dtype, Body &&body) {
    switch (dtype) {
        case FLX_INT8:
            return body(static_cast<int8_t *>(nullptr));
        case FLX_UINT8:
            return body(static_cast<uint8_t *>(nullptr));
        case FLX_INT16:
            return body(static_cast<int16_t *>(nullptr));
        case FLX_UINT16:
            return body(static_cast<uint16_t *>(nullptr));
        case FLX_INT32:
            return body(static_cast<int32_t *>(nullptr));
        case FLX_UINT32:
            return body(static_cast<uint32_t *>(nullptr));
        case FLX_INT64:
            return body(static_cast<int64_t *>(nullptr));
        case FLX_UINT64:
            return body(static_cast<uint64_t *>(nullptr));
        case FLX_F8E4M3:
            return body(static_cast<E4m3 *>(nullptr));
        case FLX_F8E5M2:
            return body(static_cast<E5m2 *>(nullptr));
        case FLX_F16:
            return body(static_cast<F16 *>(nullptr));
        case FLX_BF16:
            return body(static_cast<Bf16 *>(nullptr));
        case FLX_F32:
            return body(static_cast<float *>(nullptr));
        default:  // cases here have no other types
            break;
    }
    return body(static_cast<double *>(nullptr));
}

constexpr size_t kTable = 1024;

/// The values that elements are drawn from.
template <typename T>
std::array<T, kTable> table_of(const Case &c, int size) {
    std::array<T, kTable> table{};
    Random random(c.seed);
    for (size_t i = 0; i < kTable; ++i) {
        if constexpr (std::is_integral_v<T>) {
            table[i] = static_cast<T>(random.next());
        } else {
            double value = 0;
            if (c.data == Data::special) {
                constexpr std::array kSpecial = {0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0x1p-14, -0x1p-14};
                value = kSpecial[i % kSpecial.size()];
                if (i % 101 == 50)
                    value = std::numeric_limits<double>::quiet_NaN();
                if (i % 101 == 51)
                    value = std::numeric_limits<double>::infinity();
                if (i % 101 == 52)
                    value = -std::numeric_limits<double>::infinity();
            } else if (c.op == FLX_PROD) {
                // Powers of two multiply without rounding; else factors near 1 neither overflow nor vanish.
                value = c.data == Data::exact ? (i % 3 == 0 ? 2.0 : 1.0) : 0.5 + 1.5 * random.unit();
                value = random.below(2) == 0 ? value : -value;
            } else if (c.data == Data::exact) {
                // A multiple of the number of ranks, so that the mean is a whole number; sums fit 8 bits. Those of
                // 8-bit floats fit 4, and are no multiples.
                const int span = std::max(1, (kFloat8<T> ? 8 : 12) / size);
                value =
                    (static_cast<int>(random.below(2 * span + 1)) - span) * (c.op == FLX_AVG && !kFloat8<T> ? size : 1);
            } else {
                value = (2 * random.unit() - 1) * std::exp2(static_cast<double>(random.below(6)));
            }
            encode(value, table[i]);
        }
    }
    return table;
}

/// Which of the table's values rank `rank` has in element `i`.
size_t pick(const Case &c, int rank, size_t i) {
    return Random::mix(c.seed ^ (static_cast<uint64_t>(rank) << 40) ^ i) % kTable;
}

template <typename T>
testing::AssertionResult compare(T got, T want) {
    if (got == want)
        return testing::AssertionSuccess();
    return testing::AssertionFailure() << +got << " instead of " << +want;
}

/// Integers: sums and products wrap, the mean truncates towards zero.
template <typename T>
testing::AssertionResult check_integer(const Case &c, const std::vector<T> &inputs, T got) {
    // Sums of 64-bit integers wrap before they are divided, as MPI's would.
    using Wide = std::make_unsigned_t<T>;
    T least = inputs[0];
    T greatest = inputs[0];
    uint64_t sum = 0;
    uint64_t product = 1;
    for (const T value : inputs) {
        least = std::min(least, value);
        greatest = std::max(greatest, value);
        sum += static_cast<uint64_t>(value);
        product *= static_cast<uint64_t>(value);
    }
    const T wrapped = static_cast<T>(static_cast<Wide>(sum));
    switch (c.op) {
        case FLX_SUM:
            return compare(got, wrapped);
        case FLX_PROD:
            return compare(got, static_cast<T>(static_cast<Wide>(product)));
        case FLX_MIN:
            return compare(got, least);
        case FLX_MAX:
            return compare(got, greatest);
        case FLX_AVG:
            return compare(got, static_cast<T>(wrapped / static_cast<T>(inputs.size())));
        default:
            return testing::AssertionFailure() << "no reference of " << static_cast<int>(c.op);
    }
}

bool same_float(double a, double b) {
    return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

template <typename T>
testing::AssertionResult check_float(const Case &c, const std::vector<T> &inputs, T got_bits) {
    const double got = decode(got_bits);
    long double sum = 0;
    long double magnitudes = 0;
    long double product = 1;
    double least = decode(inputs[0]);
    double greatest = least;
    for (const T bits : inputs) {
        const double value = decode(bits);
        sum += value;
        magnitudes += std::fabs(value);
        product *= value;
        if (std::isnan(value) || std::isnan(least)) {
            least = greatest = std::numeric_limits<double>::quiet_NaN();
            continue;
        }
        if (value < least || (value == least && std::signbit(value)))
            least = value;
        if (value > greatest || (value == greatest && !std::signbit(value)))
            greatest = value;
    }
    const auto n = static_cast<long double>(inputs.size());
    long double want = 0;
    long double bound = 0;  // of rounding at each of the additions and of the quotient
    switch (c.op) {
        case FLX_SUM:
            want = sum;
            bound = n * Limits<T>::kEps * magnitudes;
            break;
        case FLX_AVG:
            want = sum / n;
            bound = (n + 1) * Limits<T>::kEps * magnitudes / n;
            if constexpr (kFloat8<T>)  // half the smallest number
                bound += std::ldexp(1.0, -T::kBias - T::kFraction);
            break;
        case FLX_PROD:
            want = product;
            bound = n * Limits<T>::kEps * std::fabs(product);
            break;
        case FLX_MIN:
            want = least;
            break;
        case FLX_MAX:
            want = greatest;
            break;
        default:
            return testing::AssertionFailure() << "no reference of " << static_cast<int>(c.op);
    }
    const bool ordered = c.op == FLX_MIN || c.op == FLX_MAX;
    const bool exact = c.data == Data::exact && (!kFloat8<T> || (c.op == FLX_SUM && inputs.size() <= 8));
    // The sum of zeros of both signs, and of x and -x, is +0: compared as numbers.
    const bool right = ordered ? same_float(got, static_cast<double>(want))
                       : exact ? got == static_cast<double>(want)
                               : std::fabs(got - want) <= bound;
    if (right)
        return testing::AssertionSuccess();
    return testing::AssertionFailure() << got << " instead of " << static_cast<double>(want) << " (bound "
                                       << static_cast<double>(exact ? 0 : bound) << ")";
}

/// Freed and given out again from call to call.
class FlxMemory final : public std::pmr::memory_resource {
    void *do_allocate(size_t bytes, size_t) override {
        void *memory = nullptr;
        if (flx_malloc(bytes, &memory) != FLX_SUCCESS)
            throw std::bad_alloc();
        return memory;
    }
    void do_deallocate(void *memory, size_t, size_t) override { EXPECT_EQ(flx_free(memory), FLX_SUCCESS); }
    [[nodiscard]] bool do_is_equal(const memory_resource &other) const noexcept override { return this == &other; }
};

std::pmr::memory_resource *memory_for(const Case &c, int rank, int buffer) {
    static FlxMemory shared;
    const bool is_shared =
        c.memory == Memory::shared || (c.memory == Memory::mixed && (c.seed >> (2 * rank + buffer) % 64 & 1) != 0);
    return is_shared ? &shared : std::pmr::get_default_resource();
}

/// A buffer between guard bytes, `shift` elements after a boundary of 64 bytes.
class Guarded {
  public:
    Guarded(size_t bytes, size_t shift_bytes, std::pmr::memory_resource *memory)
        : bytes_(bytes), all_(bytes + 2 * kGuard + 64 + shift_bytes, kMark, memory) {
        const auto base = reinterpret_cast<uintptr_t>(all_.data()) + kGuard;
        offset_ = (base + 63) / 64 * 64 + shift_bytes - reinterpret_cast<uintptr_t>(all_.data());
    }
    [[nodiscard]] std::byte *data() { return all_.data() + offset_; }
    [[nodiscard]] size_t bytes() const { return bytes_; }
    [[nodiscard]] bool intact() const {
        return std::all_of(all_.begin(), all_.begin() + static_cast<ptrdiff_t>(offset_), is_mark) &&
               std::all_of(all_.begin() + static_cast<ptrdiff_t>(offset_ + bytes_), all_.end(), is_mark);
    }

  private:
    static constexpr size_t kGuard = 128;
    static constexpr std::byte kMark{0xa5};
    static bool is_mark(std::byte byte) { return byte == kMark; }

    size_t bytes_;
    std::pmr::vector<std::byte> all_;
    size_t offset_ = 0;
};

/// Elements of the input and the output of one rank.
struct Shape {
    size_t in = 0;
    size_t out = 0;
};

Shape shape_of(const Case &c, int rank, int size) {
    switch (c.collective) {
        case Collective::allreduce:
        case Collective::bcast:
            return {c.count, c.count};
        case Collective::reduce_scatter_block:
            return {c.count * size, c.count};
        case Collective::allgather:
            return {c.count, c.count * size};
        case Collective::reduce:
            return {c.count, rank == c.root ? c.count : 0};
        case Collective::barrier:
            break;
    }
    return {};
}

flx_status_t call(const Case &c, const void *in, void *out, flx_comm_t comm) {
    switch (c.collective) {
        case Collective::allreduce:
            return flx_allreduce(in, out, c.count, c.dtype, c.op, comm);
        case Collective::reduce_scatter_block:
            return flx_reduce_scatter_block(in, out, c.count, c.dtype, c.op, comm);
        case Collective::allgather:
            return flx_allgather(in, out, c.count, c.dtype, comm);
        case Collective::bcast:
            return flx_bcast(out, c.count, c.dtype, c.root, comm);
        case Collective::reduce:
            return flx_reduce(in, out, c.count, c.dtype, c.op, c.root, comm);
        case Collective::barrier:
            break;
    }
    return flx_barrier(comm);
}

template <typename T>
testing::AssertionResult check_output(const Case &c, int rank, int size, const std::byte *output, size_t count) {
    const std::array<T, kTable> table = table_of<T>(c, size);
    const auto load = [&](size_t i) {
        T value;
        std::memcpy(&value, output + i * sizeof(T), sizeof(T));
        return value;
    };
    if (!reduces(c.collective)) {
        for (size_t i = 0; i < count; ++i) {
            const int from = c.collective == Collective::bcast ? c.root : static_cast<int>(i / c.count);
            const T want = table[pick(c, from, c.collective == Collective::bcast ? i : i % c.count)];
            const T got = load(i);
            if (std::memcmp(&got, &want, sizeof(T)) != 0)
                return testing::AssertionFailure() << "element " << i << " is not rank " << from << "'s";
        }
        return testing::AssertionSuccess();
    }
    const size_t first = c.collective == Collective::reduce_scatter_block ? rank * c.count : 0;
    std::vector<T> inputs(size);
    for (size_t i = 0; i < count; ++i) {
        for (int from = 0; from < size; ++from)
            inputs[from] = table[pick(c, from, first + i)];
        testing::AssertionResult right = testing::AssertionSuccess();
        if constexpr (std::is_integral_v<T>)
            right = check_integer(c, inputs, load(i));
        else
            right = check_float(c, inputs, load(i));
        if (!right)
            return testing::AssertionFailure() << "element " << i << " is " << right.message();
    }
    return testing::AssertionSuccess();
}

}  // namespace

flx_dtype_t dtype_at(size_t index) {
    constexpr size_t kFirst8 = kDtypes - 2;
    return index < kFirst8 ? static_cast<flx_dtype_t>(index) : index == kFirst8 ? FLX_F8E4M3 : FLX_F8E5M2;
}

flx_op_t fitting(flx_op_t op, flx_dtype_t dtype) {
    return op == FLX_PROD && (dtype == FLX_F8E4M3 || dtype == FLX_F8E5M2) ? FLX_SUM : op;
}

const char *name_of(Collective collective) {
    constexpr std::array kNames = {"allreduce", "reduce_scatter_block", "allgather", "bcast", "reduce", "barrier"};
    return kNames[static_cast<size_t>(collective)];
}

std::string to_string(const Case &c) {
    constexpr std::array kTypes = {"int8",  "uint8",  "int16", "uint16", "int32", "uint32",
                                   "int64", "uint64", "f16",   "bf16",   "f32",   "f64"};
    constexpr std::array kReductions = {"sum", "prod", "min", "max", "avg"};
    std::ostringstream text;
    text << name_of(c.collective) << " of " << c.count << " " << kTypes[c.dtype] << " " << kReductions[c.op]
         << ", root " << c.root << (c.in_place ? ", in place" : "") << ", shift " << c.shift << ", data "
         << static_cast<int>(c.data) << ", seed " << c.seed << ", memory " << static_cast<int>(c.memory);
    return text.str();
}

size_t size_of(flx_dtype_t dtype) {
    return with_type(dtype, [](auto *type) { return sizeof *type; });
}

bool is_float(flx_dtype_t dtype) {
    return dtype >= FLX_F16;
}

bool reduces(Collective collective) {
    return collective == Collective::allreduce || collective == Collective::reduce_scatter_block ||
           collective == Collective::reduce;
}

uint64_t hash_of(const void *data, size_t bytes) {
    const auto *at = static_cast<const unsigned char *>(data);
    uint64_t hash = bytes;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word = 0;
        std::memcpy(&word, at, 8);
        hash = Random::mix(hash ^ word) + 1;
    }
    for (; bytes > 0; --bytes, ++at)
        hash = Random::mix(hash ^ *at) + 1;
    return hash;
}

void fill(const Case &c, int rank, int size, size_t first, size_t count, void *out) {
    with_type(c.dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        const std::array<T, kTable> table = table_of<T>(c, size);
        for (size_t i = 0; i < count; ++i)
            std::memcpy(static_cast<std::byte *>(out) + i * sizeof(T), &table[pick(c, rank, first + i)], sizeof(T));
    });
}

testing::AssertionResult check(const Case &c, flx_comm_t comm, Bytes *result) {
    int rank = 0;
    int size = 1;
    if (flx_comm_rank(comm, &rank) != FLX_SUCCESS || flx_comm_size(comm, &size) != FLX_SUCCESS)
        return testing::AssertionFailure() << flx_last_error();
    const Shape shape = shape_of(c, rank, size);
    const size_t element = size_of(c.dtype);
    const size_t shift = c.shift * element;
    const bool bcast = c.collective == Collective::bcast;
    const bool in_place = bcast || (c.in_place && (c.collective != Collective::reduce || rank == c.root));

    Guarded input(in_place ? 0 : shape.in * element, shift, memory_for(c, rank, 0));
    Guarded output((in_place ? std::max(shape.in, shape.out) : shape.out) * element, shift, memory_for(c, rank, 1));
    // In place, an all-gather's input is this rank's block; a reduce-scatter's is the whole buffer.
    std::byte *own = !in_place                               ? input.data()
                     : c.collective == Collective::allgather ? output.data() + rank * c.count * element
                                                             : output.data();
    if (!bcast || rank == c.root)
        fill(c, rank, size, 0, shape.in, own);
    const uint64_t before = hash_of(input.data(), input.bytes());

    const flx_status_t status =
        call(c, in_place ? FLX_IN_PLACE : input.data(), shape.out == 0 ? nullptr : output.data(), comm);
    if (status != FLX_SUCCESS)
        return testing::AssertionFailure() << to_string(c) << ": " << flx_strerror(status) << ": " << flx_last_error();
    if (!input.intact() || !output.intact())
        return testing::AssertionFailure() << to_string(c) << ": bytes beside a buffer were written";
    if (hash_of(input.data(), input.bytes()) != before)
        return testing::AssertionFailure() << to_string(c) << ": the input was changed";
    if (result != nullptr)
        result->assign(output.data(), output.data() + shape.out * element);
    const testing::AssertionResult right = with_type(c.dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        return check_output<T>(c, rank, size, output.data(), shape.out);
    });
    if (!right)
        return testing::AssertionFailure() << to_string(c) << ": " << right.message();
    return right;
}

testing::AssertionResult same_everywhere(const Case &c, const Bytes &result, MPI_Comm mpi) {
    const bool alike = c.collective == Collective::allreduce || c.collective == Collective::allgather ||
                       c.collective == Collective::bcast;
    uint64_t bounds[2] = {hash_of(result.data(), result.size()), 0};
    bounds[1] = ~bounds[0];
    MPI_Allreduce(MPI_IN_PLACE, bounds, 2, MPI_UINT64_T, MPI_MIN, mpi);
    if (!alike || bounds[0] == ~bounds[1])
        return testing::AssertionSuccess();
    return testing::AssertionFailure() << to_string(c) << ": ranks have different bits";
}

}  // namespace flx::test
