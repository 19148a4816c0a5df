/// \file cuda_driver.h
/// The part of CUDA's driver that the tests of GPU buffers call, so that they need no CUDA to build and run with the
/// driver of a machine or with what stands in for one (cuda_stand_in.c).
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace flx::test {

struct CudaDriver {
    int (*init)(unsigned) = nullptr;
    int (*count)(int *) = nullptr;
    int (*retain)(void **, int) = nullptr;
    int (*make_current)(void *) = nullptr;
    int (*allocate)(unsigned long long *, size_t) = nullptr;
    int (*free)(unsigned long long) = nullptr;
    int (*copy)(unsigned long long, unsigned long long, size_t) = nullptr;
    int (*attribute)(void *, int, unsigned long long) = nullptr;

    /// False: there is no driver.
    bool load() {
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        return library != nullptr && find(library, "cuInit", init) && find(library, "cuDeviceGetCount", count) &&
               find(library, "cuDevicePrimaryCtxRetain", retain) && find(library, "cuCtxSetCurrent", make_current) &&
               find(library, "cuMemAlloc_v2", allocate) && find(library, "cuMemFree_v2", free) &&
               find(library, "cuMemcpy", copy) && find(library, "cuPointerGetAttribute", attribute);
    }
    /// Makes a GPU the current one, another one for each number as long as there are some. False: there is none.
    bool begin(int number) const {
        int devices = 0;
        void *context = nullptr;
        return init(0) == 0 && count(&devices) == 0 && devices > 0 && retain(&context, number % devices) == 0 &&
               make_current(context) == 0;
    }
    [[nodiscard]] bool holds(const void *address) const {
        constexpr int kMemoryType = 2;
        constexpr unsigned kDevice = 2;
        unsigned type = 0;
        return attribute(&type, kMemoryType, number(address)) == 0 && type == kDevice;
    }
    void must_copy(void *to, const void *from, size_t bytes) const {
        if (bytes == 0 || copy(number(to), number(from), bytes) == 0)
            return;
        std::fprintf(stderr, "a copy of %zu B from %p to %p failed\n", bytes, from, to);
        std::abort();
    }

  private:
    static unsigned long long number(const void *address) { return reinterpret_cast<unsigned long long>(address); }
    template <typename Function>
    static bool find(void *library, const char *name, Function &function) {
        function = reinterpret_cast<Function>(dlsym(library, name));
        return function != nullptr;
    }
};

}  // namespace flx::test
