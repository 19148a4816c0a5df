/// \file open_pal.h
/// Functions of Open MPI's lower layer, which other MPIs do not have.
#pragma once

#include <dlfcn.h>

namespace flx {

/// Null: this MPI has no such function.
inline void *open_pal(const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    // MPI may have been opened for one library alone. The numbers are those of Open MPI 4 and 5.
    for (const char *library : {"libopen-pal.so.40", "libopen-pal.so.80"})
        if (found == nullptr)
            if (void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD); handle != nullptr)
                found = dlsym(handle, name);
    return found;
}

}  // namespace flx
