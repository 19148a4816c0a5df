/// \file open_pal.h
/// Functions of Open MPI's lower layer, which other MPIs do not have.
#pragma once

#include <dlfcn.h>

namespace flx {

/// Null: this MPI has no such function.
inline void *open_pal(const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    if (found == nullptr)  // MPI may have been opened for one library alone
        if (void *library = dlopen("libopen-pal.so.40", RTLD_LAZY | RTLD_NOLOAD); library != nullptr)
            found = dlsym(library, name);
    return found;
}

}  // namespace flx
