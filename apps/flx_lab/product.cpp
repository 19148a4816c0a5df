#include "apps/flx_lab/product.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <library_types.h>

#include <array>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "apps/bench/device_data.h"

namespace flx::bench::lab {
namespace {

// What is needed of cuBLAS's interface (cublas_api.h), whose numbers do not change.
constexpr int kAsIs = 0;           // CUBLAS_OP_N
constexpr int kComputeF32 = 68;    // CUBLAS_COMPUTE_32F
constexpr int kAnyAlgorithm = -1;  // CUBLAS_GEMM_DEFAULT

}  // namespace

struct Product::Library {
    void *handle = nullptr;
    int (*create)(void **) = nullptr;
    int (*destroy)(void *) = nullptr;
    int (*set_stream)(void *, CUstream_st *) = nullptr;
    int (*gemm)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
                const void *, void *, int, int, int, int) = nullptr;

    std::string load() {
        for (const char *name : {"libcublas.so.13", "libcublas.so.12"}) {
            handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
            if (handle != nullptr)
                break;
        }
        if (handle == nullptr)
            return "cuBLAS was not found (libcublas.so.13 or .12); LD_LIBRARY_PATH may name its folder";
        const auto find = [this](auto &function, const char *name) {
            function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
            return function != nullptr;
        };
        const bool all = find(create, "cublasCreate_v2") && find(destroy, "cublasDestroy_v2") &&
                         find(set_stream, "cublasSetStream_v2") && find(gemm, "cublasGemmEx");
        return all ? "" : "the cuBLAS that was found lacks a function that is needed";
    }
    ~Library() {
        if (handle != nullptr)
            dlclose(handle);
    }
};

std::unique_ptr<Product> Product::make(int side, std::string &why) {
    std::unique_ptr<Product> product(new Product);
    product->side_ = side;
    product->library_ = std::make_unique<Library>();
    why = product->library_->load();
    if (why.empty() && product->library_->create(&product->handle_) != 0)
        why = "cuBLAS could not be used on this GPU";
    if (why.empty())
        why = product->prepare();
    return why.empty() ? std::move(product) : nullptr;
}

/// Numbers that are not all alike: what a product draws, and so its clock, depends on them.
std::string Product::prepare() {
    constexpr size_t kPeriod = 1 << 20;
    const size_t elements = static_cast<size_t>(side_) * side_;
    std::mt19937 random(1);
    std::vector<uint16_t> table(kPeriod);
    for (uint16_t &value : table)
        value = static_cast<uint16_t>(0x3e80 + random() % 0x100 + (random() % 2 << 15));  // +-0.25 to +-1
    void *on_device = nullptr;
    const bool ready =
        cudaMalloc(&memory_, 3 * elements * sizeof(uint16_t)) == cudaSuccess &&
        cudaMalloc(&on_device, kPeriod * sizeof(uint16_t)) == cudaSuccess &&
        cudaMemcpy(on_device, table.data(), kPeriod * sizeof(uint16_t), cudaMemcpyHostToDevice) == cudaSuccess &&
        fill_from_table(memory_, on_device, 2 * elements, sizeof(uint16_t), kPeriod, nullptr) == cudaSuccess &&
        cudaDeviceSynchronize() == cudaSuccess;
    cudaFree(on_device);
    return ready ? "" : "not enough GPU memory for a matrix product";
}

Product::~Product() {
    if (handle_ != nullptr)
        library_->destroy(handle_);
    cudaFree(memory_);
}

std::string Product::put(CUstream_st *stream) {
    const size_t elements = static_cast<size_t>(side_) * side_;
    auto *matrices = static_cast<uint16_t *>(memory_);
    const float one = 1;
    const float zero = 0;
    int error = library_->set_stream(handle_, stream);
    if (error == 0)
        error = library_->gemm(handle_, kAsIs, kAsIs, side_, side_, side_, &one, matrices, CUDA_R_16BF, side_,
                               matrices + elements, CUDA_R_16BF, side_, &zero, matrices + 2 * elements, CUDA_R_16BF,
                               side_, kComputeF32, kAnyAlgorithm);
    return error == 0 ? "" : fmt::format("cuBLAS refused a matrix product: error {}", error);
}

}  // namespace flx::bench::lab
