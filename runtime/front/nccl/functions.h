/// \file functions.h
/// The functions of nccl.h, 2.19 to 2.28. What nccl_device.h adds for kernels of one's own (ncclDevCommCreate and the
/// like) makes no communicator and moves nothing, and is not exported: programs find NCCL's. Nor are the names that
/// begin with pnccl, by which profilers go past whatever stands in front of NCCL.
#pragma once

#include "runtime/front/nccl/abi.h"

/// X(result, name, parameters, arguments): those that FLX takes part in.
#define FLX_NCCL_TAKEN(X)                                                                                             \
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

/// Those that only lead to NCCL.
#define FLX_NCCL_FORWARDED(X)                                                                                      \
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

/// Those that have no result of NCCL's kind to say that there is no NCCL.
#define FLX_NCCL_OTHER(X)                                                \
    X(const char *, ncclGetErrorString, (ncclResult_t result), (result)) \
    X(void, ncclResetDebugInit, (), ())

#define FLX_NCCL_ALL(X) FLX_NCCL_TAKEN(X) FLX_NCCL_FORWARDED(X) FLX_NCCL_OTHER(X)
