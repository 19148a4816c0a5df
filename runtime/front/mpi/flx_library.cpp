#include "runtime/front/mpi/flx_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>

namespace flx::preload {
namespace {

constexpr const char *kThis = "libflx_mpi.so";

[[noreturn]] void end(const std::string &why) {
    fmt::print(stderr, "flx_mpi: {}\n", why);
    std::fflush(stderr);
    _exit(1);
}

/// As if this library had been linked with it: seen by all that are loaded.
void load() {
    const std::string file = flx_library_file();
    if (dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr)
        end(fmt::format("libflx, which belongs to {}, cannot be loaded: {}", kThis, dlerror()));
}

}  // namespace

std::string flx_library_file() {
    Dl_info self{};
    const std::string own = dladdr(reinterpret_cast<const void *>(&flx_library_file), &self) != 0 ? self.dli_fname : "";
    const size_t slash = own.rfind('/');
    return (slash == std::string::npos ? "" : own.substr(0, slash + 1)) + FLX_LIBRARY;
}

void *flx_function(const char *name) {
    static std::once_flag loaded;
    std::call_once(loaded, load);
    // Libraries that stand before libflx serve what they have of it, as they do where it is linked.
    void *const found = dlsym(RTLD_DEFAULT, name);
    if (found == nullptr)
        end(fmt::format("{} has no {}: it belongs to another {}", flx_library_file(), name, kThis));
    return found;
}

}  // namespace flx::preload
