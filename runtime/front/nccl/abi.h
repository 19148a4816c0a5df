/// \file abi.h
/// NCCL's binary interface as far as this library needs it: numbers and layouts, which have not changed from 2.19 to
/// 2.32, so that it builds where there is no nccl.h. tests/runtime/front/nccl/abi_check.cpp compares them with nccl.h
/// where it is.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifndef FLX_NCCL_ABI_NO_CUDA  // abi_check.cpp has CUDA's own
struct CUstream_st;
#endif

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
typedef struct CUstream_st *cudaStream_t;

typedef struct {
    char internal[128];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
    ncclTimeout = 8
} ncclResult_t;

typedef enum {
    ncclInt8 = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclFloat32 = 7,
    ncclFloat64 = 8,
    ncclBfloat16 = 9,
    ncclFloat8e4m3 = 10,
    ncclFloat8e5m2 = 11,
    ncclMaxDataType = 0x7fffffff  ///< not NCCL's: values of later versions are no undefined behaviour
} ncclDataType_t;

typedef enum {
    ncclSum = 0,
    ncclProd = 1,
    ncclMax = 2,
    ncclMin = 3,
    ncclAvg = 4,
    ncclNumOps = 5,  ///< from here on: made by ncclRedOpCreate…
    ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

/// The beginning of it; later versions add members at the end.
typedef struct {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
} ncclConfig_t;

/// Of one call (since 2.31). The beginning of it; later versions add members at the end.
typedef struct {
    size_t size;
    unsigned int magic;
    unsigned int version;
    void *ext;
    int minCTAs;
    int maxCTAs;
    int nvlsCTAs;
    int cgaClusterSize;
    const char *algSelection;
    int forceAlgSelection;
    int CTAPolicy;
    uint64_t userProfilerTag;
} ncclCollConfig_t;

/// Only handed on.
typedef struct ncclSimInfo ncclSimInfo_t;
typedef struct ncclWaitSignalDesc ncclWaitSignalDesc_t;
typedef struct ncclParamHandle *ncclParamHandle_t;
typedef enum { ncclStatGpuMemSuspend = 0, ncclStatGpuMemTotal = 3 } ncclCommMemStat_t;

inline constexpr unsigned kNcclMagic = 0xcafebeef;  ///< NCCL_API_MAGIC
enum {
    kNcclNewest = 23299,               ///< the latest NCCL_VERSION_CODE whose functions are in functions.h
    kNcclUndefined = -2147483647 - 1,  ///< NCCL_CONFIG_UNDEF_INT
    kNcclNoColor = -1,                 ///< NCCL_SPLIT_NOCOLOR
    kNcclShrinkAbort = 1,              ///< NCCL_SHRINK_ABORT
    kNcclWindowSymmetric = 1           ///< NCCL_WIN_COLL_SYMMETRIC
};
