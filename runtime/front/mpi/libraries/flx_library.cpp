#include "runtime/front/mpi/libraries/flx_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <mutex>
#include <string>
#include <system_error>

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

/// Found when this library is loaded: its name may be relative to the folder that the program was started in. libflx is
/// beside it in a build, and in the folder above where they are installed. Where it is in neither (this one was copied)
/// the loader looks where it does.
std::string flx_library_file() {
    static const std::string file = [] {
        Dl_info self{};
        if (dladdr(reinterpret_cast<const void *>(&flx_library_file), &self) == 0)
            return std::string(FLX_LIBRARY);
        std::error_code error;
        const std::filesystem::path own = std::filesystem::canonical(self.dli_fname, error).parent_path();
        for (const std::filesystem::path &folder : {own, own.parent_path()})
            if (!error && std::filesystem::exists(folder / FLX_LIBRARY, error))
                return (folder / FLX_LIBRARY).string();
        return std::string(FLX_LIBRARY);
    }();
    return file;
}

namespace {
[[gnu::constructor]] void find_when_loaded() {
    (void)flx_library_file();
}
}  // namespace

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
