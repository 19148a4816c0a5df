#include "runtime/elements/reduce.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "runtime/base/scratch.h"
#include "runtime/elements/reduce_other.h"
#include "runtime/elements/reduce_table.h"

namespace flx {
namespace {

ReduceTable storage;
std::mutex storage_mutex;
/// Null until the first use. One load on the path of every call, instead of a call into Highway.
std::atomic<const ReduceTable *> current{nullptr};

const ReduceTable &fill_table() {
    const std::lock_guard lock(storage_mutex);
    if (current.load(std::memory_order_relaxed) == nullptr) {
        fill_integer_kernels(storage);
        fill_float_kernels(storage);
        fill_float8_kernels(storage);
        current.store(&storage, std::memory_order_release);
    }
    return storage;
}

const ReduceTable &table() {
    const ReduceTable *ready = current.load(std::memory_order_acquire);
    return ready != nullptr ? *ready : fill_table();
}

/// Complex numbers are added as twice as many real ones. False: there is no kernel.
bool use_kernel(flx_dtype_t &dtype, flx_op_t op, size_t &count) {
    if ((dtype == FLX_COMPLEX_F32 || dtype == FLX_COMPLEX_F64) && (op == FLX_SUM || op == FLX_AVG)) {
        dtype = dtype == FLX_COMPLEX_F32 ? FLX_F32 : FLX_F64;
        count *= 2;
    }
    return has_kernel(dtype, op);
}

/// Left to right, in runs that stay in the cache.
void fold(flx_dtype_t dtype, flx_op_t op, void *dst, const void *const *sources, int n, size_t count, bool stream,
          void *kept) {
    constexpr size_t kRunBytes = 16384;
    const size_t size = size_of(dtype);
    const size_t run = kRunBytes / size;
    struct Sum;
    std::byte *const sum = scratch<Sum, kRunBytes>();
    for (size_t at = 0; at < count; at += run) {
        const size_t here = std::min(run, count - at);
        const auto source = [&](int i) { return static_cast<const std::byte *>(sources[i]) + at * size; };
        std::memcpy(sum, source(0), here * size);
        for (int i = 1; i < n; ++i)
            reduce_other(dtype, op, sum, sum, source(i), here);
        std::byte *to = static_cast<std::byte *>(dst) + at * size;
        if (stream)
            copy_streaming(to, sum, here * size);
        else
            std::memcpy(to, sum, here * size);
        if (kept != nullptr)
            std::memcpy(static_cast<std::byte *>(kept) + at * size, sum, here * size);
    }
}

}  // namespace

void reduce_pair(flx_dtype_t dtype, flx_op_t op, void *dst, const void *a, const void *b, size_t count) {
    if (use_kernel(dtype, op, count)) [[likely]]
        table().pair[dtype][op](dst, a, b, count);
    else
        reduce_other(dtype, op, dst, a, b, count);
}

void reduce_many(flx_dtype_t dtype, flx_op_t op, void *dst, const void *const *sources, int n, size_t count,
                 int divisor, bool stream, void *kept) {
    if (use_kernel(dtype, op, count)) [[likely]]
        table().many[dtype][op](dst, sources, n, count, op == FLX_AVG ? divisor : 1, stream, kept);
    else
        fold(dtype, op, dst, sources, n, count, stream, kept);
}

void divide(flx_dtype_t dtype, void *dst, size_t count, int divisor) {
    const void *source = dst;
    use_kernel(dtype, FLX_AVG, count);
    table().many[dtype][FLX_AVG](dst, &source, 1, count, divisor, false, nullptr);
}

void copy_streaming(void *dst, const void *src, size_t bytes) {
    table().copy(dst, src, bytes);
}

void copy_own(void *dst, const void *src, size_t bytes) {
    constexpr size_t kLarge = size_t{8} << 20;  // less stays in the last cache, where peers and the program find it
    copy_bytes(dst, src, bytes, bytes >= kLarge);
}

const char *reduce_target() {
    return table().target;
}

void reselect_reduce_target() {
    current.store(nullptr);
}

}  // namespace flx
