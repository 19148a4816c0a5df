#include "reduce.h"

#include <atomic>
#include <mutex>

#include "reduce_table.h"

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
        current.store(&storage, std::memory_order_release);
    }
    return storage;
}

const ReduceTable &table() {
    const ReduceTable *ready = current.load(std::memory_order_acquire);
    return ready != nullptr ? *ready : fill_table();
}

}  // namespace

void reduce_pair(flx_dtype_t dtype, flx_op_t op, void *dst, const void *a, const void *b, size_t count) {
    table().pair[dtype][op](dst, a, b, count);
}

void reduce_many(flx_dtype_t dtype, flx_op_t op, void *dst, const void *const *sources, int n, size_t count,
                 int divisor, bool stream) {
    table().many[dtype][op](dst, sources, n, count, op == FLX_AVG ? divisor : 1, stream);
}

void divide(flx_dtype_t dtype, void *dst, size_t count, int divisor) {
    const void *source = dst;
    table().many[dtype][FLX_AVG](dst, &source, 1, count, divisor, false);
}

void copy_streaming(void *dst, const void *src, size_t bytes) {
    table().copy(dst, src, bytes);
}

const char *reduce_target() {
    return table().target;
}

void reselect_reduce_target() {
    current.store(nullptr);
}

}  // namespace flx
