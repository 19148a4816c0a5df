/// \file flx.h
/// FLX: collectives for programs started with `mpirun`, over every link at once.
///
/// C11 and C++17. Link with `-lflx`; `MPI_Init` comes first, `flx_comm_free` before `MPI_Finalize`. Programs that are
/// started without MPI meet in flx_comm_create_from_store.
///
/// Design notes (conventions that hold for everything here and for everything that comes later)
/// - Names: `flx_<collective>` blocks. Prefix `i` is non-blocking (`flx_iallreduce`) and adds a last argument
///   `flx_request_t *request`; suffix `_init` is persistent (`flx_allreduce_init`, then `flx_start`); suffix
///   `_on_stream` is stream-ordered and adds a last argument `cudaStream_t stream` (declared here without CUDA's
///   headers). `flx_test`, `flx_wait`, `_any` and
///   `_all` complete requests; `flx_group_begin` and `flx_group_end` bracket calls that are issued together.
/// - Argument order: send buffer, receive buffer, count(s), type, reduction, root, communicator, [request | stream].
/// - Counts are `size_t` and count elements, never bytes. In `reduce_scatter_block`, `allgather` and `alltoall` the
///   count is that of one rank's block, as in MPI.
/// - In place: pass `FLX_IN_PLACE` as the send buffer, or the same address where MPI's in-place rule would put the
///   input. Any other overlap of send and receive buffer is an error.
/// - Every function that can fail returns `flx_status_t`; outputs come back through pointers. A failed call leaves a
///   sentence for `flx_last_error()` in the calling thread.
/// - Structs that may grow, at their end, begin with `struct_size`: sizeof of the caller's; fill them with their
///   `..._INIT` macro. Programs and libraries of different versions go together: members that the caller's struct does
///   not have are not written, and count as zero, which means "as before"; those that the library does not know are
///   filled with zeros in what it writes, and must be zero in what it reads, or FLX_ERR_ARGUMENT.
/// - Threads: different communicators may be used from different threads at once; one communicator from one thread at
///   a time. MPI must offer the thread level that this needs, since FLX lets MPI progress while it waits.
/// - Bits: for one communicator, call and set of arguments, the result's bits are the same on all ranks, in every run,
///   whichever links carried which share. `strict` makes them those of adding in rank order, for every size.
/// - Memory: buffers stay the caller's. FLX reads `sendbuf` and writes `recvbuf` only between call and return; in
///   non-blocking and persistent forms, only between the start and the completion.
#ifndef FLX_H
#define FLX_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

/// The version of this header. flx_version() says which version of the library is loaded. This is the first number.
#define FLX_VERSION_MAJOR 0
/// The second number of this header's version.
#define FLX_VERSION_MINOR 4
/// The third number of this header's version.
#define FLX_VERSION_PATCH 0

#if defined(__GNUC__)
#define FLX_API __attribute__((visibility("default")))
#else
#define FLX_API
#endif

