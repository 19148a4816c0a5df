/// Stands in for an MPI whose collectives take GPU memory: to be preloaded in front of one whose collectives do not.
/// What is on a GPU is copied whole before and after, in the roughest way; calls that do not block have ended when they
/// return. It says of itself what Open MPI says (MPIX_Query_cuda_support), in PMPI_ functions, too, which libraries in
/// front of MPI call. MPI_ON_GPUS_REPORT=1: at the end each process says how many calls had GPU memory.
#include <dlfcn.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/runtime/front/mpi/cuda_driver.h"

#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#ifdef OMPI_HAVE_MPI_EXT_PCOLLREQ
#include "mpiext/pmpiext_pcollreq_c.h"
#define PERSISTENT_NAME(P, NAME) P##MPIX_##NAME##_init
#elif defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5
#define PERSISTENT_NAME(P, NAME) P##MPI_##NAME##_init
#endif

namespace {

const flx::test::CudaDriver *driver() {
    static flx::test::CudaDriver found;
    static const bool loaded = found.load();
    return loaded ? &found : nullptr;
}

struct Report {
    int calls = 0;
    ~Report() {
        if (std::getenv("MPI_ON_GPUS_REPORT") != nullptr && calls != 0)
            std::fprintf(stderr, "mpi_on_gpus: %d calls with GPU memory\n", calls);
    }
} report;

/// Buffers of one call.
class Stage {
  public:
    enum Use { kRead, kWritten };
    void add(const void *&buffer, long count, MPI_Datatype type, Use use) {
        MPI_Aint lower = 0;
        MPI_Aint extent = 0;
        MPI_Aint true_lower = 0;
        MPI_Aint true_extent = 0;
        if (buffer == MPI_IN_PLACE || count <= 0)
            return;
        PMPI_Type_get_extent(type, &lower, &extent);
        PMPI_Type_get_true_extent(type, &true_lower, &true_extent);
        char *low = static_cast<char *>(const_cast<void *>(buffer)) + true_lower;
        add(buffer, low, low + (count - 1) * extent + true_extent, use);
    }
    void add(const void *&buffer, const int *counts, const int *displs, const MPI_Datatype *types, bool one_type,
             MPI_Comm comm, Use use) {
        int size = 0;
        PMPI_Comm_size(comm, &size);
        char *low = nullptr;
        char *high = nullptr;
        for (int rank = 0; buffer != MPI_IN_PLACE && rank < size; ++rank) {
            MPI_Aint lower = 0;
            MPI_Aint extent = 0;
            MPI_Aint true_lower = 0;
            MPI_Aint true_extent = 0;
            const MPI_Datatype type = types[one_type ? 0 : rank];
            if (counts[rank] == 0)
                continue;
            PMPI_Type_get_extent(type, &lower, &extent);
            PMPI_Type_get_true_extent(type, &true_lower, &true_extent);
            char *begin = static_cast<char *>(const_cast<void *>(buffer)) + displs[rank] * (one_type ? extent : 1);
            char *end = begin + true_lower + (counts[rank] - 1) * extent + true_extent;
            low = low == nullptr || begin + true_lower < low ? begin + true_lower : low;
            high = end > high ? end : high;
        }
        if (low != nullptr)
            add(buffer, low, high, use);
    }
    [[nodiscard]] bool empty() const { return spans_.empty(); }
    void read() {
        for (Span &span : spans_)
            driver()->must_copy(span.host.data(), span.low, span.host.size());
        ++report.calls;
    }
    void write() {
        for (Span &span : spans_)
            if (span.use == kWritten)
                driver()->must_copy(span.low, span.host.data(), span.host.size());
    }

