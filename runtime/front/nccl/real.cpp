#include "runtime/front/nccl/real.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "runtime/base/log.h"
#include "runtime/front/nccl/exports.h"

namespace flx::nccl {
namespace {

constexpr const char *kName = "libnccl.so.2";
constexpr const char *kKnob = "FLX_NCCL_LIBRARY";

std::mutex trying;
std::string tried;  ///< under `trying`

std::string file_of(const void *address) {
    Dl_info info{};
    return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

/// The file of this very library, which must not be taken for the one behind it.
const std::string &own_file() {
    static const std::string file = file_of(reinterpret_cast<const void *>(&own_file));
    return file;
}

void *open_library() {
    tried.clear();
    const auto usable = [](void *handle) -> void * {
        void *function = handle == nullptr ? nullptr : dlsym(handle, "ncclGetVersion");
        if (function != nullptr && file_of(function) != own_file())
            return handle;
        if (handle != nullptr)
            dlclose(handle);
        return nullptr;
    };
    if (void *next = dlsym(RTLD_NEXT, "ncclGetVersion"); next != nullptr)
        if (void *handle = usable(dlopen(file_of(next).c_str(), RTLD_LAZY | RTLD_NOLOAD)); handle != nullptr)
            return handle;
    tried = "no library of the program has ncclGetVersion";
    // Loaded for a library of the program's own alone, as torch's is.
    if (void *handle = usable(dlopen(kName, RTLD_LAZY | RTLD_NOLOAD)); handle != nullptr)
        return handle;
    tried += fmt::format(", {} is not loaded", kName);
    const char *chosen = std::getenv(kKnob);
    const std::string name = chosen == nullptr || *chosen == '\0' ? kName : chosen;
    void *opened = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (void *handle = usable(opened); handle != nullptr)
        return handle;
    const char *why = opened == nullptr ? dlerror() : nullptr;
    tried += fmt::format(", and {} cannot be used: {}; {} may name NCCL's file", name,
                         why != nullptr ? why : "it has no ncclGetVersion of its own", kKnob);
    return nullptr;
}

}  // namespace

const Real &real() {
    static Real found;
    static const Real none;
    static std::atomic<bool> done{false};
    if (done.load(std::memory_order_acquire))
        return found;
    const std::lock_guard guard(trying);
    if (done.load(std::memory_order_relaxed))
        return found;
    void *handle = open_library();
    if (handle == nullptr)
        return none;
#define FLX_NCCL_FIND(RESULT, NAME, PARAMETERS, ARGUMENTS) \
    found.NAME = reinterpret_cast<decltype(found.NAME)>(dlsym(handle, #NAME));
    FLX_NCCL_ALL(FLX_NCCL_FIND)
#undef FLX_NCCL_FIND
    found.path = file_of(reinterpret_cast<const void *>(found.ncclGetVersion));
    found.ncclGetVersion(&found.version);
    log().info("the NCCL behind FLX is {}", found.path);
    done.store(true, std::memory_order_release);
    return found;
}

std::string &last_words() {
    static thread_local std::string words;
    return words;
}

ncclResult_t missing(const char *name) {
    const std::string &path = real().path;
    if (!path.empty()) {
        last_words() = fmt::format("FLX: {} is called, which {} does not have", name, path);
        return ncclInvalidUsage;
    }
    static std::atomic<bool> said{false};
    {
        const std::lock_guard guard(trying);
        last_words() = fmt::format("FLX stands in front of NCCL and found none behind it: {}", tried);
    }
    if (!said.exchange(true))
        log().error("{}", last_words());
    return ncclSystemError;
}

}  // namespace flx::nccl

// ---- the functions of NCCL's in which FLX has no part

#define FLX_NCCL_FORWARD(RESULT, NAME, PARAMETERS, ARGUMENTS) \
    FLX_EXPORT RESULT NAME PARAMETERS {                       \
        const flx::nccl::Real &real = flx::nccl::real();      \
        if (real.NAME == nullptr)                             \
            return flx::nccl::missing(#NAME);                 \
        const flx::nccl::Inside inside;                       \
        return real.NAME ARGUMENTS;                           \
    }
FLX_NCCL_FORWARDED(FLX_NCCL_FORWARD)
#undef FLX_NCCL_FORWARD

FLX_EXPORT const char *ncclGetErrorString(ncclResult_t result) {
    const flx::nccl::Real &real = flx::nccl::real();
    return real.ncclGetErrorString != nullptr ? real.ncclGetErrorString(result) : "no NCCL was found behind FLX";
}

FLX_EXPORT void ncclResetDebugInit() {
    if (flx::nccl::real().ncclResetDebugInit != nullptr)
        flx::nccl::real().ncclResetDebugInit();
}

FLX_EXPORT void ncclParamDumpAll() {
    if (flx::nccl::real().ncclParamDumpAll != nullptr)
        flx::nccl::real().ncclParamDumpAll();
}
