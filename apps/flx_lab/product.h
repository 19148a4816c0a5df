/// \file product.h
/// A matrix product on the GPU, as a training step has them: bf16, added in f32, by cuBLAS, which is loaded when the
/// program runs, so that building needs none.
#pragma once

#include <memory>
#include <string>

struct CUstream_st;

namespace flx::bench::lab {

class Product {
  public:
    /// Of two square matrices of `side`, on the current device. Null, and why, where there is no cuBLAS or no memory.
    static std::unique_ptr<Product> make(int side, std::string &why);
    ~Product();
    Product(const Product &) = delete;
    Product &operator=(const Product &) = delete;

    /// Puts one on the stream. An empty text, or what went wrong.
    std::string put(CUstream_st *stream);
    [[nodiscard]] double flops() const { return 2.0 * side_ * side_ * side_; }

  private:
    struct Library;
    Product() = default;
    std::string prepare();

    std::unique_ptr<Library> library_;
    void *handle_ = nullptr;
    void *memory_ = nullptr;
    int side_ = 0;
};

}  // namespace flx::bench::lab