  private:
    struct Span {
        char *low;
        std::vector<char> host;
        Use use;
    };
    void add(const void *&buffer, char *low, char *high, Use use) {
        if (driver() == nullptr || !driver()->holds(low))
            return;
        spans_.push_back({low, std::vector<char>(static_cast<size_t>(high - low)), use});
        buffer = spans_.back().host.data() + (static_cast<const char *>(buffer) - low);
    }
    std::vector<Span> spans_;
};

template <typename Function>
Function next(const char *name, Function) {
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}
#define NEXT_NAMED(NAME) next(#NAME, &NAME)
#define NEXT(NAME) NEXT_NAMED(NAME)

/// One that MPI has made for what is staged; the program has another one, of nothing, that is started with it.
struct Persistent {
    MPI_Request inner;
    std::shared_ptr<Stage> stage;
};
std::mutex mutex;
std::map<MPI_Request, Persistent> all;

int begin_persistent(MPI_Request *request) {
    Persistent found{};
    {
        const std::lock_guard guard(mutex);
        if (const auto known = all.find(*request); known != all.end())
            found = known->second;
    }
    if (found.stage != nullptr) {
        found.stage->read();
        NEXT(PMPI_Start)(&found.inner);
        PMPI_Wait(&found.inner, MPI_STATUS_IGNORE);
        found.stage->write();
    }
    return NEXT(PMPI_Start)(request);
}

int begin_all(int count, MPI_Request *requests) {
    int code = MPI_SUCCESS;
    for (int i = 0; i < count && code == MPI_SUCCESS; ++i)
        code = begin_persistent(&requests[i]);
    return code;
}

int free_request(MPI_Request *request) {
    const std::lock_guard guard(mutex);
    if (const auto known = all.find(*request); known != all.end()) {
        NEXT(PMPI_Request_free)(&known->second.inner);
        all.erase(known);
    }
    return NEXT(PMPI_Request_free)(request);
}

/// What ends at once.
int ended(MPI_Request *request) {
    return NEXT(PMPI_Ibarrier)(MPI_COMM_SELF, request);
}

/// Where MPI has persistent collectives.
[[maybe_unused]] int keep(MPI_Request inner, std::shared_ptr<Stage> stage, MPI_Request *request) {
    PMPI_Recv_init(nullptr, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_SELF, request);
    const std::lock_guard guard(mutex);
    all[*request] = {inner, std::move(stage)};
    return MPI_SUCCESS;
}

int rank_in(MPI_Comm comm) {
    int rank = 0;
    PMPI_Comm_rank(comm, &rank);
    return rank;
}

int size_of(MPI_Comm comm) {
    int size = 0;
    PMPI_Comm_size(comm, &size);
    return size;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int MPIX_Query_cuda_support(void) {
    return 1;
}
EXPORTED int PMPI_Start(MPI_Request *request) {
    return begin_persistent(request);
}
EXPORTED int MPI_Start(MPI_Request *request) {
    return begin_persistent(request);
}
EXPORTED int PMPI_Startall(int count, MPI_Request *requests) {
    return begin_all(count, requests);
}
EXPORTED int MPI_Startall(int count, MPI_Request *requests) {
    return begin_all(count, requests);
}
EXPORTED int PMPI_Request_free(MPI_Request *request) {
    return free_request(request);
}
EXPORTED int MPI_Request_free(MPI_Request *request) {
    return free_request(request);
}

#define LIST(...) __VA_ARGS__

#ifdef PERSISTENT_NAME
#define PERSISTENT(NAME, PARAMETERS, ARGUMENTS, ADDED)                                                      \
    static int persistent_##NAME(PARAMETERS MPI_Comm comm, MPI_Info info, MPI_Request *request) {           \
        auto stage = std::make_shared<Stage>();                                                             \
        ADDED;                                                                                              \
        MPI_Request inner = MPI_REQUEST_NULL;                                                               \
        const auto real = NEXT(PERSISTENT_NAME(P, NAME));                                                   \
        if (stage->empty())                                                                                 \
            return real(ARGUMENTS comm, info, request);                                                     \
        const int code = real(ARGUMENTS comm, info, &inner);                                                \
        return code == MPI_SUCCESS ? keep(inner, stage, request) : code;                                    \
    }                                                                                                       \
    EXPORTED int PERSISTENT_NAME(P, NAME)(PARAMETERS MPI_Comm comm, MPI_Info info, MPI_Request * request) { \
        return persistent_##NAME(ARGUMENTS comm, info, request);                                            \
    }                                                                                                       \
    EXPORTED int PERSISTENT_NAME(, NAME)(PARAMETERS MPI_Comm comm, MPI_Info info, MPI_Request * request) {  \
        return persistent_##NAME(ARGUMENTS comm, info, request);                                            \
    }
#else
#define PERSISTENT(NAME, PARAMETERS, ARGUMENTS, ADDED)
#endif

/// All forms of a collective. Buffers are `sent` and `got`; `ADDED` adds them to `stage`.
#define COLLECTIVE(NAME, SMALL, PARAMETERS, ARGUMENTS, ADDED)                       \
    static int blocking_##NAME(PARAMETERS MPI_Comm comm) {                          \
        auto stage = std::make_shared<Stage>();                                     \
        ADDED;                                                                      \
        if (stage->empty())                                                         \
            return NEXT(PMPI_##NAME)(ARGUMENTS comm);                               \
        stage->read();                                                              \
        const int code = NEXT(PMPI_##NAME)(ARGUMENTS comm);                         \
        stage->write();                                                             \
        return code;                                                                \
    }                                                                               \
    static int nonblocking_##NAME(PARAMETERS MPI_Comm comm, MPI_Request *request) { \
        auto stage = std::make_shared<Stage>();                                     \
        ADDED;                                                                      \
        MPI_Request inner = MPI_REQUEST_NULL;                                       \
        if (stage->empty())                                                         \
            return NEXT(PMPI_I##SMALL)(ARGUMENTS comm, request);                    \
        stage->read();                                                              \
        const int code = NEXT(PMPI_I##SMALL)(ARGUMENTS comm, &inner);               \
        PMPI_Wait(&inner, MPI_STATUS_IGNORE);                                       \
        stage->write();                                                             \
        return code == MPI_SUCCESS ? ended(request) : code;                         \
    }                                                                               \
    EXPORTED int PMPI_##NAME(PARAMETERS MPI_Comm comm) {                            \
        return blocking_##NAME(ARGUMENTS comm);                                     \
    }                                                                               \
    EXPORTED int MPI_##NAME(PARAMETERS MPI_Comm comm) {                             \
        return blocking_##NAME(ARGUMENTS comm);                                     \
    }                                                                               \
    EXPORTED int PMPI_I##SMALL(PARAMETERS MPI_Comm comm, MPI_Request *request) {    \
        return nonblocking_##NAME(ARGUMENTS comm, request);                         \
    }                                                                               \
    EXPORTED int MPI_I##SMALL(PARAMETERS MPI_Comm comm, MPI_Request *request) {     \
        return nonblocking_##NAME(ARGUMENTS comm, request);                         \
    }                                                                               \
    PERSISTENT(NAME, LIST(PARAMETERS), LIST(ARGUMENTS), LIST(ADDED))

