/// \file functions.h
/// The functions of nccl.h, 2.19 to 2.32. What nccl_device.h adds for kernels of one's own (ncclDevCommCreate and the
/// like) makes no communicator and moves nothing, and is not exported: programs find NCCL's. Nor are the names that
/// begin with pnccl, by which profilers go past whatever stands in front of NCCL.
#pragma once

#include "runtime/front/nccl/abi.h"

/// X(result, name, parameters, arguments): those of 2.28 that FLX takes part in.
#define FLX_NCCL_TAKEN_28(X)                                                                                          \
    X(ncclResult_t, ncclCommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank),                 \
      (comm, nranks, commId, rank))                                                                                   \
    X(ncclResult_t, ncclCommInitRankConfig,                                                                           \
      (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config),                           \
      (comm, nranks, commId, rank, config))                                                                           \
    X(ncclResult_t, ncclCommInitRankScalable,                                                                         \
      (ncclComm_t * newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds, ncclConfig_t *config),           \
      (newcomm, nranks, myrank, nId, commIds, config))                                                                \
    X(ncclResult_t, ncclCommInitAll, (ncclComm_t * comm, int ndev, const int *devlist), (comm, ndev, devlist))        \
    X(ncclResult_t, ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config),  \
      (comm, color, key, newcomm, config))                                                                            \
    X(ncclResult_t, ncclCommShrink,                                                                                   \
      (ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm, ncclConfig_t *config,      \
       int shrinkFlags),                                                                                              \
      (comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags))                                      \
    X(ncclResult_t, ncclCommDestroy, (ncclComm_t comm), (comm))                                                       \
    X(ncclResult_t, ncclCommAbort, (ncclComm_t comm), (comm))                                                         \
    X(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int revokeFlags), (comm, revokeFlags))                          \
    X(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t * asyncError), (comm, asyncError))          \
    X(const char *, ncclGetLastError, (ncclComm_t comm), (comm))                                                      \
    X(ncclResult_t, ncclCommWindowRegister,                                                                           \
      (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags), (comm, buff, size, win, winFlags)) \
    X(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win), (comm, win))                       \
    X(ncclResult_t, ncclReduce,                                                                                       \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root,         \
       ncclComm_t comm, cudaStream_t stream),                                                                         \
      (sendbuff, recvbuff, count, datatype, op, root, comm, stream))                                                  \
    X(ncclResult_t, ncclBcast,                                                                                        \
      (void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream),            \
      (buff, count, datatype, root, comm, stream))                                                                    \
    X(ncclResult_t, ncclBroadcast,                                                                                    \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,        \
       cudaStream_t stream),                                                                                          \
      (sendbuff, recvbuff, count, datatype, root, comm, stream))                                                      \
    X(ncclResult_t, ncclAllReduce,                                                                                    \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,  \
       cudaStream_t stream),                                                                                          \
      (sendbuff, recvbuff, count, datatype, op, comm, stream))                                                        \
    X(ncclResult_t, ncclReduceScatter,                                                                                \
      (const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op,               \
       ncclComm_t comm, cudaStream_t stream),                                                                         \
      (sendbuff, recvbuff, recvcount, datatype, op, comm, stream))                                                    \
    X(ncclResult_t, ncclAllGather,                                                                                    \
      (const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm,              \
       cudaStream_t stream),                                                                                          \
      (sendbuff, recvbuff, sendcount, datatype, comm, stream))                                                        \
    X(ncclResult_t, ncclAlltoAll,                                                                                     \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,                  \
       cudaStream_t stream),                                                                                          \
      (sendbuff, recvbuff, count, datatype, comm, stream))                                                            \
    X(ncclResult_t, ncclGather,                                                                                       \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,        \
       cudaStream_t stream),                                                                                          \
      (sendbuff, recvbuff, count, datatype, root, comm, stream))                                                      \
    X(ncclResult_t, ncclScatter,                                                                                      \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,        \
       cudaStream_t stream),                                                                                          \
      (sendbuff, recvbuff, count, datatype, root, comm, stream))                                                      \
    X(ncclResult_t, ncclSend,                                                                                         \
      (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream),  \
      (sendbuff, count, datatype, peer, comm, stream))                                                                \
    X(ncclResult_t, ncclRecv,                                                                                         \
      (void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream),        \
      (recvbuff, count, datatype, peer, comm, stream))                                                                \
    X(ncclResult_t, ncclGroupStart, (), ())                                                                           \
    X(ncclResult_t, ncclGroupEnd, (), ())                                                                             \
    X(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * simInfo), (simInfo))

