/// \file messages.cuh
/// What packets and lines have in common: who sends what to whom in one hop, and its elements eight bytes at a time.
#pragma once

#include "runtime/cuda/kernels/team.cuh"

namespace flx::cuda {

static __device__ __noinline__ uint64_t load_few(const char *from, uint64_t bytes) {
    uint64_t data = 0;
#pragma unroll 1
    for (uint64_t i = 0; i < bytes && i < sizeof data; ++i)
        data |= static_cast<uint64_t>(static_cast<unsigned char>(from[i])) << (8 * i);
    return data;
}
static __device__ __noinline__ void store_few(char *to, uint64_t data, uint64_t bytes) {
#pragma unroll 1
    for (uint64_t i = 0; i < bytes && i < sizeof data; ++i)
        to[i] = static_cast<char>(data >> (8 * i));
}
/// From anywhere: both words that hold some of the eight bytes are loaded whole.
__device__ __forceinline__ uint64_t load_some(const char *from, uint64_t bytes) {
    if (bytes < sizeof(uint64_t))
        return load_few(from, bytes);
    const auto beside = static_cast<uint32_t>(reinterpret_cast<uint64_t>(from) % sizeof(uint64_t));
    const auto *words = reinterpret_cast<const uint64_t *>(from - beside);
    if (beside == 0)
        return words[0];
    return words[0] >> (8 * beside) | words[1] << (64 - 8 * beside);
}
__device__ __forceinline__ void store_some(char *to, uint64_t data, uint64_t bytes) {
    if (bytes < sizeof data) {
        store_few(to, data, bytes);
    } else if (const auto at = reinterpret_cast<uint64_t>(to); aligned(at, sizeof data)) {
        *reinterpret_cast<uint64_t *>(to) = data;
    } else if (aligned(at, sizeof(uint32_t))) {
        reinterpret_cast<uint32_t *>(to)[0] = static_cast<uint32_t>(data);
        reinterpret_cast<uint32_t *>(to)[1] = static_cast<uint32_t>(data >> 32);
    } else {
        store_few(to, data, sizeof data);
    }
}

/// Eight bytes of elements.
template <typename T>
struct Eight {
    static constexpr int kElements = sizeof(uint64_t) / sizeof(T);
    WideOf<T> element[kElements];
    struct Raw {
        T element[kElements];
    };
    template <typename Op>
    __device__ __forceinline__ void add(const Op &op, uint64_t data, bool first) {
        const Raw raw = bits_as<Raw>(data);
        WideOf<T> value[kElements];
        widen_all(raw.element, value);
#pragma unroll
        for (int e = 0; e < kElements; ++e)
            element[e] = first ? value[e] : op.apply(element[e], value[e]);
    }
    [[nodiscard]] __device__ __forceinline__ uint64_t finish(int divisor) const {
        Raw raw;
        narrow_all<T>(element, raw.element, divisor);
        return bits_as<uint64_t>(raw);
    }
};

/// Every rank sends its input to whoever needs it.
struct Messages {
    const Job &job;

    __device__ uint64_t length() const { return has_blocks(job.collective) ? job.part_bytes : job.bytes; }
    __device__ bool sends(int from, int to) const {
        return job.collective == Collective::bcast ? from == job.root
                                                   : job.collective != Collective::reduce || to == job.root;
    }
    /// Whether this rank's own input goes into its output: of a bcast, that of a root with two buffers.
    __device__ bool keeps() const {
        return job.collective != Collective::bcast || (job.rank == job.root && job.in != job.out);
    }
    __device__ const char *input(int to) const {
        const bool apart = job.collective == Collective::reduce_scatter_block || job.collective == Collective::alltoall;
        return job.in + (apart ? job.part_offset(to) : 0);
    }
    __device__ char *output(int from) const {
        const bool apart = job.collective == Collective::allgather || job.collective == Collective::alltoall;
        return job.out + (apart ? job.part_offset(from) : 0);
    }
};

}  // namespace flx::cuda
