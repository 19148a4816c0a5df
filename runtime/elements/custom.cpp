#include "runtime/elements/custom.h"

#include <atomic>
#include <bit>
#include <complex>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>

#include "runtime/base/status.h"

namespace flx {
namespace {

constexpr int kFirst = 1 << 16;  // handles below are FLX's own
constexpr int kMost = 1 << 16;
constexpr size_t kMostBytes = 16384;

/// Slots are used in turn, so that one that was freed is not used again soon.
template <typename T>
class Table {
  public:
    Status add(const T &value, const char *what, int &handle) {
        const std::lock_guard lock(mutex_);
        for (int tried = 0; tried < kMost; ++tried) {
            const int slot = next_;
            next_ = (next_ + 1) % kMost;
            if (valid_[slot].load(std::memory_order_relaxed))
                continue;
            entries_[slot] = std::make_unique<T>(value);
            visible_[slot].store(entries_[slot].get(), std::memory_order_relaxed);
            valid_[slot].store(true, std::memory_order_release);
            handle = kFirst + slot;
            return {};
        }
        return fail(Fault::too_many_made, "{} {} exist; free some before more are made", kMost, what);
    }
    bool remove(int handle) { return find(handle) != nullptr && valid_[handle - kFirst].exchange(false); }
    const T *find(int handle) const {
        const int slot = handle - kFirst;
        if (slot < 0 || slot >= kMost || !valid_[slot].load(std::memory_order_acquire))
            return nullptr;
        return visible_[slot].load(std::memory_order_relaxed);
    }
    const T &get(int handle) const { return *visible_[handle - kFirst].load(std::memory_order_acquire); }

  private:
    std::mutex mutex_;
    int next_ = 0;
    std::array<std::atomic<bool>, kMost> valid_{};
    std::array<std::atomic<const T *>, kMost> visible_{};
    std::array<std::unique_ptr<T>, kMost> entries_;
};

Table<CustomOp> &ops() {
    static Table<CustomOp> table;
    return table;
}

Table<size_t> &dtypes() {
    static Table<size_t> table;
    return table;
}

template <typename T>
void scale_as(const CustomOp &op, void *out, const void *in, size_t count) {
    T factor;
    std::memcpy(&factor, op.factor.data(), sizeof factor);
    for (size_t i = 0; i < count; ++i) {
        T value;
        std::memcpy(&value, static_cast<const std::byte *>(in) + i * sizeof value, sizeof value);
        value *= factor;
        std::memcpy(static_cast<std::byte *>(out) + i * sizeof value, &value, sizeof value);
    }
}

float from_bf16(uint16_t bits) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t to_bf16(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U)
        return 0x7fc0;  // NaN
    return static_cast<uint16_t>((bits + 0x7fffU + (bits >> 16 & 1)) >> 16);
}

void scale_bf16(const CustomOp &op, void *out, const void *in, size_t count) {
    uint16_t factor = 0;
    std::memcpy(&factor, op.factor.data(), sizeof factor);
    for (size_t i = 0; i < count; ++i) {
        uint16_t value = 0;
        std::memcpy(&value, static_cast<const std::byte *>(in) + i * sizeof value, sizeof value);
        value = to_bf16(from_bf16(factor) * from_bf16(value));
        std::memcpy(static_cast<std::byte *>(out) + i * sizeof value, &value, sizeof value);
    }
}

}  // namespace

Status create_op(const CustomOp &op, flx_op_t &handle) {
    int made = -1;
    FLX_TRY(ops().add(op, "reductions of the program's own", made));
    handle = static_cast<flx_op_t>(made);
    return {};
}

Status create_dtype(size_t bytes, flx_dtype_t &handle) {
    if (bytes == 0 || bytes > kMostBytes)
        return fail(Fault::element_size, "an element type of {} bytes is to be made; 1 to {} are allowed", bytes,
                    kMostBytes);
    int made = -1;
    FLX_TRY(dtypes().add(bytes, "element types of the program's own", made));
    handle = static_cast<flx_dtype_t>(made);
    return {};
}

Status free_op(flx_op_t handle) {
    if (!ops().remove(handle))
        return fail(Fault::handle_not_made, "op {} was not made by flx_op_create, or was freed",
                    static_cast<int>(handle));
    return {};
}

Status free_dtype(flx_dtype_t handle) {
    if (!dtypes().remove(handle))
        return fail(Fault::handle_not_made, "dtype {} was not made by flx_dtype_create, or was freed",
                    static_cast<int>(handle));
    return {};
}

const CustomOp *find_op(flx_op_t handle) {
    return ops().find(handle);
}

const CustomOp &custom_op(flx_op_t handle) {
    return ops().get(handle);
}

size_t find_dtype(flx_dtype_t handle) {
    const size_t *bytes = dtypes().find(handle);
    return bytes == nullptr ? 0 : *bytes;
}

size_t custom_size(flx_dtype_t handle) {
    return dtypes().get(handle);
}

void scale(const CustomOp &op, void *out, const void *in, size_t count) {
    switch (op.dtype) {
        case FLX_F32:
            return scale_as<float>(op, out, in, count);
        case FLX_F64:
            return scale_as<double>(op, out, in, count);
        case FLX_COMPLEX_F32:
            return scale_as<std::complex<float>>(op, out, in, count);
        case FLX_COMPLEX_F64:
            return scale_as<std::complex<double>>(op, out, in, count);
        case FLX_F16:
            return scale_as<_Float16>(op, out, in, count);
        default:
            return scale_bf16(op, out, in, count);
    }
}

}  // namespace flx