/// Those of 2.28 that only lead to NCCL.
#define FLX_NCCL_FORWARDED_28(X)                                                                                   \
    X(ncclResult_t, ncclMemAlloc, (void **ptr, size_t size), (ptr, size))                                          \
    X(ncclResult_t, ncclMemFree, (void *ptr), (ptr))                                                               \
    X(ncclResult_t, ncclGetVersion, (int *version), (version))                                                     \
    X(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * uniqueId), (uniqueId))                                        \
    X(ncclResult_t, ncclCommFinalize, (ncclComm_t comm), (comm))                                                   \
    X(ncclResult_t, ncclCommCount, (const ncclComm_t comm, int *count), (comm, count))                             \
    X(ncclResult_t, ncclCommCuDevice, (const ncclComm_t comm, int *device), (comm, device))                        \
    X(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int *rank), (comm, rank))                            \
    X(ncclResult_t, ncclCommRegister, (const ncclComm_t comm, void *buff, size_t size, void **handle),             \
      (comm, buff, size, handle))                                                                                  \
    X(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void *handle), (comm, handle))                     \
    X(ncclResult_t, ncclRedOpCreatePreMulSum,                                                                      \
      (ncclRedOp_t * op, void *scalar, ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm), \
      (op, scalar, datatype, residence, comm))                                                                     \
    X(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm), (op, comm))

/// What 2.29, 2.30 and 2.31 added; 2.32 added no function.
#define FLX_NCCL_TAKEN_29(X)                                                                                 \
    X(ncclResult_t, ncclCommSuspend, (ncclComm_t comm, int flags), (comm, flags))                            \
    X(ncclResult_t, ncclCommResume, (ncclComm_t comm), (comm))                                               \
    X(ncclResult_t, ncclPutSignal,                                                                           \
      (const void *localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin,         \
       size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream), \
      (localbuff, count, datatype, peer, peerWin, peerWinOffset, sigIdx, ctx, flags, comm, stream))          \
    X(ncclResult_t, ncclSignal,                                                                              \
      (int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream),             \
      (peer, sigIdx, ctx, flags, comm, stream))                                                              \
    X(ncclResult_t, ncclWaitSignal,                                                                          \
      (int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm, cudaStream_t stream),                  \
      (nDesc, signalDescs, comm, stream))
#define FLX_NCCL_FORWARDED_29(X)                                                                       \
    X(ncclResult_t, ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId * uniqueId), (comm, uniqueId)) \
    X(ncclResult_t, ncclCommGrow,                                                                      \
      (ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm,       \
       ncclConfig_t *config),                                                                          \
      (comm, nRanks, uniqueId, rank, newcomm, config))                                                 \
    X(ncclResult_t, ncclCommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t * value),     \
      (comm, stat, value))                                                                             \
    X(ncclResult_t, ncclWinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void **outUserPtr), (comm, win, outUserPtr))
