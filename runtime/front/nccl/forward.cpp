/// The functions of NCCL's in which FLX has no part.
#include "runtime/front/nccl/exports.h"
#include "runtime/front/nccl/real.h"

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
