/// \file gpu_memory.h
/// GPU memory as the library in front of MPI needs it: which addresses are a GPU's, copies from and to it, memory of
/// its own there. It asks the driver's library, so it needs no CUDA to build, and no FLX that was built with CUDA.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace flx::preload {

/// `height` rows of `width` bytes, the first from `from` to `to`, either of which may be a GPU's. What lies between the
/// rows is left alone. Pitches may be negative.
struct Rows {
    std::byte *to = nullptr;
    const std::byte *from = nullptr;
    size_t width = 0;
    size_t height = 1;
    ptrdiff_t to_pitch = 0;
    ptrdiff_t from_pitch = 0;
};

/// The driver of this process. Any thread may ask, whatever its current context.
class Gpus {
  public:
    static Gpus &instance();

    /// Whether this machine may have a GPU, or the process a driver. Loads nothing.
    static bool may_exist();
    /// The file of a library of other makers' GPUs (HIP, Level Zero) that the process has loaded; empty: none. What is
    /// in their memory is not known here, and would be taken for host memory.
    static std::string library_of_others();

    /// Whether anybody in this process has initialised the driver, as comes before any use of a GPU. A few nanoseconds
    /// after the first time, which loads the driver's library.
    [[nodiscard]] bool in_use() const {
        void *context = nullptr;
        return current_ != nullptr && current_(&context) != kNotInitialised;
    }
    /// Whether `address` is memory of a GPU, or managed. False where no GPU is in use, and for null.
    [[nodiscard]] bool hold(const void *address) const;

    /// Copies all and waits for that, on a stream of its own: of what the program does on the GPU, only the default
    /// stream is waited for. `near` is an address on the GPU. Empty, or a sentence that says why it failed.
    std::string copy(const std::vector<Rows> &all, const void *near);

    /// Memory on the GPU that this thread uses (the first one, if it uses none yet). Null: `why` says why.
    void *allocate(size_t bytes, std::string &why);
    void free(void *memory);
    /// Waits for what is on that GPU's default stream. A copy from pageable host memory may still be under way there
    /// when the program's call of it has returned. Empty, or a sentence.
    std::string await_default_stream();

  private:
    Gpus();
    using Handle = void *;  ///< a context, a stream
    static constexpr int kSuccess = 0;
    static constexpr int kNotInitialised = 3;
    struct Copy2D;

    Handle context_of(const void *address);
    Handle primary(int device);
    Handle current_or_first();
    std::string put(const Rows &rows, Handle stream) const;

    int (*current_)(Handle *) = nullptr;
    int (*push_)(Handle) = nullptr;
    int (*pop_)(Handle *) = nullptr;
    int (*retain_primary_)(Handle *, int) = nullptr;
    int (*attributes_)(unsigned, int *, void **, unsigned long long) = nullptr;
    int (*make_stream_)(Handle *, unsigned) = nullptr;
    int (*await_)(Handle) = nullptr;
    int (*copy_)(unsigned long long, unsigned long long, size_t, Handle) = nullptr;
    int (*copy_rows_)(const Copy2D *, Handle) = nullptr;
    int (*allocate_)(unsigned long long *, size_t) = nullptr;
    int (*free_)(unsigned long long) = nullptr;

    std::mutex mutex_;                  ///< of what follows
    std::map<Handle, Handle> streams_;  ///< by context
    std::map<int, Handle> primaries_;   ///< contexts that this library keeps, by device
};

}  // namespace flx::preload
