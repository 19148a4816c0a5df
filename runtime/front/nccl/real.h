/// \file real.h
/// The NCCL behind this library: found at the first call, wherever the program or a library of its (torch, say) loaded
/// it.
#pragma once

#include <string>

#include "runtime/front/nccl/functions.h"

namespace flx::nccl {

/// NCCL's functions; null where its version lacks one.
struct Real {
#define FLX_NCCL_MEMBER(RESULT, NAME, PARAMETERS, ARGUMENTS) RESULT(*NAME) PARAMETERS = nullptr;
    FLX_NCCL_ALL(FLX_NCCL_MEMBER)
#undef FLX_NCCL_MEMBER
    std::string path;  ///< of the library; empty: none was found
    int version = 0;   ///< as ncclGetVersion says
};

/// Thread-safe; cheap after the first time that it was found. Where none was found it is looked for again at the next
/// call, and failure() says what was tried.
const Real &real();

/// This thread is inside NCCL, or inside FLX on NCCL's behalf: NCCL calls some of its functions by names that lead
/// here, which must go straight back.
class Inside {
  public:
    Inside() { ++depth(); }
    ~Inside() { --depth(); }
    Inside(const Inside &) = delete;
    Inside &operator=(const Inside &) = delete;
    static bool now() { return depth() != 0; }

  private:
    static int &depth() {
        static thread_local int count = 0;
        return count;
    }
};

/// What FLX itself last had to say to this thread, for ncclGetLastError; empty: NCCL's own text counts.
std::string &last_words();

/// One that does not block says ncclInProgress, and on one rank it may have ended already.
inline bool is_error(ncclResult_t result) {
    return result != ncclSuccess && result != ncclInProgress;
}

/// The sentence for a function that is not there.
ncclResult_t missing(const char *name);

/// Calls a function of NCCL's by its name here.
#define FLX_REAL(NAME, ...)                                                    \
    (::flx::nccl::real().NAME == nullptr ? ::flx::nccl::missing(#NAME) : [&] { \
        const ::flx::nccl::Inside inside;                                      \
        return ::flx::nccl::real().NAME(__VA_ARGS__);                          \
    }())

}  // namespace flx::nccl
