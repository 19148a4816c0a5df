/// \file calls.h
/// Calls of collectives for tests: their inputs, buffers between guard bytes, and the results by a serial reference.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <memory_resource>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "algorithms/registry.h"
#include "runtime/elements/dtype.h"
#include "runtime/elements/reduce.h"
#include "runtime/plan/operation.h"

namespace flx::testing {

using algorithms::Collective;

/// One call of a collective, alike on all ranks.
struct TestCall {
    Collective collective = Collective::allreduce;
    flx_dtype_t dtype = FLX_INT32;
    flx_op_t op = FLX_SUM;
    int ranks = 1;
    int root = 0;
    size_t count = 0;  ///< elements of the whole vector
    bool in_place = false;
    uint32_t seed = 0;  ///< of the inputs

    [[nodiscard]] size_t element() const { return size_of(dtype); }
    [[nodiscard]] size_t block() const { return count / ranks; }
    [[nodiscard]] bool single_input() const {
        return algorithms::input_layout(collective) == algorithms::Layout::single;
    }
    [[nodiscard]] bool single_output() const {
        return algorithms::output_layout(collective) == algorithms::Layout::single;
    }
    [[nodiscard]] size_t in_count() const { return single_input() ? block() : count; }
    [[nodiscard]] size_t out_count() const { return single_output() ? block() : count; }
    [[nodiscard]] bool has_input(int rank) const {
        return (collective != Collective::bcast && collective != Collective::scatter) || rank == root;
    }
    [[nodiscard]] bool has_result(int rank) const {
        switch (collective) {
            case Collective::barrier:
                return false;
            case Collective::reduce:
            case Collective::gather:
                return rank == root;
            case Collective::exscan:
                return rank != 0;
            default:
                return true;
        }
    }
    /// Its input lies in its output, or the other way round.
    [[nodiscard]] bool is_in_place(int rank) const {
        if (collective == Collective::bcast)
            return true;
        return in_place && has_result(rank) && (collective != Collective::scatter || rank == root);
    }
    [[nodiscard]] bool scans() const { return collective == Collective::scan || collective == Collective::exscan; }
    /// Ranks whose inputs a reduction's result holds.
    [[nodiscard]] int reduced(int rank) const {
        if (!scans())
            return ranks;
        return collective == Collective::scan ? rank + 1 : rank;
    }
    [[nodiscard]] std::string text() const {
        return fmt::format("{} {} {} of {} elements, {} ranks, root {}{}", algorithms::name_of(collective),
                           name_of(dtype), name_of(op), count, ranks, root, in_place ? ", in place" : "");
    }
};

/// The call as the library sees it, of equal blocks.
inline Call call_of(Collective collective, const void *in, void *out, size_t count, flx_dtype_t dtype,
                    uint32_t signature = 5, flx_op_t op = FLX_SUM, int root = 0) {
    Call call;
    call.operation = {.collective = collective,
                      .in = in,
                      .out = out,
                      .count = count,
                      .dtype = dtype,
                      .op = op,
                      .root = root,
                      .signature = signature};
    return call;
}
inline Call call_of(const TestCall &call, const void *in, void *out) {
    return call_of(call.collective, in, out, call.count, call.dtype, call.seed, call.op, call.root);
}

namespace detail {

/// Calls `body` with a value of the C++ type of `dtype`; false for 8- and 16-bit floats, which C++20 does not have.
template <typename Body>
bool with_type(flx_dtype_t dtype, Body &&body) {
    switch (dtype) {
        case FLX_INT8:
            return body(int8_t{}), true;
        case FLX_UINT8:
            return body(uint8_t{}), true;
        case FLX_INT16:
            return body(int16_t{}), true;
        case FLX_UINT16:
            return body(uint16_t{}), true;
        case FLX_INT32:
            return body(int32_t{}), true;
        case FLX_UINT32:
            return body(uint32_t{}), true;
        case FLX_INT64:
            return body(int64_t{}), true;
        case FLX_UINT64:
            return body(uint64_t{}), true;
        case FLX_F32:
            return body(float{}), true;
        case FLX_F64:
            return body(double{}), true;
        default:
            return false;
    }
}

template <typename T>
T combine(flx_op_t op, T a, T b) {
    switch (op) {
        case FLX_MIN:
            return b < a ? b : a;
        case FLX_MAX:
            return a < b ? b : a;
        default:
            break;
    }
    if constexpr (std::is_integral_v<T>) {
        const auto left = static_cast<uint64_t>(a), right = static_cast<uint64_t>(b);
        return static_cast<T>(op == FLX_PROD ? left * right : left + right);
    } else {
        return op == FLX_PROD ? a * b : a + b;
    }
}

}  // namespace detail

/// What `rank` gives to the call. Integers of any size, except that averages do not wrap; floats of few magnitudes.
inline std::vector<std::byte> input_of(const TestCall &call, int rank) {
    std::vector<std::byte> data(call.in_count() * call.element());
    std::minstd_rand random(call.seed * 64 + static_cast<uint32_t>(rank) + 1);
    const bool known = detail::with_type(call.dtype, [&](auto type) {
        using T = decltype(type);
        for (size_t i = 0; i < call.in_count(); ++i) {
            T value;
            if constexpr (std::is_integral_v<T>)
                value = call.op == FLX_AVG ? static_cast<T>(random() % 20)
                                           : static_cast<T>(uint64_t{random()} * 0x9e3779b97f4a7c15U >> 7);
            else
                value = static_cast<T>(static_cast<double>(random() % 20000) / 7919 - 1);
            std::memcpy(data.data() + i * sizeof(T), &value, sizeof(T));
        }
    });
    for (size_t i = 0; is_float8(call.dtype) && i < data.size(); ++i)  // no infinity and no NaN
        data[i] = static_cast<std::byte>(random() & 0xbf);
    for (size_t i = 0; !known && !is_float8(call.dtype) && i < data.size(); i += 2) {
        // Sixteen bits with an exponent that is neither very large nor very small in either format.
        const auto value = static_cast<uint16_t>((random() & 0x83ff) | 0x3c00);
        std::memcpy(data.data() + i, &value, sizeof value);
    }
    return data;
}

/// What `rank` gets, by adding in rank order, one element after the other. 8- and 16-bit floats: by one call of
/// reduce_many, which tests of its own compare with scalar code.
inline std::vector<std::byte> result_of(const TestCall &call, int rank) {
    std::vector<std::vector<std::byte>> inputs;
    for (int from = 0; from < call.ranks; ++from)
        inputs.push_back(input_of(call, from));
    if (!call.has_result(rank))
        return {};
    if (call.collective == Collective::bcast)
        return inputs[call.root];
    std::vector<std::byte> result;
    if (call.collective == Collective::scatter) {
        const auto from = inputs[call.root].begin() + static_cast<ptrdiff_t>(rank * call.block() * call.element());
        return {from, from + static_cast<ptrdiff_t>(call.block() * call.element())};
    }
    if (call.collective == Collective::allgather || call.collective == Collective::gather) {
        for (const auto &part : inputs)
            result.insert(result.end(), part.begin(), part.end());
        return result;
    }
    if (call.collective == Collective::alltoall) {
        const auto bytes = static_cast<ptrdiff_t>(call.block() * call.element());
        for (const auto &part : inputs)
            result.insert(result.end(), part.begin() + rank * bytes, part.begin() + (rank + 1) * bytes);
        return result;
    }
    result = inputs[0];
    const bool known = detail::with_type(call.dtype, [&](auto type) {
        using T = decltype(type);
        const auto load = [](const std::vector<std::byte> &data, size_t i) {
            T value;
            std::memcpy(&value, data.data() + i * sizeof(T), sizeof value);
            return value;
        };
        for (size_t i = 0; i < call.count; ++i) {
            T value = load(inputs[0], i);
            for (int from = 1; from < call.reduced(rank); ++from)
                value = detail::combine(call.op, value, load(inputs[from], i));
            if (call.op == FLX_AVG)
                value = static_cast<T>(value / static_cast<T>(call.ranks));
            std::memcpy(result.data() + i * sizeof(T), &value, sizeof value);
        }
    });
    if (!known) {
        std::vector<const void *> sources;
        for (int from = 0; from < call.reduced(rank); ++from)
            sources.push_back(inputs[from].data());
        reduce_many(call.dtype, call.op, result.data(), sources.data(), call.reduced(rank), call.count,
                    call.op == FLX_AVG ? call.ranks : 1, false);
    }
    if (call.collective == Collective::reduce_scatter_block) {
        const size_t bytes = call.block() * call.element();
        return {result.begin() + static_cast<ptrdiff_t>(rank * bytes),
                result.begin() + static_cast<ptrdiff_t>((rank + 1) * bytes)};
    }
    return result;
}

/// One rank's buffers of a call, filled, between guard bytes, in memory of `resource`.
class TestBuffers {
  public:
    TestBuffers(const TestCall &call, int rank, std::pmr::memory_resource *resource = std::pmr::get_default_resource())
        : call_(call), rank_(rank), given_(input_of(call, rank)), in_memory_(resource), out_memory_(resource) {
        const bool in_place = call.is_in_place(rank);
        const size_t element = call.element();
        size_t out_bytes = call.out_count() * element;
        if (in_place && call.single_output())
            out_bytes = call.count * element;
        in_memory_.assign(2 * kGuard + (in_place ? 0 : given_.size()), kFill);
        out_memory_.assign(
            2 * kGuard + (call.has_result(rank) || call.collective == Collective::barrier ? out_bytes : 0), kFill);
        result_ = out_memory_.data() + kGuard;
        if (in_place)
            in_ = call.single_input() ? result_ + rank * call.block() * element : result_;
        else
            in_ = in_memory_.data() + kGuard;
        if (in_place && call.collective == Collective::scatter)
            result_ += rank * call.block() * element;
        if (call.has_input(rank))
            std::memcpy(in_, given_.data(), given_.size());
        else if (!in_place)
            given_.clear();
        in_place_ = in_place;
    }