/// A buffer that is received into, as add() takes it.
#define RECEIVED(...)                               \
    const void *got_ = got;                         \
    stage->add(got_, __VA_ARGS__, Stage::kWritten); \
    got = const_cast<void *>(got_)

COLLECTIVE(Allgather, allgather,
           LIST(const void *sent, int count, MPI_Datatype type, void *got, int gotcount, MPI_Datatype gottype, ),
           LIST(sent, count, type, got, gotcount, gottype, ),
           LIST(stage->add(sent, count, type, Stage::kRead); RECEIVED(long{gotcount} * size_of(comm), gottype)))
COLLECTIVE(Allgatherv, allgatherv,
           LIST(const void *sent, int count, MPI_Datatype type, void *got, const int *gotcounts, const int *displs,
                MPI_Datatype gottype, ),
           LIST(sent, count, type, got, gotcounts, displs, gottype, ),
           LIST(stage->add(sent, count, type, Stage::kRead); RECEIVED(gotcounts, displs, &gottype, true, comm)))
COLLECTIVE(Allreduce, allreduce, LIST(const void *sent, void *got, int count, MPI_Datatype type, MPI_Op op, ),
           LIST(sent, got, count, type, op, ), LIST(stage->add(sent, count, type, Stage::kRead); RECEIVED(count, type)))
COLLECTIVE(Alltoall, alltoall,
           LIST(const void *sent, int count, MPI_Datatype type, void *got, int gotcount, MPI_Datatype gottype, ),
           LIST(sent, count, type, got, gotcount, gottype, ),
           LIST(stage->add(sent, long{count} * size_of(comm), type, Stage::kRead);
                RECEIVED(long{gotcount} * size_of(comm), gottype)))
COLLECTIVE(Alltoallv, alltoallv,
           LIST(const void *sent, const int *counts, const int *displs, MPI_Datatype type, void *got,
                const int *gotcounts, const int *gotdispls, MPI_Datatype gottype, ),
           LIST(sent, counts, displs, type, got, gotcounts, gotdispls, gottype, ),
           LIST(stage->add(sent, counts, displs, &type, true, comm, Stage::kRead);
                RECEIVED(gotcounts, gotdispls, &gottype, true, comm)))