#define FLX_NCCL_FORWARDED_30(X)                                                                                 \
    X(ncclResult_t, ncclParamBind, (ncclParamHandle_t * out, const char *key), (out, key))                       \
    X(ncclResult_t, ncclParamGetI8, (ncclParamHandle_t h, int8_t * out), (h, out))                               \
    X(ncclResult_t, ncclParamGetI16, (ncclParamHandle_t h, int16_t * out), (h, out))                             \
    X(ncclResult_t, ncclParamGetI32, (ncclParamHandle_t h, int32_t * out), (h, out))                             \
    X(ncclResult_t, ncclParamGetI64, (ncclParamHandle_t h, int64_t * out), (h, out))                             \
    X(ncclResult_t, ncclParamGetU8, (ncclParamHandle_t h, uint8_t * out), (h, out))                              \
    X(ncclResult_t, ncclParamGetU16, (ncclParamHandle_t h, uint16_t * out), (h, out))                            \
    X(ncclResult_t, ncclParamGetU32, (ncclParamHandle_t h, uint32_t * out), (h, out))                            \
    X(ncclResult_t, ncclParamGetU64, (ncclParamHandle_t h, uint64_t * out), (h, out))                            \
    X(ncclResult_t, ncclParamGetStr, (ncclParamHandle_t h, const char **out), (h, out))                          \
    X(ncclResult_t, ncclParamGet, (ncclParamHandle_t h, void *out, int maxLen, int *len), (h, out, maxLen, len)) \
    X(ncclResult_t, ncclParamGetParameter, (const char *key, const char **value, int *valueLen),                 \
      (key, value, valueLen))                                                                                    \
    X(ncclResult_t, ncclParamGetAllParameterKeys, (const char ***table, int *tableLen), (table, tableLen))
#define FLX_NCCL_TAKEN_31(X)                                                                                         \
    X(ncclResult_t, ncclAllReduceConfig,                                                                             \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, \
       cudaStream_t stream, const ncclCollConfig_t *config),                                                         \
      (sendbuff, recvbuff, count, datatype, op, comm, stream, config))                                               \
    X(ncclResult_t, ncclBroadcastConfig,                                                                             \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,       \
       cudaStream_t stream, const ncclCollConfig_t *config),                                                         \
      (sendbuff, recvbuff, count, datatype, root, comm, stream, config))                                             \
    X(ncclResult_t, ncclReduceConfig,                                                                                \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root,        \
       ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config),                                        \
      (sendbuff, recvbuff, count, datatype, op, root, comm, stream, config))                                         \
    X(ncclResult_t, ncclAllGatherConfig,                                                                             \
      (const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm,             \
       cudaStream_t stream, const ncclCollConfig_t *config),                                                         \
      (sendbuff, recvbuff, sendcount, datatype, comm, stream, config))                                               \
    X(ncclResult_t, ncclReduceScatterConfig,                                                                         \
      (const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op,              \
       ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config),                                        \
      (sendbuff, recvbuff, recvcount, datatype, op, comm, stream, config))                                           \
    X(ncclResult_t, ncclAlltoAllConfig,                                                                              \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,                 \
       cudaStream_t stream, const ncclCollConfig_t *config),                                                         \
      (sendbuff, recvbuff, count, datatype, comm, stream, config))                                                   \
    X(ncclResult_t, ncclGatherConfig,                                                                                \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,       \
       cudaStream_t stream, const ncclCollConfig_t *config),                                                         \
      (sendbuff, recvbuff, count, datatype, root, comm, stream, config))                                             \
    X(ncclResult_t, ncclScatterConfig,                                                                               \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,       \
       cudaStream_t stream, const ncclCollConfig_t *config),                                                         \
      (sendbuff, recvbuff, count, datatype, root, comm, stream, config))

/// Those that have no result of NCCL's kind to say that there is no NCCL: of all versions, of those to 2.29,
/// since 2.30.
#define FLX_NCCL_OTHER(X) X(const char *, ncclGetErrorString, (ncclResult_t result), (result))
#define FLX_NCCL_OTHER_29(X) X(void, ncclResetDebugInit, (), ())
#define FLX_NCCL_OTHER_30(X) X(void, ncclParamDumpAll, (), ())

#define FLX_NCCL_FORWARDED(X) FLX_NCCL_FORWARDED_28(X) FLX_NCCL_FORWARDED_29(X) FLX_NCCL_FORWARDED_30(X)
#define FLX_NCCL_ALL(X)  \
    FLX_NCCL_TAKEN_28(X) \
    FLX_NCCL_TAKEN_29(X) \
    FLX_NCCL_TAKEN_31(X) FLX_NCCL_FORWARDED(X) FLX_NCCL_OTHER(X) FLX_NCCL_OTHER_29(X) FLX_NCCL_OTHER_30(X)
