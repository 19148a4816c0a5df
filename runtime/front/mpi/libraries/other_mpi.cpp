#include "runtime/front/mpi/libraries/other_mpi.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace flx::preload {
namespace {

enum class Mpi { none, open_mpi, mpich, standard_abi };

#ifdef OPEN_MPI
constexpr Mpi kOwn = Mpi::open_mpi;
#else
constexpr Mpi kOwn = Mpi::mpich;
#endif

/// The name, the one that CMake knows it by, and the compiler that Debian has for it.
struct Names {
    const char *name;
    const char *option;
    const char *compiler;
};

constexpr Names names_of(Mpi mpi) {
    return mpi == Mpi::open_mpi ? Names{"Open MPI", "openmpi", "mpicc.openmpi"}
                                : Names{"MPICH", "mpich", "mpicc.mpich"};
}

/// Which MPI's library a file is. Both call theirs libmpi, in which Open MPI has its predefined handles as objects.
Mpi mpi_in(const std::string &path) {
    const std::string_view name = std::string_view(path).substr(path.find_last_of('/') + 1);
    if (name.starts_with("libmpi_abi.so"))
        return Mpi::standard_abi;
    if (!name.starts_with("libmpi.so") && !name.starts_with("libmpich.so"))
        return Mpi::none;
    void *library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr)
        return Mpi::none;
    const bool has_objects = dlsym(library, "ompi_mpi_comm_world") != nullptr;
    dlclose(library);
    return has_objects ? Mpi::open_mpi : Mpi::mpich;
}

/// The files of all libraries that are loaded.
std::vector<std::string> loaded() {
    std::vector<std::string> files;
    dl_iterate_phdr(
        [](dl_phdr_info *info, size_t, void *all) {
            static_cast<std::vector<std::string> *>(all)->emplace_back(info->dlpi_name);
            return 0;
        },
        &files);
    return files;
}

/// Programs that were not linked with an MPI, such as shells, come here, too.
[[gnu::constructor]] void look_when_loaded() {
    refuse_other_mpi();
}

}  // namespace

void refuse_other_mpi() {
    for (const std::string &file : loaded()) {
        const Mpi found = mpi_in(file);
        if (found == Mpi::none || found == kOwn)
            continue;
        constexpr Names kMine = names_of(kOwn);
        if (found == Mpi::standard_abi)
            fmt::print(stderr,
                       "flx_mpi: this program uses MPI's standard ABI ({}), which FLX does not serve; it must be built "
                       "with {}'s own mpi.h ({})\n",
                       file, kMine.name, kMine.compiler);
        else
            fmt::print(
                stderr,
                "flx_mpi: this program uses {} ({}), and this FLX was built for {}; take the flx-run of one that "
                "was built with -DFLX_WITH_MPI={}\n",
                names_of(found).name, file, kMine.name, names_of(found).option);
        std::fflush(stderr);
        _exit(1);  // MPI's own libraries, two of them, have nothing to end
    }
}

}  // namespace flx::preload