/// In C++ too, any int may be passed for an enum: what is not one of its names is an error, not undefined.
#ifdef __cplusplus
#define FLX_INT_ENUM : int
extern "C" {
#else
#define FLX_INT_ENUM
#endif

/// A communicator: a group of ranks, their links and what was measured of them. Opaque.
typedef struct flx_comm *flx_comm_t;

/// What a call came to, grouped by the largest thing that broke.
typedef enum flx_status FLX_INT_ENUM {
    FLX_SUCCESS = 0,
    FLX_ERR_ARGUMENT = 1,     ///< a bad argument of this rank's call; nothing was sent, the communicator is usable
    FLX_ERR_CONFIG = 2,       ///< an unknown `FLX_` variable or a value that is not allowed
    FLX_ERR_UNSUPPORTED = 3,  ///< a valid request that this build or these links cannot serve
    FLX_ERR_MISMATCH = 4,     ///< ranks called with arguments that differ; the communicator is broken
    FLX_ERR_LINK = 5,         ///< no link to a peer works any more; the communicator is broken
    FLX_ERR_PEER = 6,         ///< a peer died or stopped; the communicator is broken
    FLX_ERR_COMM = 7,         ///< the communicator was broken by an earlier error
    FLX_ERR_SYSTEM = 8        ///< the system refused something (memory, segment, socket, MPI)
} flx_status_t;

/// Element types. 8- and 16-bit floats are added in f32. Other ints may be types made by flx_dtype_create.
typedef enum flx_dtype FLX_INT_ENUM {
    FLX_INT8 = 0,
    FLX_UINT8 = 1,
    FLX_INT16 = 2,
    FLX_UINT16 = 3,
    FLX_INT32 = 4,
    FLX_UINT32 = 5,
    FLX_INT64 = 6,
    FLX_UINT64 = 7,
    FLX_F16 = 8,
    FLX_BF16 = 9,
    FLX_F32 = 10,
    FLX_F64 = 11,
    FLX_COMPLEX_F32 = 12,  ///< real part, imaginary part
    FLX_COMPLEX_F64 = 13,
    /// A value and where it is, for FLX_MINLOC and FLX_MAXLOC: C structs of the two, with the compiler's padding, whose
    /// bytes are not compared or kept. The last two are Fortran's pairs of reals.
    FLX_F32_INT32 = 14,
    FLX_F64_INT32 = 15,
    FLX_INT16_INT32 = 16,
    FLX_INT32_INT32 = 17,
    FLX_INT64_INT32 = 18,
    FLX_F32_F32 = 19,
    FLX_F64_F64 = 20,
    /// 8-bit floats of OCP's "8-bit Floating Point Specification" 1.0, as CUDA's `__nv_fp8_e4m3` (no infinities) and
    /// `__nv_fp8_e5m2`. Reduced by sum, avg, min and max only; moved by all collectives. Sums are rounded to nearest
    /// even: once where all inputs are added at once, else once an addition, by at most 1/16 (e4m3) or 1/8 (e5m2) of
    /// the sum or half the smallest number. A sum beyond the largest number (448; 57344), an infinite one too, becomes
    /// that number, as in NCCL and in conversions with `__NV_SATFINITE`. Minima and maxima keep infinities. A NaN that
    /// is computed is 0x7F.
    FLX_F8E4M3 = 21,
    FLX_F8E5M2 = 22
} flx_dtype_t;

/// Reductions. Integer sums and products wrap. `FLX_AVG` is the sum divided by the number of ranks (integers: towards
/// zero). `FLX_MIN` and `FLX_MAX` of floats: a NaN anywhere gives a NaN; -0 is less than +0. What goes with what:
/// sum, prod, avg: all numbers (integers, floats, complex), but no products of 8-bit floats; min, max: integers and
/// floats; logical and bitwise ones: integers (logical: nonzero is true, the result 0 or 1); minloc, maxloc: pairs (of
/// equal values the lowest index). Other ints may be reductions made by flx_op_create, which go with every type that
/// their function knows.
typedef enum flx_op FLX_INT_ENUM {
    FLX_SUM = 0,
    FLX_PROD = 1,
    FLX_MIN = 2,
    FLX_MAX = 3,
    FLX_AVG = 4,
    FLX_LAND = 5,
    FLX_LOR = 6,
    FLX_LXOR = 7,
    FLX_BAND = 8,
    FLX_BOR = 9,
    FLX_BXOR = 10,
    FLX_MINLOC = 11,
    FLX_MAXLOC = 12
} flx_op_t;

/// Pass as `sendbuf`, or as `recvbuf` of scatters, where input and output share memory.
#define FLX_IN_PLACE ((void *)1)

/// What may be set when a communicator is made. A null or zero member keeps the knob's value from the environment or
/// its default; strings are read during the call only.
typedef struct flx_config {
    size_t struct_size;     ///< sizeof(flx_config_t) of the caller
    const char *partition;  ///< as FLX_PARTITION: `shm:.9,eth0:.1` forces shares; null: the controller's
    const char *links;      ///< as FLX_LINKS: `shm,eth0` allows these only; null: all that were found
    const char *algorithm;  ///< as FLX_ALGORITHM: `allreduce:ring@64K-,file:rules.txt`; null: chosen by cost
    double deadline_s;      ///< as FLX_DEADLINE: seconds until a silent peer, or no rail to it, is an error; 0: default
    int check;              ///< as FLX_CHECK: 1 compares the arguments of every blocking call between ranks first
    int strict;             ///< as FLX_STRICT: 1 gives the bits of adding in rank order, for every size
    int late_gpus;          ///< 1: GPUs are opened by the first call on their memory, which must not be in a capture
                            ///< then; 0: with the communicator, if all ranks use one by then
    int reserved;           ///< 0
} flx_config_t;

/// An flx_config_t to begin with: `struct_size` is set, and all knobs have their values from the environment or
/// defaults.
#ifdef __cplusplus
#define FLX_CONFIG_INIT (flx_config_t{sizeof(flx_config_t), nullptr, nullptr, nullptr, 0.0, 0, 0, 0, 0})
#else
#define FLX_CONFIG_INIT ((flx_config_t){sizeof(flx_config_t), NULL, NULL, NULL, 0.0, 0, 0, 0, 0})
#endif

/// \name Communicators
/// All of these are collective over the communicator they start from. On failure no handle is made.
/// \{

/// Makes a communicator with the ranks of `mpi_comm` (an intracommunicator, which FLX duplicates). Finds and probes
/// the links between them. `config` may be null. FLX_ERR_ARGUMENT, FLX_ERR_CONFIG, FLX_ERR_LINK, FLX_ERR_SYSTEM.
FLX_API flx_status_t flx_comm_create(MPI_Comm mpi_comm, const flx_config_t *config, flx_comm_t *comm);

/// Makes a communicator of `size` processes that need no MPI. Rank 0 keeps a *store*: it listens at `address` (a name,
/// or a number of IPv4 or IPv6) and TCP port `port`, the others connect, and there ranks tell each other how they are
/// reached. Null, 0, -1 and 0 stand for what the environment says, as launchers of PyTorch set it: MASTER_ADDR,
/// MASTER_PORT, RANK and WORLD_SIZE. Whoever reaches the port while ranks meet can pass for one (docs/security.md).
///
/// Collective over all `size` processes. It may be called again: the n-th communicator of each rank at an address is
/// one. The store is there as long as rank 0 has a communicator of it, or other ranks have and the process of rank 0
/// runs; to duplicate or split needs it. Any number of threads may call FLX then, as with MPI_THREAD_MULTIPLE:
/// FLX_ERR_UNSUPPORTED where the process has a communicator of an MPI that was initialized with less, and had no other
/// before.
/// `config` may be null; its `deadline_s`, or FLX_DEADLINE, is how long ranks wait for those that do not come:
/// FLX_ERR_PEER, and the sentence names them. FLX_ERR_ARGUMENT also where two processes have the same rank, other than
/// 0, or sizes differ; FLX_ERR_SYSTEM where no store is found, or rank 0 cannot keep one, as where another process has
/// the port, such as a second rank 0; the others as flx_comm_create.
FLX_API flx_status_t flx_comm_create_from_store(const char *address, int port, int rank, int size,
                                                const flx_config_t *config, flx_comm_t *comm);

/// A communicator with the same ranks, links, measurements and configuration, and traffic of its own.
FLX_API flx_status_t flx_comm_dup(flx_comm_t comm, flx_comm_t *dup);

/// Splits as MPI_Comm_split does: ranks of equal `color` (≥ 0) together, ordered by `key`, then by rank. A negative
/// `color` takes part and gets a null handle.
FLX_API flx_status_t flx_comm_split(flx_comm_t comm, int color, int key, flx_comm_t *split);

/// Frees `*comm` and sets it to null. A broken communicator may be freed, also by some ranks only.
FLX_API flx_status_t flx_comm_free(flx_comm_t *comm);

/// Ends `comm` for all its ranks, of which this one cannot go on: wherever they wait on it, and in every later call,
/// they get FLX_ERR_PEER or FLX_ERR_COMM and a sentence with this rank and `reason` (null: none). Local, and returns at
/// once; the others hear of it within a second. The communicator is to be freed then, as any that is broken. Nothing
/// where it is broken already. As with all calls, not while another thread is in one on `comm`, and not from a
/// reduction of the program's own. FLX_ERR_ARGUMENT for that, and if `comm` is null.
FLX_API flx_status_t flx_comm_abort(flx_comm_t comm, const char *reason);

/// Sets `*rank` to this process's rank in `comm`, from 0 to size - 1. Local; broken communicators have ranks, too.
/// FLX_ERR_ARGUMENT if `comm` or `rank` is null.
FLX_API flx_status_t flx_comm_rank(flx_comm_t comm, int *rank);
/// Sets `*size` to the number of ranks of `comm`. Local, as flx_comm_rank. FLX_ERR_ARGUMENT if `comm` or `size` is
/// null.
FLX_API flx_status_t flx_comm_size(flx_comm_t comm, int *size);
/// \}

/// \name Collectives
/// Blocking. All ranks of `comm` call with equal count, type, reduction and root. On return the result is in place and
/// the caller's buffers are the caller's again. Buffers are in host memory on all ranks, or in GPU memory on all ranks
/// (see below); what the program's own streams write into them must be done before the call.
/// \{

/// `recvbuf[i]` on every rank = reduction over ranks of `sendbuf[i]`, i < count.
FLX_API flx_status_t flx_allreduce(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                                   flx_comm_t comm);

/// Rank r gets block r (`recvcount` elements) of the reduction of `sendbuf` (size·recvcount elements).
/// In place: the input is in `recvbuf` (size·recvcount elements), the result in its first `recvcount`.
FLX_API flx_status_t flx_reduce_scatter_block(const void *sendbuf, void *recvbuf, size_t recvcount, flx_dtype_t dtype,
                                              flx_op_t op, flx_comm_t comm);

/// Block r of `recvbuf` (size·count elements) on every rank = `sendbuf` (count elements) of rank r.
/// In place: rank r's input is block r of `recvbuf`.
FLX_API flx_status_t flx_allgather(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype,
                                   flx_comm_t comm);

/// `buf` on every rank = `buf` of `root`.
FLX_API flx_status_t flx_bcast(void *buf, size_t count, flx_dtype_t dtype, int root, flx_comm_t comm);

/// As flx_allreduce, with the result on `root` only; `recvbuf` is not read or written elsewhere and may be null there.
/// In place: at `root` only.
FLX_API flx_status_t flx_reduce(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                                int root, flx_comm_t comm);

/// Block s of `recvbuf` (size·count elements) on rank r = block r of `sendbuf` (size·count elements) of rank s.
/// In place: what is sent lies in `recvbuf`; it is copied first.
FLX_API flx_status_t flx_alltoall(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_comm_t comm);

/// As flx_alltoall, with a count for each pair: rank r sends `sendcounts[s]` elements from `sendbuf + sdispls[s]` to
/// rank s, which receives them, `recvcounts[r]` there, at `recvbuf + rdispls[r]`. All four are arrays of `size`
/// numbers, in elements, read during the call only; counts of both sides must agree. Ranges of `recvbuf` do not
/// overlap each other or what is sent. In place: `recvcounts` and `rdispls` say what is sent, too; `sendcounts` and
/// `sdispls` are not read and may be null.
FLX_API flx_status_t flx_alltoallv(const void *sendbuf, void *recvbuf, const size_t *sendcounts, const size_t *sdispls,
                                   const size_t *recvcounts, const size_t *rdispls, flx_dtype_t dtype, flx_comm_t comm);

/// Returns when every rank has called.
FLX_API flx_status_t flx_barrier(flx_comm_t comm);

/// As flx_reduce_scatter_block with blocks of `recvcounts[r]` elements, one after the other in `sendbuf`. The same
/// `recvcounts` (an array of `size` numbers, read during the call only) on all ranks. In place: the input is in
/// `recvbuf` (all blocks), the result at its beginning.
FLX_API flx_status_t flx_reduce_scatter(const void *sendbuf, void *recvbuf, const size_t *recvcounts, flx_dtype_t dtype,
                                        flx_op_t op, flx_comm_t comm);

/// As flx_allgather with `recvcounts[r]` elements of rank r at `recvbuf + displs[r]`; `sendcount` is this rank's. Both
/// arrays have `size` numbers, in elements, and are read during the call only; `recvcounts` is the same on all ranks,
/// `displs` is each rank's own. In place: rank r's input is its part of `recvbuf`, and `sendcount` is not read.
FLX_API flx_status_t flx_allgatherv(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *recvcounts,
                                    const size_t *displs, flx_dtype_t dtype, flx_comm_t comm);

/// Block r of `recvbuf` (size·count elements) on `root` = `sendbuf` (count elements) of rank r. `recvbuf` is not read
/// or written elsewhere and may be null there. In place, at `root` only: its own block is in `recvbuf`.
FLX_API flx_status_t flx_gather(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, int root,
                                flx_comm_t comm);

/// As flx_gather with `recvcounts[r]` elements of rank r at `recvbuf + displs[r]`, both read at `root` only.
FLX_API flx_status_t flx_gatherv(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *recvcounts,
                                 const size_t *displs, flx_dtype_t dtype, int root, flx_comm_t comm);

/// `recvbuf` (count elements) on rank r = block r of `sendbuf` (size·count elements) of `root`; `sendbuf` may be null
/// elsewhere. In place, at `root` only: FLX_IN_PLACE as `recvbuf`, and its own block stays where it is.
FLX_API flx_status_t flx_scatter(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, int root,
                                 flx_comm_t comm);

/// As flx_scatter with `sendcounts[r]` elements for rank r from `sendbuf + displs[r]`, both read at `root` only.
FLX_API flx_status_t flx_scatterv(const void *sendbuf, const size_t *sendcounts, const size_t *displs, void *recvbuf,
                                  size_t recvcount, flx_dtype_t dtype, int root, flx_comm_t comm);

/// `recvbuf[i]` on rank r = reduction over ranks 0 … r of `sendbuf[i]`, i < count, in rank order. Not FLX_AVG.
FLX_API flx_status_t flx_scan(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                              flx_comm_t comm);

/// As flx_scan over ranks 0 … r - 1. `recvbuf` of rank 0 is not used, and may be any address where that is not in
/// place.
FLX_API flx_status_t flx_exscan(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                                flx_comm_t comm);
/// \}

/// \name Memory that ranks of a host share
/// Collectives on host memory take any buffer. Those of flx_malloc are moved faster between ranks of one host, most so
/// large ones: each rank maps the others' and reads and writes them itself, once. All buffers that other ranks have to
/// read or write in a call should be such, on all ranks; if one is not, the call goes as with other memory. Where a
/// process cannot look into another (`flx_info` says why) it is memory like any other. Local calls, thread-safe, before
/// or after communicators are made.
/// \{

/// Sets `*memory` to at least `bytes` bytes, in whole pages and aligned to them; to null if `bytes` is 0. They are
/// zero, and taken from the system as they are touched, near to the core that does so. A child of fork() shares them
/// with its parent. FLX_ERR_SYSTEM if there is no room.
FLX_API flx_status_t flx_malloc(size_t bytes, void **memory);
/// Gives `memory` back, which flx_malloc set and no call under way uses; null is allowed. FLX_ERR_ARGUMENT if it is
/// not that, or was freed before.
FLX_API flx_status_t flx_free(void *memory);
/// \}

/// \name Types and reductions of one's own
/// Handles are of this process; they stay valid for operations under way when they are freed. Calls name the same
/// thing on all ranks: functions that do the same, sizes that are equal. Functions get host memory, whatever memory the
/// call names.
/// \{

/// inout[i] = in[i] op inout[i], i < count, where `in` comes from lower ranks. Associative. Called from whatever thread
/// carries the operation out, with any alignment that is a multiple of the element's.
typedef void (*flx_reduce_function_t)(const void *in, void *inout, size_t count, flx_dtype_t dtype, void *arg);

/// Makes a reduction of `function`. `commutative` 0: it combines contributions in rank order. Free with flx_op_free.
FLX_API flx_status_t flx_op_create(flx_reduce_function_t function, void *arg, int commutative, flx_op_t *op);
/// The sum of `*factor` times the input, `factor` being this rank's own, of a complex or floating-point `dtype` (no
/// 8-bit one), for which alone the reduction may be used then. In flx_scan and flx_exscan too.
FLX_API flx_status_t flx_op_create_scaled_sum(const void *factor, flx_dtype_t dtype, flx_op_t *op);
/// Frees `*op` and sets it to -1.
FLX_API flx_status_t flx_op_free(flx_op_t *op);

/// Makes a type of elements of `bytes` bytes (1 to 16384) that FLX only moves or hands to functions of flx_op_create.
FLX_API flx_status_t flx_dtype_create(size_t bytes, flx_dtype_t *dtype);
/// Frees `*dtype` and sets it to -1.
FLX_API flx_status_t flx_dtype_free(flx_dtype_t *dtype);
/// Bytes of one element.
FLX_API flx_status_t flx_dtype_size(flx_dtype_t dtype, size_t *bytes);
/// \}

/// \name Non-blocking collectives
/// They do what the blocking forms do, on host and GPU memory, and return at once (of GPU memory that goes by way of
/// host memory, when the input is there). The arguments, shapes, in-place rules and errors are those of the blocking
/// forms.
/// `*request` becomes a handle that flx_test or flx_wait completes; after an error it is FLX_REQUEST_NULL, and nothing
/// is under way. A call in a group of `comm` is FLX_ERR_ARGUMENT, on GPU memory FLX_ERR_UNSUPPORTED.
///
/// Until the request has completed, buffers are FLX's; arrays of counts and displacements are copied and may go when
/// the call returns. All ranks call the collectives of a communicator, blocking and not, in the same order; a blocking
/// one does not match a non-blocking one. Any number may be under way, and they may be waited for in any order. They
/// move in calls of FLX on their communicator, while the program waits or tests on any other, and, with
/// FLX_PROGRESS_THREAD=on, also in between.
/// \{

/// A request: an operation under way, or a persistent one. Opaque. It is the program's until the call that completes
/// it, or flx_request_free, sets it to FLX_REQUEST_NULL. It may outlive its communicator, whose flx_comm_free waits for
/// it.
typedef struct flx_request *flx_request_t;
/// No request. To test it or to wait for it succeeds at once.
#define FLX_REQUEST_NULL ((flx_request_t)0)

/// Begins a barrier: the request completes when every rank has called.
FLX_API flx_status_t flx_ibarrier(flx_comm_t comm, flx_request_t *request);
/// Begins flx_allreduce of `count` elements.
FLX_API flx_status_t flx_iallreduce(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                                    flx_comm_t comm, flx_request_t *request);
/// Begins flx_reduce of `count` elements; `recvbuf` is written on `root` only.
FLX_API flx_status_t flx_ireduce(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                                 int root, flx_comm_t comm, flx_request_t *request);
/// Begins flx_reduce_scatter_block; `recvbuf` gets `recvcount` elements.
FLX_API flx_status_t flx_ireduce_scatter_block(const void *sendbuf, void *recvbuf, size_t recvcount, flx_dtype_t dtype,
                                               flx_op_t op, flx_comm_t comm, flx_request_t *request);
/// Begins flx_reduce_scatter; `recvcounts` has `size` numbers.
FLX_API flx_status_t flx_ireduce_scatter(const void *sendbuf, void *recvbuf, const size_t *recvcounts,
                                         flx_dtype_t dtype, flx_op_t op, flx_comm_t comm, flx_request_t *request);
/// Begins flx_bcast of `count` elements: `buf` is read on `root` and written elsewhere.
FLX_API flx_status_t flx_ibcast(void *buf, size_t count, flx_dtype_t dtype, int root, flx_comm_t comm,
                                flx_request_t *request);
/// Begins flx_allgather of `count` elements of each rank.
FLX_API flx_status_t flx_iallgather(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype,
                                    flx_comm_t comm, flx_request_t *request);
/// Begins flx_allgatherv; `recvcounts` and `displs` have `size` numbers.
FLX_API flx_status_t flx_iallgatherv(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *recvcounts,
                                     const size_t *displs, flx_dtype_t dtype, flx_comm_t comm, flx_request_t *request);
/// Begins flx_gather of `count` elements of each rank; `recvbuf` is written on `root` only.
FLX_API flx_status_t flx_igather(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, int root,
                                 flx_comm_t comm, flx_request_t *request);
/// Begins flx_gatherv; `recvbuf`, `recvcounts` and `displs` are looked at on `root` only.
FLX_API flx_status_t flx_igatherv(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *recvcounts,
                                  const size_t *displs, flx_dtype_t dtype, int root, flx_comm_t comm,
                                  flx_request_t *request);
/// Begins flx_scatter of `count` elements for each rank; `sendbuf` is read on `root` only.
FLX_API flx_status_t flx_iscatter(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, int root,
                                  flx_comm_t comm, flx_request_t *request);
/// Begins flx_scatterv; `sendbuf`, `sendcounts` and `displs` are looked at on `root` only.
FLX_API flx_status_t flx_iscatterv(const void *sendbuf, const size_t *sendcounts, const size_t *displs, void *recvbuf,
                                   size_t recvcount, flx_dtype_t dtype, int root, flx_comm_t comm,
                                   flx_request_t *request);
/// Begins flx_alltoall of `count` elements for each pair of ranks.
FLX_API flx_status_t flx_ialltoall(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_comm_t comm,
                                   flx_request_t *request);
/// Begins flx_alltoallv; its four arrays have `size` numbers.
FLX_API flx_status_t flx_ialltoallv(const void *sendbuf, void *recvbuf, const size_t *sendcounts, const size_t *sdispls,
                                    const size_t *recvcounts, const size_t *rdispls, flx_dtype_t dtype, flx_comm_t comm,
                                    flx_request_t *request);
/// Begins flx_scan of `count` elements.
FLX_API flx_status_t flx_iscan(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                               flx_comm_t comm, flx_request_t *request);
/// Begins flx_exscan of `count` elements; `recvbuf` of rank 0 is as there.
FLX_API flx_status_t flx_iexscan(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                                 flx_comm_t comm, flx_request_t *request);

/// Sets `*done` to 1 if `*request` has completed, else to 0. What has completed is FLX_REQUEST_NULL afterwards; a
/// persistent request stays, inactive. A null or inactive request is done. The status is that of the operation: after
/// an error it has completed. One thread at a time for all requests of a communicator.
FLX_API flx_status_t flx_test(flx_request_t *request, int *done);
/// Returns when `*request` has completed, with what flx_test says of handle and status.
FLX_API flx_status_t flx_wait(flx_request_t *request);
/// Looks for one of `count` requests, of any communicators, that has completed. `*done` is 1 and `*index` its index, or
/// -1 if none is active; else `*done` is 0 and `*index` -1. Handle and status of the one are as in flx_test; the others
/// stay.
FLX_API flx_status_t flx_test_any(size_t count, flx_request_t *requests, ptrdiff_t *index, int *done);
/// Returns when one of `count` requests has completed, with its index in `*index`; at once, with -1, if none is active.
/// Handle and status of the one are as in flx_test; the others stay.
FLX_API flx_status_t flx_wait_any(size_t count, flx_request_t *requests, ptrdiff_t *index);
/// Sets `*done` to 1 if all of `count` requests have completed, else to 0. Handles change as in flx_test when all have
/// completed, and only then. The status is the first error, in the order of the array.
FLX_API flx_status_t flx_test_all(size_t count, flx_request_t *requests, int *done);
/// Returns when all of `count` requests have completed. Handles change as in flx_test; the status is the first error,
/// in the order of the array.
FLX_API flx_status_t flx_wait_all(size_t count, flx_request_t *requests);
/// \}

/// \name Persistent collectives
/// The `_init` forms check arguments and plan once; flx_start begins the operation, flx_test and flx_wait complete it,
/// as often as one likes, with whatever the buffers hold at each start. All ranks start a communicator's persistent
/// requests in the same order as its other collectives. Free with flx_request_free.
///
/// The `_init` calls are local. The arguments, shapes and in-place rules are those of the blocking forms; `*request`
/// becomes an inactive handle, or FLX_REQUEST_NULL after an error. FLX_ERR_ARGUMENT and FLX_ERR_COMM. Arrays of counts
/// and displacements are copied; buffers are kept by address and stay allocated as long as the request is used.
/// \{

/// A request for flx_barrier.
FLX_API flx_status_t flx_barrier_init(flx_comm_t comm, flx_request_t *request);
/// A request for flx_allreduce of `count` elements.
FLX_API flx_status_t flx_allreduce_init(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype,
                                        flx_op_t op, flx_comm_t comm, flx_request_t *request);
/// A request for flx_reduce of `count` elements to `root`.
FLX_API flx_status_t flx_reduce_init(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                                     int root, flx_comm_t comm, flx_request_t *request);
/// A request for flx_reduce_scatter_block; `recvbuf` gets `recvcount` elements at each start.
FLX_API flx_status_t flx_reduce_scatter_block_init(const void *sendbuf, void *recvbuf, size_t recvcount,
                                                   flx_dtype_t dtype, flx_op_t op, flx_comm_t comm,
                                                   flx_request_t *request);
/// A request for flx_reduce_scatter; `recvcounts` has `size` numbers.
FLX_API flx_status_t flx_reduce_scatter_init(const void *sendbuf, void *recvbuf, const size_t *recvcounts,
                                             flx_dtype_t dtype, flx_op_t op, flx_comm_t comm, flx_request_t *request);
/// A request for flx_bcast of `count` elements from `root`.
FLX_API flx_status_t flx_bcast_init(void *buf, size_t count, flx_dtype_t dtype, int root, flx_comm_t comm,
                                    flx_request_t *request);
/// A request for flx_allgather of `count` elements of each rank.
FLX_API flx_status_t flx_allgather_init(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype,
                                        flx_comm_t comm, flx_request_t *request);
/// A request for flx_allgatherv; `recvcounts` and `displs` have `size` numbers.
FLX_API flx_status_t flx_allgatherv_init(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *recvcounts,
                                         const size_t *displs, flx_dtype_t dtype, flx_comm_t comm,
                                         flx_request_t *request);
/// A request for flx_gather of `count` elements of each rank to `root`.
FLX_API flx_status_t flx_gather_init(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, int root,
                                     flx_comm_t comm, flx_request_t *request);
/// A request for flx_gatherv to `root`, where alone `recvbuf`, `recvcounts` and `displs` are looked at.
FLX_API flx_status_t flx_gatherv_init(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *recvcounts,
                                      const size_t *displs, flx_dtype_t dtype, int root, flx_comm_t comm,
                                      flx_request_t *request);
/// A request for flx_scatter of `count` elements for each rank from `root`.
FLX_API flx_status_t flx_scatter_init(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, int root,
                                      flx_comm_t comm, flx_request_t *request);
/// A request for flx_scatterv from `root`, where alone `sendbuf`, `sendcounts` and `displs` are looked at.
FLX_API flx_status_t flx_scatterv_init(const void *sendbuf, const size_t *sendcounts, const size_t *displs,
                                       void *recvbuf, size_t recvcount, flx_dtype_t dtype, int root, flx_comm_t comm,
                                       flx_request_t *request);
/// A request for flx_alltoall of `count` elements for each pair of ranks.
FLX_API flx_status_t flx_alltoall_init(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype,
                                       flx_comm_t comm, flx_request_t *request);
/// A request for flx_alltoallv; its four arrays have `size` numbers.
FLX_API flx_status_t flx_alltoallv_init(const void *sendbuf, void *recvbuf, const size_t *sendcounts,
                                        const size_t *sdispls, const size_t *recvcounts, const size_t *rdispls,
                                        flx_dtype_t dtype, flx_comm_t comm, flx_request_t *request);
/// A request for flx_scan of `count` elements.
FLX_API flx_status_t flx_scan_init(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                                   flx_comm_t comm, flx_request_t *request);
/// A request for flx_exscan of `count` elements.
FLX_API flx_status_t flx_exscan_init(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                                     flx_comm_t comm, flx_request_t *request);

/// Begins a persistent request that is not active. FLX_ERR_ARGUMENT if it is null, active or not persistent, or its
/// communicator was freed. After an error it is not active.
FLX_API flx_status_t flx_start(flx_request_t *request);
/// Begins `count` persistent requests in the order of the array. Returns the first error: requests before that one are
/// active then, and those after it were not started.
FLX_API flx_status_t flx_start_all(size_t count, flx_request_t *requests);
/// Frees a request and sets it to null. What is under way goes on with its communicator's later calls; that it has
/// ended, so that buffers are the caller's again, is certain when the communicator was freed, which waits for it.
FLX_API flx_status_t flx_request_free(flx_request_t *request);
/// \}

/// \name Between two ranks
/// Blocking. The n-th flx_send to a rank meets that rank's n-th flx_recv from the sender, on each communicator; both
/// name the same number of bytes, or the receiver gets FLX_ERR_MISMATCH; where one of them names none, which needs no
/// message, that is not noticed and the other may wait for ever. No other rank has to call. A send returns when
/// its buffer may be used again, which may be before the receiver calls; do not rely on it: two ranks that send to each
/// other and then receive may wait for ever. In a group, or by flx_sendrecv, they do not.
/// \{

/// Sends `count` elements of `sendbuf` to rank `dest`. In a group it returns at once. FLX_ERR_ARGUMENT if `dest` is
/// this rank and no group is open.
FLX_API flx_status_t flx_send(const void *sendbuf, size_t count, flx_dtype_t dtype, int dest, flx_comm_t comm);
/// Receives `count` elements from rank `source` into `recvbuf`. In a group it returns at once. FLX_ERR_ARGUMENT if
/// `source` is this rank and no group is open.
FLX_API flx_status_t flx_recv(void *recvbuf, size_t count, flx_dtype_t dtype, int source, flx_comm_t comm);

/// A send to `dest` and a receive from `source` at once; either may be this rank. The buffers do not overlap.
FLX_API flx_status_t flx_sendrecv(const void *sendbuf, void *recvbuf, size_t sendcount, size_t recvcount,
                                  flx_dtype_t dtype, int dest, int source, flx_comm_t comm);

/// Opens a group: calls of flx_send, flx_recv, flx_sendrecv, flx_alltoall(v) and flx_allreduce on `comm` between this
/// one and flx_group_end return at once, start together, and have all ended when flx_group_end returns; until then
/// their buffers are FLX's. Messages between two ranks are matched in the order of the calls; they need not be in a
/// group on both sides; those to oneself must match. Collectives are in a group on all ranks or on none, the same ones
/// in the same order. Small allreduces of one type and reduction in a row are carried out as one, with the bits of one
/// allreduce of all their elements. A call that fails is not part of the group. Groups do not nest and have nothing
/// else in them; of GPU memory only messages and flx_alltoallv. FLX_ERR_ARGUMENT if a group is open.
FLX_API flx_status_t flx_group_begin(flx_comm_t comm);
/// Closes the group and carries it out: returns when all of it has ended, and what `_on_stream` calls added is on its
/// stream. The status is the first error; what had not begun by then is not carried out, and the group is closed.
/// Errors of the operations, and FLX_ERR_ARGUMENT if no group is open or messages to this rank itself do not match
/// (FLX_ERR_MISMATCH where their sizes differ on its GPU).
FLX_API flx_status_t flx_group_end(flx_comm_t comm);
/// \}

/// \name Collectives on GPU memory
/// All collectives above take GPU memory, of all buffers of a call or, of those that go by way of host memory, of some.
/// GPUs carry out flx_allreduce, flx_reduce_scatter_block, flx_allgather, flx_bcast, flx_reduce, flx_alltoall, and
/// flx_alltoallv that blocks and is not in place (on all ranks or none; who has nothing to send or receive passes GPU
/// memory, too): what they add is FLX_INT8 to FLX_F64 or 8-bit floats, by FLX_SUM to FLX_AVG. All else goes by way of
/// host memory: FLX copies what the call reads to memory of its own, carries it out there, and copies what it wrote
/// back before it returns or completes. flx_comm_device_algorithm and `[gpus]` in flx_info say so.
///
/// Non-blocking ones that GPUs carry out are on a stream of FLX's own, in the order of the calls. What the program's
/// own streams have of the communicator must be done before. Messages on GPU memory and `_on_stream` calls are
/// FLX_ERR_UNSUPPORTED until such requests have completed; of those that the program has freed they wait for the end.
/// The first one may open the GPUs, which waits for all ranks, and must find none of another communicator under way.
///
/// Where FLX was built with CUDA, else FLX_ERR_UNSUPPORTED: among 2 to 8 ranks of one host (of more all goes by way of
/// host memory), or any number on several hosts (see below). A rank's GPU is the calling thread's current device when
/// the communicator is made, if a context is active on all ranks by then; otherwise when the first collective on GPU
/// memory is called, which must not be during a capture, since it allocates.
///
/// The `_on_stream` forms return when the operation is on the stream. They may be captured into CUDA graphs, and graphs
/// replayed, mixed with other calls, in the same order on all ranks. Operations of one communicator on different
/// streams must be ordered by the program. Both buffers are GPU memory; arguments are those of the blocking forms.
/// `stream` stays the program's; null is CUDA's default stream. Contributions are added in rank order, 16-bit floats in
/// f32 with one rounding: the bits do not depend on size, registration or run. A rank that dies leaves no kernel
/// waiting: the next call on the communicator says who it was.
///
/// Messages and collectives that only move data take any type. On a stream, other sums than those named above are
/// FLX_ERR_UNSUPPORTED; so are collectives on GPU memory in a group.
///
/// Between hosts all goes through pinned host memory and the links of host memory (FLX_CUDA_PINNED), carried out by a
/// thread: the same calls return as soon, in the same order with what else is on their streams, and bits are those of
/// host memory, of the pieces that FLX_CUDA_PINNED and sizes alone decide. They cannot be captured:
/// FLX_ERR_UNSUPPORTED, which harms neither the capture nor the communicator. What is sent may be written again when
/// the stream is past the call, which need not mean that it was received.
/// \{

struct CUstream_st;

/// Puts flx_allreduce of `count` elements on `stream`.
FLX_API flx_status_t flx_allreduce_on_stream(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype,
                                             flx_op_t op, flx_comm_t comm, struct CUstream_st *stream);
/// Puts flx_reduce_scatter_block on `stream`; `recvbuf` gets `recvcount` elements.
FLX_API flx_status_t flx_reduce_scatter_block_on_stream(const void *sendbuf, void *recvbuf, size_t recvcount,
                                                        flx_dtype_t dtype, flx_op_t op, flx_comm_t comm,
                                                        struct CUstream_st *stream);
/// Puts flx_allgather of `count` elements of each rank on `stream`.
FLX_API flx_status_t flx_allgather_on_stream(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype,
                                             flx_comm_t comm, struct CUstream_st *stream);
/// Puts flx_bcast of `count` elements from `root` on `stream`.
FLX_API flx_status_t flx_bcast_on_stream(void *buf, size_t count, flx_dtype_t dtype, int root, flx_comm_t comm,
                                         struct CUstream_st *stream);
/// Puts flx_reduce of `count` elements to `root` on `stream`; `recvbuf` is not written elsewhere and may be null there.
FLX_API flx_status_t flx_reduce_on_stream(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype,
                                          flx_op_t op, int root, flx_comm_t comm, struct CUstream_st *stream);
/// Block s of `recvbuf` (size·count elements) on rank r = block r of `sendbuf` (size·count elements) of rank s. In
/// place: what is sent lies in `recvbuf`.
FLX_API flx_status_t flx_alltoall_on_stream(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype,
                                            flx_comm_t comm, struct CUstream_st *stream);

/// Puts flx_alltoallv on `stream`. The four arrays are in host memory and read during the call only. Not in place:
/// FLX_ERR_UNSUPPORTED.
FLX_API flx_status_t flx_alltoallv_on_stream(const void *sendbuf, void *recvbuf, const size_t *sendcounts,
                                             const size_t *sdispls, const size_t *recvcounts, const size_t *rdispls,
                                             flx_dtype_t dtype, flx_comm_t comm, struct CUstream_st *stream);
/// Sends `count` elements to the GPU of rank `dest`, or adds that to the open group. Messages between two GPUs: the
/// n-th to a rank on GPUs meets that rank's n-th from the sender on GPUs, whatever the messages of host memory do. The
/// sizes of both ends are equal; where not, the receiver gives the communicator up with FLX_ERR_MISMATCH. Not before
/// GPUs are open, as above. In a group of flx_group_begin all are under way at once, on one stream, up to 1024 (between
/// hosts: any). Of flx_alltoallv without `_on_stream` every rank passes GPU memory, or none.
FLX_API flx_status_t flx_send_on_stream(const void *sendbuf, size_t count, flx_dtype_t dtype, int dest, flx_comm_t comm,
                                        struct CUstream_st *stream);
/// Receives `count` elements from the GPU of rank `source`, with what flx_send_on_stream says of messages.
FLX_API flx_status_t flx_recv_on_stream(void *recvbuf, size_t count, flx_dtype_t dtype, int source, flx_comm_t comm,
                                        struct CUstream_st *stream);
/// A send to `dest` and a receive from `source` at once, with what flx_send_on_stream says of messages; either may be
/// this rank. The buffers do not overlap.
FLX_API flx_status_t flx_sendrecv_on_stream(const void *sendbuf, void *recvbuf, size_t sendcount, size_t recvcount,
                                            flx_dtype_t dtype, int dest, int source, flx_comm_t comm,
                                            struct CUstream_st *stream);

/// Lets peers write straight into `bytes` from `memory` (of cudaMalloc, or a part of that), so that results need no
/// copy. Collective, with equal `bytes` and equal alignment to 16 bytes on all ranks. From then on, where one rank's
/// receive buffer of a collective lies in registered memory, so do all ranks' in that call, at equal offsets of the
/// same registration; of messages, flx_alltoallv among them, each rank's lies where it likes. Some of them may be in
/// place: a large alltoall or reduce_scatter_block then copies its input to memory of the GPU. No operation of the
/// communicator may be under way; not during a capture.
FLX_API flx_status_t flx_register(flx_comm_t comm, void *memory, size_t bytes);
/// Ends what flx_register began. Collective; before the memory is freed. Graphs that captured calls on it are replayed
/// no more. Where calls on the communicator fail, flx_comm_free does as well, and the memory is neither used nor freed
/// before.
FLX_API flx_status_t flx_deregister(flx_comm_t comm, void *memory);
/// \}

/// \name What happened
/// \{

/// The version in use, as MAJOR·10000 + MINOR·100 + PATCH.
FLX_API int flx_version(void);

/// A status's name and meaning in a few words. Never null; static storage.
FLX_API const char *flx_strerror(flx_status_t status);

/// The sentence of this thread's last failed call, with a code at its end; empty: none. Valid until its next call.
FLX_API const char *flx_last_error(void);

/// One link of a communicator, as this rank sees it.
typedef struct flx_link_stats {
    char name[32];          ///< `shm`, the network device, or between GPUs `nvlink`, `pcie`
    int enabled;            ///< 1 if the controller may use it
    char why[160];          ///< where enabled is 0: why
    uint64_t bytes_sent;    ///< payload bytes that this rank's collectives on this communicator put on the link
    uint64_t chunks_sent;   ///< and in how many chunks
    double latency_us;      ///< measured, one way; 0 where not measured
    double bandwidth_GBps;  ///< measured last, 10^9 bytes a second; 0 where not measured
    double share;           ///< its part of the partition vector that the last operation used
} flx_link_stats_t;

/// Fills up to `capacity` entries of `stats` and sets `*count` to the number of links (may exceed `capacity`).
/// `entry_size` is sizeof(flx_link_stats_t) of the caller, as `struct_size` elsewhere. Not collective.
FLX_API flx_status_t flx_comm_link_stats(flx_comm_t comm, flx_link_stats_t *stats, size_t entry_size, size_t capacity,
                                         size_t *count);

/// The algorithm that a call with these arguments takes, e.g. "ring"; static storage. `bytes` counts as nccl-tests do:
/// the larger of the input and the output of one rank. Not collective.
FLX_API flx_status_t flx_comm_algorithm(flx_comm_t comm, const char *collective, size_t bytes, flx_dtype_t dtype,
                                        flx_op_t op, const char **name);

/// Calls `each` for every algorithm that a blocking call of `bytes` (of the whole vector) may take, by the name that
/// FLX_ALGORITHM has for it, with the time that it is expected to take: those of least time first, and 0 where time is
/// not predicted. `name` is static storage. Equal on all ranks; not collective. FLX_ERR_ARGUMENT.
FLX_API flx_status_t flx_comm_algorithms(flx_comm_t comm, const char *collective, size_t bytes,
                                         void (*each)(const char *name, double predicted_us, void *arg), void *arg);

/// The same as flx_comm_algorithm for GPU memory; `recvbuf` says whether the output is registered (it is not read).
/// `host memory`: GPUs do not have the collective, and it goes by way of that.
FLX_API flx_status_t flx_comm_device_algorithm(flx_comm_t comm, const char *collective, size_t bytes,
                                               const void *recvbuf, const char **name);

/// Counters of the steady state, for tests: what this process has done so far on collective paths. When operations
/// repeat, only `operations` grows; `locks` too where several threads may call, FLX_PROGRESS_THREAD is on, or copy
/// engines take part of large copies. What UCX and GPUs do for themselves is not in it.
typedef struct flx_counters {
    size_t struct_size;      ///< sizeof(flx_counters_t) of the caller, set before the call
    uint64_t operations;     ///< begun: collectives, messages, and what a group carries together
    uint64_t allocations;    ///< growth of buffers, tables and pools
    uint64_t registrations;  ///< memory registered with a network device, or of other ranks mapped
    uint64_t locks;          ///< mutexes taken
} flx_counters_t;
/// Fills `*counters`, up to the `struct_size` that the caller has set. Local; from any thread. FLX_ERR_ARGUMENT if
/// `counters` is null or `struct_size` is not set.
FLX_API flx_status_t flx_counters(flx_counters_t *counters);

/// Calls `line(text, arg)` for each line of the report that `flx_info` prints: machine, links (with reasons for those
/// that are off), measurements, what was decided from calls, and knobs. `comm` may be null: then what needs no peers,
/// with the environment's knobs. Not collective. FLX_ERR_CONFIG (a knob is wrong), FLX_ERR_SYSTEM: after the lines of
/// what there is, which say so.
FLX_API flx_status_t flx_report(flx_comm_t comm, void (*line)(const char *text, void *arg), void *arg);
/// \}

#ifdef __cplusplus
}
#endif
#endif