    [[nodiscard]] const void *in() const { return in_; }
    [[nodiscard]] void *out() const {
        return call_.has_result(rank_) || call_.collective == Collective::barrier ? result_ : nullptr;
    }
    [[nodiscard]] std::vector<std::byte> result() const {
        return {result_, result_ + (call_.has_result(rank_) ? call_.out_count() * call_.element() : 0)};
    }
    /// Nothing but the result was written.
    [[nodiscard]] bool intact() const {
        const auto guards = [](const std::pmr::vector<std::byte> &memory) {
            for (size_t i = 0; i < kGuard; ++i)
                if (memory[i] != kFill || memory[memory.size() - 1 - i] != kFill)
                    return false;
            return true;
        };
        const bool input = in_place_ || given_.empty() || std::memcmp(in_, given_.data(), given_.size()) == 0;
        return input && guards(in_memory_) && guards(out_memory_);
    }

  private:
    static constexpr size_t kGuard = 64;
    static constexpr std::byte kFill{0xa5};

    const TestCall call_;
    const int rank_;
    std::vector<std::byte> given_;
    std::pmr::vector<std::byte> in_memory_, out_memory_;
    std::byte *in_ = nullptr;
    std::byte *result_ = nullptr;
    bool in_place_ = false;
};

}  // namespace flx::testing
