#include <type_traits>

#include "apps/bench/device_data.h"

namespace flx::bench {
namespace {

constexpr int kBlocks = 264;
constexpr int kThreads = 256;

template <typename T>
__global__ void fill(T *dst, const T *table, size_t count, size_t period) {
    const size_t step = size_t{gridDim.x} * blockDim.x;
    for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
        dst[i] = table[i % period];
}

template <typename T>
__global__ void compare(const T *got, const T *table, size_t count, size_t period, unsigned long long *wrong) {
    const size_t step = size_t{gridDim.x} * blockDim.x;
    unsigned long long mine = 0;
    for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
        mine += got[i] != table[i % period] ? 1 : 0;
    if (mine != 0)
        atomicAdd(wrong, mine);
}

/// Calls `body` with a null pointer to the unsigned type of that size.
template <typename Body>
void with_type(size_t element, Body &&body) {
    switch (element) {
        case 1:
            return body(static_cast<unsigned char *>(nullptr));
        case 2:
            return body(static_cast<unsigned short *>(nullptr));
        case 4:
            return body(static_cast<unsigned int *>(nullptr));
        default:
            return body(static_cast<unsigned long long *>(nullptr));
    }
}

}  // namespace

int fill_from_table(void *dst, const void *table, size_t count, size_t element, size_t period, CUstream_st *stream) {
    with_type(element, [&](auto *type) {
        using T = decltype(type);
        fill<<<kBlocks, kThreads, 0, stream>>>(static_cast<T>(dst),
                                               static_cast<const std::remove_pointer_t<T> *>(table), count, period);
    });
    return cudaGetLastError();
}

int count_unlike_table(const void *got, const void *table, size_t count, size_t element, size_t period,
                       unsigned long long *wrong, CUstream_st *stream) {
    with_type(element, [&](auto *type) {
        using Element = std::remove_pointer_t<decltype(type)>;
        compare<<<kBlocks, kThreads, 0, stream>>>(static_cast<const Element *>(got),
                                                  static_cast<const Element *>(table), count, period, wrong);
    });
    return cudaGetLastError();
}

}  // namespace flx::bench