COLLECTIVE(Alltoallw, alltoallw,
           LIST(const void *sent, const int *counts, const int *displs, const MPI_Datatype *types, void *got,
                const int *gotcounts, const int *gotdispls, const MPI_Datatype *gottypes, ),
           LIST(sent, counts, displs, types, got, gotcounts, gotdispls, gottypes, ),
           LIST(stage->add(sent, counts, displs, types, false, comm, Stage::kRead);
                RECEIVED(gotcounts, gotdispls, gottypes, false, comm)))
COLLECTIVE(Bcast, bcast, LIST(void *got, int count, MPI_Datatype type, int root, ), LIST(got, count, type, root, ),
           LIST(RECEIVED(count, type)))
COLLECTIVE(Exscan, exscan, LIST(const void *sent, void *got, int count, MPI_Datatype type, MPI_Op op, ),
           LIST(sent, got, count, type, op, ), LIST(stage->add(sent, count, type, Stage::kRead); RECEIVED(count, type)))
COLLECTIVE(Gather, gather,
           LIST(const void *sent, int count, MPI_Datatype type, void *got, int gotcount, MPI_Datatype gottype,
                int root, ),
           LIST(sent, count, type, got, gotcount, gottype, root, ),
           LIST(stage->add(sent, count, type, Stage::kRead);
                if (rank_in(comm) == root) { RECEIVED(long{gotcount} * size_of(comm), gottype); }))
COLLECTIVE(Gatherv, gatherv,
           LIST(const void *sent, int count, MPI_Datatype type, void *got, const int *gotcounts, const int *displs,
                MPI_Datatype gottype, int root, ),
           LIST(sent, count, type, got, gotcounts, displs, gottype, root, ),
           LIST(stage->add(sent, count, type, Stage::kRead);
                if (rank_in(comm) == root) { RECEIVED(gotcounts, displs, &gottype, true, comm); }))
COLLECTIVE(Reduce, reduce, LIST(const void *sent, void *got, int count, MPI_Datatype type, MPI_Op op, int root, ),
           LIST(sent, got, count, type, op, root, ),
           LIST(stage->add(sent, count, type, Stage::kRead); if (rank_in(comm) == root) { RECEIVED(count, type); }))
COLLECTIVE(Reduce_scatter, reduce_scatter,
           LIST(const void *sent, void *got, const int *counts, MPI_Datatype type, MPI_Op op, ),
           LIST(sent, got, counts, type, op, ),
           LIST(long total = 0; for (int rank = 0; rank < size_of(comm); ++rank) total += counts[rank];
                stage->add(sent, total, type, Stage::kRead);
                RECEIVED(sent == MPI_IN_PLACE ? total : counts[rank_in(comm)], type)))
COLLECTIVE(Reduce_scatter_block, reduce_scatter_block,
           LIST(const void *sent, void *got, int count, MPI_Datatype type, MPI_Op op, ),
           LIST(sent, got, count, type, op, ),
           LIST(const long total = long{count} * size_of(comm); stage->add(sent, total, type, Stage::kRead);
                RECEIVED(sent == MPI_IN_PLACE ? total : count, type)))
COLLECTIVE(Scan, scan, LIST(const void *sent, void *got, int count, MPI_Datatype type, MPI_Op op, ),
           LIST(sent, got, count, type, op, ), LIST(stage->add(sent, count, type, Stage::kRead); RECEIVED(count, type)))
COLLECTIVE(Scatter, scatter,
           LIST(const void *sent, int count, MPI_Datatype type, void *got, int gotcount, MPI_Datatype gottype,
                int root, ),
           LIST(sent, count, type, got, gotcount, gottype, root, ),
           LIST(if (rank_in(comm) == root) stage->add(sent, long{count} * size_of(comm), type, Stage::kRead);
                RECEIVED(gotcount, gottype)))
COLLECTIVE(Scatterv, scatterv,
           LIST(const void *sent, const int *counts, const int *displs, MPI_Datatype type, void *got, int gotcount,
                MPI_Datatype gottype, int root, ),
           LIST(sent, counts, displs, type, got, gotcount, gottype, root, ),
           LIST(if (rank_in(comm) == root) stage->add(sent, counts, displs, &type, true, comm, Stage::kRead);
                RECEIVED(gotcount, gottype)))
