/// Stands in for an FLX that has collectives on GPUs, where the library in front of MPI calls them: to be preloaded.
/// What is on a GPU is copied to and from host memory around FLX's own collective. It ends the program where FLX could
/// not have gone on: some buffers on a GPU and others not, or ranks that differ in that, or a collective that FLX has
/// on host memory alone.
#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "runtime/include/flx.h"
#include "tests/runtime/front/mpi/cuda_driver.h"

namespace {

const flx::test::CudaDriver *driver() {
    static flx::test::CudaDriver found;
    static const bool loaded = found.load();
    return loaded ? &found : nullptr;
}

bool on_gpu(const void *address) {
    return driver() != nullptr && driver()->holds(address);
}

[[noreturn]] void end(const char *name, const char *why) {
    std::fprintf(stderr, "flx_on_gpus: %s: %s\n", name, why);
    std::fflush(stderr);
    std::abort();
}

/// Host memory in the place of a GPU's, for one call.
class Mirror {
  public:
    Mirror(const void *memory, size_t bytes) : memory_(const_cast<void *>(memory)) {
        if (bytes == 0 || memory == FLX_IN_PLACE || !on_gpu(memory))
            return;
        host_.resize(bytes);
        driver()->must_copy(host_.data(), memory_, bytes);
    }
    void *data() { return host_.empty() ? memory_ : host_.data(); }
    void write() const {
        if (!host_.empty())
            driver()->must_copy(memory_, host_.data(), host_.size());
    }

