#include "runtime/front/mpi/arguments/gpu_memory.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

namespace flx::preload {
namespace {

constexpr const char *kLibrary = "libcuda.so.1";

/// The numbers of cuda.h, which do not change.
constexpr int kAttributeContext = 1;
constexpr int kAttributeMemoryType = 2;
constexpr int kAttributeManaged = 8;
constexpr int kAttributeDevice = 9;
constexpr unsigned kTypeDevice = 2;
constexpr unsigned kTypeUnified = 4;
/// A stream that waits for what is on the default one, see await_default_stream().
constexpr unsigned kAfterDefaultStream = 0;

unsigned long long pointer(const void *address) {
    return reinterpret_cast<unsigned long long>(address);
}

template <typename Function>
bool find(void *library, const char *name, Function &function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
}

}  // namespace

/// CUDA_MEMCPY2D.
struct Gpus::Copy2D {
    struct Side {
        size_t x = 0;
        size_t y = 0;
        unsigned type = kTypeUnified;  ///< the driver sees from the address whose it is
        const void *host = nullptr;
        unsigned long long address = 0;
        void *array = nullptr;
        size_t pitch = 0;
    };
    Side from;
    Side to;
    size_t width = 0;
    size_t height = 0;
};

Gpus &Gpus::instance() {
    static auto *const gpus = new Gpus;  // stays: MPI may be finalized by a destructor
    return *gpus;
}

bool Gpus::may_exist() {
    if (void *library = dlopen(kLibrary, RTLD_LAZY | RTLD_NOLOAD); library != nullptr) {
        dlclose(library);
        return true;
    }
    constexpr std::array kNodes = {"/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl-gpu", "/dev/nvgpu"};
    return std::any_of(kNodes.begin(), kNodes.end(), [](const char *node) { return access(node, F_OK) == 0; });
}

std::string Gpus::library_of_others() {
    std::string found;
    dl_iterate_phdr(
        [](dl_phdr_info *info, size_t, void *to) {
            const std::string_view file = info->dlpi_name;
            const std::string_view name = file.substr(file.find_last_of('/') + 1);
            const bool is_one = name.starts_with("libamdhip64.so") || name.starts_with("libze_loader.so");
            if (is_one)
                *static_cast<std::string *>(to) = file;
            return is_one ? 1 : 0;
        },
        &found);
    return found;
}

/// Without one of the functions there is no GPU.
Gpus::Gpus() {
    void *library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
        return;
    decltype(current_) current = nullptr;
    if (find(library, "cuCtxGetCurrent", current) && find(library, "cuCtxPushCurrent_v2", push_) &&
        find(library, "cuCtxPopCurrent_v2", pop_) && find(library, "cuDevicePrimaryCtxRetain", retain_primary_) &&
        find(library, "cuPointerGetAttributes", attributes_) && find(library, "cuStreamCreate", make_stream_) &&
        find(library, "cuStreamSynchronize", await_) && find(library, "cuMemcpyAsync", copy_) &&
        find(library, "cuMemcpy2DAsync_v2", copy_rows_) && find(library, "cuMemAlloc_v2", allocate_) &&
        find(library, "cuMemFree_v2", free_))
        current_ = current;
}

bool Gpus::hold(const void *address) const {
    if (address == nullptr || !in_use())
        return false;
    std::array attributes = {kAttributeMemoryType, kAttributeManaged};
    unsigned type = 0;
    int managed = 0;
    std::array<void *, 2> values = {&type, &managed};
    // Of addresses that the driver does not know it says nothing, which is no error.
    return attributes_(attributes.size(), attributes.data(), values.data(), pointer(address)) == kSuccess &&
           (type == kTypeDevice || managed != 0);
}

/// The primary context of `device`; null if there is none. `mutex_` is held.
Gpus::Handle Gpus::primary(int device) {
    const auto [known, is_new] = primaries_.try_emplace(device, nullptr);
    if (is_new && retain_primary_(&known->second, device) != kSuccess)
        primaries_.erase(device);
    const auto found = primaries_.find(device);
    return found == primaries_.end() ? nullptr : found->second;
}

/// A context in which copies from and to `address` can be made. `mutex_` is held.
Gpus::Handle Gpus::context_of(const void *address) {
    std::array attributes = {kAttributeContext, kAttributeDevice};
    Handle context = nullptr;
    int device = 0;
    std::array<void *, 2> values = {&context, &device};
    attributes_(attributes.size(), attributes.data(), values.data(), pointer(address));
    if (context != nullptr)
        return context;
    current_(&context);  // memory of pools and of mappings has none of its own
    return context != nullptr ? context : primary(device);
}

/// Null if it was put on the stream.
std::string Gpus::put(const Rows &rows, Handle stream) const {
    constexpr ptrdiff_t kMostPitch = INT32_MAX;
    const auto suits = [&](ptrdiff_t pitch) {
        return pitch >= static_cast<ptrdiff_t>(rows.width) && pitch <= kMostPitch;
    };
    int code = kSuccess;
    if (rows.height > 1 && suits(rows.to_pitch) && suits(rows.from_pitch)) {
        Copy2D copy;
        copy.from.address = pointer(rows.from);
        copy.from.pitch = static_cast<size_t>(rows.from_pitch);
        copy.to.address = pointer(rows.to);
        copy.to.pitch = static_cast<size_t>(rows.to_pitch);
        copy.width = rows.width;
        copy.height = rows.height;
        code = copy_rows_(&copy, stream);
    } else {
        for (size_t row = 0; row < rows.height && code == kSuccess; ++row)
            code = copy_(pointer(rows.to + static_cast<ptrdiff_t>(row) * rows.to_pitch),
                         pointer(rows.from + static_cast<ptrdiff_t>(row) * rows.from_pitch), rows.width, stream);
    }
    return code == kSuccess ? std::string() : fmt::format("the CUDA driver refused a copy (error {})", code);
}

std::string Gpus::copy(const std::vector<Rows> &all, const void *near) {
    if (all.empty())
        return {};
    Handle context = nullptr;
    Handle stream = nullptr;
    int code = kSuccess;
    {
        const std::lock_guard guard(mutex_);
        context = context_of(near);
        code = push_(context);
        if (code == kSuccess) {
            Handle &known = streams_[context];
            if (known == nullptr)
                code = make_stream_(&known, kAfterDefaultStream);
            stream = known;
            if (code != kSuccess)
                pop_(&context);
        }
    }
    if (code != kSuccess)
        return fmt::format("the CUDA driver has no stream for copies (error {})", code);
    std::string why;
    for (size_t i = 0; i < all.size() && why.empty(); ++i)
        why = put(all[i], stream);
    code = await_(stream);
    if (code != kSuccess && why.empty())
        why = fmt::format("a copy from or to GPU memory failed (CUDA's error {})", code);
    Handle popped = nullptr;
    pop_(&popped);
    return why;
}

/// The context that this thread uses. Null: no GPU is in use.
Gpus::Handle Gpus::current_or_first() {
    Handle context = nullptr;
    if (current_ == nullptr || current_(&context) != kSuccess)
        return nullptr;
    const std::lock_guard guard(mutex_);
    return context != nullptr ? context : primary(0);
}

std::string Gpus::await_default_stream() {
    Handle context = current_or_first();
    int code = push_(context);
    if (code == kSuccess) {
        code = await_(nullptr);
        pop_(&context);
    }
    return code == kSuccess ? std::string()
                            : fmt::format("what is on the GPU's default stream failed (CUDA's error {})", code);
}

void *Gpus::allocate(size_t bytes, std::string &why) {
    Handle context = current_or_first();
    if (context == nullptr) {
        why = "this rank uses no GPU";
        return nullptr;
    }
    unsigned long long made = 0;
    int code = push_(context);
    if (code == kSuccess) {
        code = allocate_(&made, std::max<size_t>(bytes, 1));
        pop_(&context);
    }
    if (code != kSuccess)
        why = fmt::format("the GPU has no {} B for a copy of host memory (CUDA's error {})", bytes, code);
    return code == kSuccess ? reinterpret_cast<void *>(made) : nullptr;
}

void Gpus::free(void *memory) {
    Handle context = nullptr;
    {
        const std::lock_guard guard(mutex_);
        context = context_of(memory);
    }
    if (push_(context) != kSuccess)
        return;
    free_(pointer(memory));
    pop_(&context);
}

}  // namespace flx::preload
