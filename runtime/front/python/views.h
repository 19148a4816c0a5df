/// \file views.h
/// Python's objects as memory that FLX reads and writes: whatever has the buffer protocol (numpy, array, bytearray,
/// memoryview), or else gives itself away by DLPack (PyTorch, CuPy, JAX).
#pragma once

#include <flx.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <utility>

namespace flx::python {

namespace py = pybind11;

/// The memory of one object, which it keeps. With Python's lock held, but for moves.
class View {
  public:
    View() = default;
    /// `object`: dense, in C's order. `written`: FLX writes there. `dtype`: -1 for the object's own type of element;
    /// others are taken as they are, so that an array of uint16 can be one of bfloat16. Throws flx.Error or what the
    /// object throws. `name`: of the argument, for the sentence.
    View(const py::handle &object, const char *name, bool written, int dtype);
    View(View &&other) noexcept { swap(other); }
    View &operator=(View &&other) noexcept {
        swap(other);
        return *this;
    }
    View(const View &) = delete;
    View &operator=(const View &) = delete;
    ~View() {
        if (held_)
            PyBuffer_Release(&buffer_);
    }

    [[nodiscard]] void *data() const { return data_; }
    [[nodiscard]] size_t count() const { return count_; }  ///< elements
    [[nodiscard]] flx_dtype_t dtype() const { return dtype_; }
    [[nodiscard]] bool empty() const { return !there_; }  ///< made of no object
    [[nodiscard]] bool truth() const { return truth_; }   ///< FLX_UINT8 that stands for bool
    /// Lets the object go, without Python's lock being needed any more.
    void drop() { *this = View(); }

  private:
    void swap(View &other) noexcept {
        std::swap(buffer_, other.buffer_);
        std::swap(held_, other.held_);
        std::swap(there_, other.there_);
        std::swap(truth_, other.truth_);
        std::swap(capsule_, other.capsule_);
        std::swap(data_, other.data_);
        std::swap(count_, other.count_);
        std::swap(dtype_, other.dtype_);
    }
    void take_buffer(const py::handle &object, const char *name, bool written, int dtype);
    void take_tensor(const py::handle &object, const char *name, int dtype);
    void count_bytes(size_t bytes, const char *name);

    Py_buffer buffer_{};
    bool held_ = false;
    bool there_ = false;
    bool truth_ = false;
    py::object capsule_;  ///< of DLPack
    void *data_ = nullptr;
    size_t count_ = 0;
    flx_dtype_t dtype_ = FLX_UINT8;
};

/// Raises flx.Error with that status where it is not success: the sentence, `status`, and `code` (`FLX-E601`).
void raise(flx_status_t status, const char *sentence);
inline void check(flx_status_t status) {
    if (status != FLX_SUCCESS)
        raise(status, flx_last_error());
}
/// Raises flx.Error as FLX does for arguments that it refuses.
[[noreturn]] void refuse(const std::string &sentence);

}  // namespace flx::python
