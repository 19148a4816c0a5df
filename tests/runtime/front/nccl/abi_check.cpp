/// Whether abi.h and functions.h say what nccl.h says: built where nccl.h is found, and that it builds is the test.
#include <nccl.h>

#include <cstddef>

// Our names beside NCCL's. No function may be declared twice with other types, so only their types are compared.
namespace ours {
#define FLX_NCCL_ABI_NO_CUDA
#include "runtime/front/nccl/functions.h"
}  // namespace ours

namespace {

#define SAME_NUMBER(NAME) static_assert(static_cast<int>(ours::NAME) == static_cast<int>(::NAME))
SAME_NUMBER(ncclSuccess);
SAME_NUMBER(ncclUnhandledCudaError);
SAME_NUMBER(ncclSystemError);
SAME_NUMBER(ncclInternalError);
SAME_NUMBER(ncclInvalidArgument);
SAME_NUMBER(ncclInvalidUsage);
SAME_NUMBER(ncclRemoteError);
SAME_NUMBER(ncclInProgress);
SAME_NUMBER(ncclInt8);
SAME_NUMBER(ncclUint8);
SAME_NUMBER(ncclInt32);
SAME_NUMBER(ncclUint32);
SAME_NUMBER(ncclInt64);
SAME_NUMBER(ncclUint64);
SAME_NUMBER(ncclFloat16);
SAME_NUMBER(ncclFloat32);
SAME_NUMBER(ncclFloat64);
SAME_NUMBER(ncclBfloat16);
SAME_NUMBER(ncclSum);
SAME_NUMBER(ncclProd);
SAME_NUMBER(ncclMax);
SAME_NUMBER(ncclMin);
SAME_NUMBER(ncclAvg);
SAME_NUMBER(ncclNumOps);
SAME_NUMBER(ncclMaxRedOp);
SAME_NUMBER(ncclScalarDevice);
SAME_NUMBER(ncclScalarHostImmediate);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
SAME_NUMBER(ncclFloat8e4m3);
SAME_NUMBER(ncclFloat8e5m2);
#endif
static_assert(ours::kNcclUndefined == NCCL_CONFIG_UNDEF_INT && ours::kNcclNoColor == NCCL_SPLIT_NOCOLOR);
#ifdef NCCL_SHRINK_ABORT
static_assert(ours::kNcclShrinkAbort == NCCL_SHRINK_ABORT);
#endif
#ifdef NCCL_WIN_COLL_SYMMETRIC
static_assert(ours::kNcclWindowSymmetric == NCCL_WIN_COLL_SYMMETRIC);
#endif
static_assert(sizeof(ours::ncclUniqueId) == sizeof(::ncclUniqueId));
static_assert(sizeof(ours::ncclDataType_t) == sizeof(::ncclDataType_t) &&
              sizeof(ours::ncclRedOp_t) == sizeof(::ncclRedOp_t) &&
              sizeof(ours::ncclResult_t) == sizeof(::ncclResult_t));
static_assert(offsetof(ours::ncclConfig_t, blocking) == offsetof(::ncclConfig_t, blocking) &&
              offsetof(ours::ncclConfig_t, version) == offsetof(::ncclConfig_t, version));

template <typename Ours, typename Theirs>
struct Alike {
    static constexpr bool value = sizeof(Ours) == sizeof(Theirs);
};
template <typename Ours, typename Theirs>
struct SameCall {
    static constexpr bool value = false;
};
/// As many parameters, each of the same size: pointers, integers and enumerations go where the other's would.
template <typename A, typename... P, typename B, typename... Q>
requires(sizeof...(P) == sizeof...(Q)) struct SameCall<A(P...), B(Q...)> {
    static constexpr bool value = (Alike<P, Q>::value && ... && true);
};

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
}  // namespace

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 0)
static_assert(offsetof(ours::ncclCollConfig_t, algSelection) == offsetof(::ncclCollConfig_t, algSelection) &&
              sizeof(ours::ncclCollConfig_t) <= sizeof(::ncclCollConfig_t));
#define FLX_NCCL_DECLARED_31(X) FLX_NCCL_TAKEN_31(X)
#else
#define FLX_NCCL_DECLARED_31(X)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 0)
SAME_NUMBER(ncclTimeout);
#define FLX_NCCL_DECLARED_30(X) FLX_NCCL_FORWARDED_30(X) FLX_NCCL_OTHER_30(X)
#else
#define FLX_NCCL_DECLARED_30(X) FLX_NCCL_OTHER_29(X)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
#define FLX_NCCL_DECLARED_29(X) FLX_NCCL_TAKEN_29(X) FLX_NCCL_FORWARDED_29(X)
#else
#define FLX_NCCL_DECLARED_29(X)
#endif
/// What the nccl.h of this build has of ours.
#define FLX_NCCL_DECLARED(X) \
    FLX_NCCL_TAKEN_28(X)     \
    FLX_NCCL_FORWARDED_28(X) FLX_NCCL_OTHER(X) FLX_NCCL_DECLARED_29(X) FLX_NCCL_DECLARED_30(X) FLX_NCCL_DECLARED_31(X)

// Types of functions, named in the namespace where our types are.
namespace ours::calls {
#define FLX_NCCL_TYPE(RESULT, NAME, PARAMETERS, ARGUMENTS) using NAME = RESULT PARAMETERS;
FLX_NCCL_DECLARED(FLX_NCCL_TYPE)
}  // namespace ours::calls

#define FLX_NCCL_SAME(RESULT, NAME, PARAMETERS, ARGUMENTS) \
    static_assert(SameCall<ours::calls::NAME, decltype(::NAME)>::value, #NAME);
FLX_NCCL_DECLARED(FLX_NCCL_SAME)