  private:
    void *memory_;
    std::vector<char> host_;
};

/// Whether the call is one on GPUs, as all ranks must say. `out` may be null.
bool agreed(const char *name, const void *in, const void *out) {
    const bool has_in = in != nullptr && in != FLX_IN_PLACE;
    const bool gpu = on_gpu(has_in ? in : out);
    if (has_in && out != nullptr && on_gpu(out) != gpu)
        end(name, "one buffer is on a GPU and the other is not");
    int both[2] = {gpu ? 1 : 0, gpu ? 0 : 1};
    PMPI_Allreduce(MPI_IN_PLACE, both, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (both[0] + both[1] != 1)
        end(name, "on GPUs on some ranks only");
    return gpu;
}

struct Report {
    int calls = 0;
    ~Report() {
        if (calls != 0)
            std::fprintf(stderr, "flx_on_gpus: %d calls on GPUs\n", calls);
    }
} report;

template <typename Function>
Function next(const char *name, Function) {
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}
#define NEXT(NAME) next(#NAME, &NAME)

size_t ranks_of(flx_comm_t comm) {
    int size = 0;
    flx_comm_size(comm, &size);
    return static_cast<size_t>(size);
}

size_t bytes_of(size_t count, flx_dtype_t dtype) {
    size_t bytes = 0;
    flx_dtype_size(dtype, &bytes);
    return count * bytes;
}

/// Runs `call` on what is in host memory now.
template <typename Call>
flx_status_t run(const char *name, const void *sendbuf, size_t in, void *recvbuf, size_t out, Call &&call) {
    if (agreed(name, sendbuf, recvbuf))
        ++report.calls;
    Mirror from(sendbuf, in);
    Mirror to(recvbuf, out);
    const flx_status_t status = call(sendbuf == FLX_IN_PLACE ? FLX_IN_PLACE : from.data(), to.data());
    to.write();
    return status;
}

}  // namespace

extern "C" {

FLX_API flx_status_t flx_allreduce_on_stream(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype,
                                             flx_op_t op, flx_comm_t comm, struct CUstream_st *) {
    if (!on_gpu(recvbuf))
        end("allreduce_on_stream", "host memory");
    return flx_allreduce(sendbuf, recvbuf, count, dtype, op, comm);
}

FLX_API flx_status_t flx_allreduce(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                                   flx_comm_t comm) {
    const size_t bytes = bytes_of(count, dtype);
    return run("allreduce", sendbuf, bytes, recvbuf, bytes,
               [&](const void *in, void *out) { return NEXT(flx_allreduce)(in, out, count, dtype, op, comm); });
}

FLX_API flx_status_t flx_reduce_scatter_block(const void *sendbuf, void *recvbuf, size_t recvcount, flx_dtype_t dtype,
                                              flx_op_t op, flx_comm_t comm) {
    const size_t block = bytes_of(recvcount, dtype);
    const size_t all = block * ranks_of(comm);
    return run(
        "reduce_scatter_block", sendbuf, all, recvbuf, sendbuf == FLX_IN_PLACE ? all : block,
        [&](const void *in, void *out) { return NEXT(flx_reduce_scatter_block)(in, out, recvcount, dtype, op, comm); });
}

FLX_API flx_status_t flx_allgather(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype,
                                   flx_comm_t comm) {
    const size_t block = bytes_of(count, dtype);
    return run("allgather", sendbuf, block, recvbuf, block * ranks_of(comm),
               [&](const void *in, void *out) { return NEXT(flx_allgather)(in, out, count, dtype, comm); });
}

FLX_API flx_status_t flx_bcast(void *buf, size_t count, flx_dtype_t dtype, int root, flx_comm_t comm) {
    return run("bcast", FLX_IN_PLACE, 0, buf, bytes_of(count, dtype),
               [&](const void *, void *out) { return NEXT(flx_bcast)(out, count, dtype, root, comm); });
}

FLX_API flx_status_t flx_reduce(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                                int root, flx_comm_t comm) {
    int rank = 0;
    flx_comm_rank(comm, &rank);
    const size_t bytes = bytes_of(count, dtype);
    return run("reduce", sendbuf, bytes, rank == root ? recvbuf : nullptr, rank == root ? bytes : 0,
               [&](const void *in, void *out) { return NEXT(flx_reduce)(in, out, count, dtype, op, root, comm); });
}

FLX_API flx_status_t flx_alltoall(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype,
                                  flx_comm_t comm) {
    const size_t all = bytes_of(count, dtype) * ranks_of(comm);
    return run("alltoall", sendbuf, all, recvbuf, all,
               [&](const void *in, void *out) { return NEXT(flx_alltoall)(in, out, count, dtype, comm); });
}

FLX_API flx_status_t flx_alltoallv(const void *sendbuf, void *recvbuf, const size_t *sendcounts, const size_t *sdispls,
                                   const size_t *recvcounts, const size_t *rdispls, flx_dtype_t dtype,
                                   flx_comm_t comm) {
    // In place there is none on GPUs.
    const bool in_place = sendbuf == FLX_IN_PLACE;
    size_t in = 0;
    size_t out = 0;
    for (size_t rank = 0; rank < ranks_of(comm); ++rank) {
        if (!in_place && sendcounts[rank] != 0)
            in = std::max(in, bytes_of(sdispls[rank] + sendcounts[rank], dtype));
        if (recvcounts[rank] != 0)
            out = std::max(out, bytes_of(rdispls[rank] + recvcounts[rank], dtype));
    }
    if (in_place && on_gpu(recvbuf))
        end("alltoallv", "in place");
    return run("alltoallv", sendbuf, in, recvbuf, out, [&](const void *from, void *to) {
        return NEXT(flx_alltoallv)(from, to, sendcounts, sdispls, recvcounts, rdispls, dtype, comm);
    });
}

#define LIST(...) __VA_ARGS__

/// A function that takes host memory alone, wherever `sendbuf` or `recvbuf` has no elements.
#define ON_HOSTS(NAME, PARAMETERS, ARGUMENTS)                  \
    FLX_API flx_status_t flx_##NAME(PARAMETERS) {              \
        if (on_gpu(sendbuf) || on_gpu(recvbuf))                \
            end(#NAME, "memory of a GPU, at whatever length"); \
        return NEXT(flx_##NAME)(ARGUMENTS);                    \
    }
#define DEFERRED_ON_HOSTS(NAME, PARAMETERS, ARGUMENTS)                                                           \
    ON_HOSTS(i##NAME, LIST(PARAMETERS, flx_comm_t comm, flx_request_t *request), LIST(ARGUMENTS, comm, request)) \
    ON_HOSTS(NAME##_init, LIST(PARAMETERS, flx_comm_t comm, flx_request_t *request), LIST(ARGUMENTS, comm, request))
#define ALL_ON_HOSTS(NAME, PARAMETERS, ARGUMENTS)                            \
    ON_HOSTS(NAME, LIST(PARAMETERS, flx_comm_t comm), LIST(ARGUMENTS, comm)) \
    DEFERRED_ON_HOSTS(NAME, LIST(PARAMETERS), LIST(ARGUMENTS))

#define BUFFERS const void *sendbuf, void *recvbuf

DEFERRED_ON_HOSTS(allreduce, LIST(BUFFERS, size_t count, flx_dtype_t dtype, flx_op_t op),
                  LIST(sendbuf, recvbuf, count, dtype, op))
DEFERRED_ON_HOSTS(reduce, LIST(BUFFERS, size_t count, flx_dtype_t dtype, flx_op_t op, int root),
                  LIST(sendbuf, recvbuf, count, dtype, op, root))
DEFERRED_ON_HOSTS(reduce_scatter_block, LIST(BUFFERS, size_t count, flx_dtype_t dtype, flx_op_t op),
                  LIST(sendbuf, recvbuf, count, dtype, op))
ALL_ON_HOSTS(reduce_scatter, LIST(BUFFERS, const size_t *recvcounts, flx_dtype_t dtype, flx_op_t op),
             LIST(sendbuf, recvbuf, recvcounts, dtype, op))
ALL_ON_HOSTS(scan, LIST(BUFFERS, size_t count, flx_dtype_t dtype, flx_op_t op),
             LIST(sendbuf, recvbuf, count, dtype, op))
ALL_ON_HOSTS(exscan, LIST(BUFFERS, size_t count, flx_dtype_t dtype, flx_op_t op),
             LIST(sendbuf, recvbuf, count, dtype, op))
DEFERRED_ON_HOSTS(allgather, LIST(BUFFERS, size_t count, flx_dtype_t dtype), LIST(sendbuf, recvbuf, count, dtype))
ALL_ON_HOSTS(allgatherv,
             LIST(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *recvcounts, const size_t *displs,
                  flx_dtype_t dtype),
             LIST(sendbuf, sendcount, recvbuf, recvcounts, displs, dtype))
ALL_ON_HOSTS(gather, LIST(BUFFERS, size_t count, flx_dtype_t dtype, int root),
             LIST(sendbuf, recvbuf, count, dtype, root))
ALL_ON_HOSTS(gatherv,
             LIST(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *recvcounts, const size_t *displs,
                  flx_dtype_t dtype, int root),
             LIST(sendbuf, sendcount, recvbuf, recvcounts, displs, dtype, root))
ALL_ON_HOSTS(scatter, LIST(BUFFERS, size_t count, flx_dtype_t dtype, int root),
             LIST(sendbuf, recvbuf, count, dtype, root))
ALL_ON_HOSTS(scatterv,
             LIST(const void *sendbuf, const size_t *sendcounts, const size_t *displs, void *recvbuf, size_t recvcount,
                  flx_dtype_t dtype, int root),
             LIST(sendbuf, sendcounts, displs, recvbuf, recvcount, dtype, root))
DEFERRED_ON_HOSTS(alltoall, LIST(BUFFERS, size_t count, flx_dtype_t dtype), LIST(sendbuf, recvbuf, count, dtype))
DEFERRED_ON_HOSTS(alltoallv,
                  LIST(BUFFERS, const size_t *sendcounts, const size_t *sdispls, const size_t *recvcounts,
                       const size_t *rdispls, flx_dtype_t dtype),
                  LIST(sendbuf, recvbuf, sendcounts, sdispls, recvcounts, rdispls, dtype))

}  // extern "C"
