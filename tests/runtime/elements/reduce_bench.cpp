// Reductions in bytes of the result per second, beside memcpy of as many bytes, for each type and reduction.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "runtime/elements/dtype.h"
#include "runtime/elements/reduce.h"

namespace {

struct Free {
    void operator()(void *p) const { std::free(p); }
};
using Buffer = std::unique_ptr<uint8_t, Free>;

/// Small numbers of the type: no NaN and no overflow in a sum.
Buffer make_buffer(size_t bytes) {
    Buffer buffer(static_cast<uint8_t *>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)));
    std::memset(buffer.get(), 0x11, bytes);
    return buffer;
}

void report(benchmark::State &state, size_t bytes) {
    state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(bytes));
}

void copy(benchmark::State &state, bool streaming) {
    const auto bytes = static_cast<size_t>(state.range(0));
    const Buffer a = make_buffer(bytes), b = make_buffer(bytes);
    for (auto _ : state) {
        if (streaming)
            flx::copy_streaming(b.get(), a.get(), bytes);
        else
            std::memcpy(b.get(), a.get(), bytes);
        benchmark::ClobberMemory();
    }
    report(state, bytes);
}

/// a += b, as in the row "x[i] += y[i]".
void pair(benchmark::State &state, flx_dtype_t dtype, flx_op_t op) {
    const auto bytes = static_cast<size_t>(state.range(0));
    const Buffer a = make_buffer(bytes), b = make_buffer(bytes);
    for (auto _ : state) {
        flx::reduce_pair(dtype, op, a.get(), a.get(), b.get(), bytes / flx::size_of(dtype));
        benchmark::ClobberMemory();
    }
    report(state, bytes);
}

void many(benchmark::State &state, flx_dtype_t dtype, flx_op_t op, int n, bool stream) {
    const auto bytes = static_cast<size_t>(state.range(0));
    Buffer sources[8];
    const void *pointers[8];
    for (int s = 0; s < n; ++s) {
        sources[s] = make_buffer(bytes);
        pointers[s] = sources[s].get();
    }
    const Buffer dst = make_buffer(bytes);
    for (auto _ : state) {
        flx::reduce_many(dtype, op, dst.get(), pointers, n, bytes / flx::size_of(dtype), n, stream);
        benchmark::ClobberMemory();
    }
    report(state, bytes);
}

const int registered = [] {
    constexpr int64_t kSizes[] = {4 << 10, 1 << 20, 16 << 20};
    benchmark::RegisterBenchmark("memcpy", copy, false)->Arg(4 << 10)->Arg(1 << 20)->Arg(16 << 20);
    benchmark::RegisterBenchmark("copy_streaming", copy, true)->Arg(4 << 10)->Arg(1 << 20)->Arg(16 << 20);
    benchmark::RegisterBenchmark("pair/f32/sum", pair, FLX_F32, FLX_SUM)->Arg(4)->Arg(8)->Arg(16)->Arg(64)->Arg(1024);
    benchmark::RegisterBenchmark("pair/bf16/sum", pair, FLX_BF16, FLX_SUM)->Arg(2)->Arg(8)->Arg(64);
    for (int t = 0; t < flx::kAllDtypes; ++t) {
        const auto dtype = static_cast<flx_dtype_t>(t);
        if (!flx::has_kernel(dtype, FLX_SUM))
            continue;
        const std::string type(flx::name_of(dtype));
        for (const flx_op_t op : {FLX_SUM, FLX_PROD, FLX_MIN, FLX_MAX}) {
            if (!flx::fits(op, dtype))
                continue;
            auto *bench = benchmark::RegisterBenchmark(("pair/" + type + "/" + std::string(flx::name_of(op))).c_str(),
                                                       pair, dtype, op);
            for (const int64_t bytes : kSizes)
                bench->Arg(bytes);
        }
        benchmark::RegisterBenchmark(("many4/" + type + "/avg").c_str(), many, dtype, FLX_AVG, 4, false)->Arg(1 << 20);
    }
    for (const int n : {2, 4, 8}) {
        const std::string name = "many" + std::to_string(n) + "/f32/sum";
        for (const flx_dtype_t dtype : {FLX_F8E4M3, FLX_F8E5M2}) {
            const std::string small = "many" + std::to_string(n) + "/" + std::string(flx::name_of(dtype)) + "/sum";
            benchmark::RegisterBenchmark(small.c_str(), many, dtype, FLX_SUM, n, false)->Arg(64 << 10)->Arg(16 << 20);
        }
        benchmark::RegisterBenchmark(name.c_str(), many, FLX_F32, FLX_SUM, n, false)->Arg(64 << 10)->Arg(16 << 20);
        benchmark::RegisterBenchmark((name + "/stream").c_str(), many, FLX_F32, FLX_SUM, n, true)->Arg(16 << 20);
    }
    return 0;
}();

}  // namespace
