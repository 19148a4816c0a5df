#include "apps/bench/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

namespace flx::bench {
namespace {

// What is needed of NCCL's interface (nccl.h), whose numbers do not change.
struct UniqueId {
    char bytes[128];
};
using Comm = void *;
using Stream = CUstream_st *;

/// -1: NCCL of that version has no such type.
int type_of(flx_dtype_t dtype, int version) {
    /// Indexed by flx_dtype_t.
    constexpr std::array<int, 12> kTypes = {0, 1, -1, -1, 2, 3, 4, 5, 6, 9, 7, 8};
    constexpr int kWithFloat8 = 22400;
    if (is_float8(dtype))
        return version < kWithFloat8 ? -1 : dtype == FLX_F8E4M3 ? 10 : 11;
    return kTypes[dtype];
}
/// Indexed by flx_op_t.
constexpr std::array<int, 5> kOps = {0, 1, 3, 2, 4};

}  // namespace

struct Nccl::Library {
    void *handle = nullptr;
    int (*get_version)(int *) = nullptr;
    int (*get_unique_id)(UniqueId *) = nullptr;
    int (*init_rank)(Comm *, int, UniqueId, int) = nullptr;
    int (*destroy)(Comm) = nullptr;
    const char *(*error)(int) = nullptr;
    int (*all_reduce)(const void *, void *, size_t, int, int, Comm, Stream) = nullptr;
    int (*reduce_scatter)(const void *, void *, size_t, int, int, Comm, Stream) = nullptr;
    int (*all_gather)(const void *, void *, size_t, int, Comm, Stream) = nullptr;
    int (*broadcast)(const void *, void *, size_t, int, int, Comm, Stream) = nullptr;
    int (*reduce)(const void *, void *, size_t, int, int, int, Comm, Stream) = nullptr;
    int (*send)(const void *, size_t, int, int, Comm, Stream) = nullptr;
    int (*recv)(void *, size_t, int, int, Comm, Stream) = nullptr;
    int (*group_start)() = nullptr;
    int (*group_end)() = nullptr;

    std::string load() {
        handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr)
            return fmt::format("NCCL was not found ({}); LD_LIBRARY_PATH may name its folder", dlerror());
        const auto find = [this](auto &function, const char *name) {
            function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
            return function != nullptr;
        };
        const bool all = find(get_version, "ncclGetVersion") && find(get_unique_id, "ncclGetUniqueId") &&
                         find(init_rank, "ncclCommInitRank") && find(destroy, "ncclCommDestroy") &&
                         find(error, "ncclGetErrorString") && find(all_reduce, "ncclAllReduce") &&
                         find(reduce_scatter, "ncclReduceScatter") && find(all_gather, "ncclAllGather") &&
                         find(broadcast, "ncclBroadcast") && find(reduce, "ncclReduce") && find(send, "ncclSend") &&
                         find(recv, "ncclRecv") && find(group_start, "ncclGroupStart") &&
                         find(group_end, "ncclGroupEnd");
        return all ? "" : "the NCCL that was found lacks a function that is needed";
    }
    [[nodiscard]] int version() const {
        int number = 0;
        get_version(&number);
        return number;
    }
    ~Library() {
        if (handle != nullptr)
            dlclose(handle);
    }
};

std::unique_ptr<Nccl> Nccl::make(MPI_Comm mpi_comm, std::string &why) {
    int rank = 0;
    int ranks = 0;
    MPI_Comm_rank(mpi_comm, &rank);
    MPI_Comm_size(mpi_comm, &ranks);
    std::unique_ptr<Nccl> nccl(new Nccl);
    nccl->library_ = std::make_unique<Library>();
    why = nccl->library_->load();
    UniqueId id{};
    if (why.empty() && rank == 0 && nccl->library_->get_unique_id(&id) != 0)
        why = "ncclGetUniqueId failed";
    int bad = why.empty() ? 0 : 1;
    MPI_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_INT, MPI_MAX, mpi_comm);
    if (bad != 0) {
        why = why.empty() ? "NCCL was not found on another rank" : why;
        return nullptr;
    }
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, mpi_comm);
    if (const int error = nccl->library_->init_rank(&nccl->comm_, ranks, id, rank); error != 0)
        why = fmt::format("NCCL made no communicator: {}", nccl->library_->error(error));
    bad = why.empty() ? 0 : 1;
    MPI_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_INT, MPI_MAX, mpi_comm);
    return bad == 0 ? std::move(nccl) : nullptr;
}

Nccl::~Nccl() {
    if (comm_ != nullptr)
        library_->destroy(comm_);
}

bool Nccl::serves(const Job &job) const {
    return type_of(job.dtype, library_->version()) >= 0;
}

std::string Nccl::version() const {
    const int number = library_->version();
    return fmt::format("NCCL {}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

std::string Nccl::call(const Job &job, CUstream_st *stream) {
    const Library &nccl = *library_;
    const int type = type_of(job.dtype, nccl.version());
    const int op = kOps[job.op];
    const size_t count = job.shape.count;
    const size_t block = count * size_of(job.dtype);
    const std::byte *send = job.in_place ? job.recv : job.send;
    int error = 0;
    switch (job.kind) {
        case Collective::kAllreduce:
            error = nccl.all_reduce(send, job.recv, count, type, op, comm_, stream);
            break;
        case Collective::kReduceScatterBlock:
            error = nccl.reduce_scatter(send, job.recv, count, type, op, comm_, stream);
            break;
        case Collective::kAllgather:
            error = nccl.all_gather(job.in_place ? job.recv + job.rank * block : job.send, job.recv, count, type, comm_,
                                    stream);
            break;
        case Collective::kBcast:
            error = nccl.broadcast(job.recv, job.recv, count, type, job.root, comm_, stream);
            break;
        case Collective::kReduce:
            error = nccl.reduce(send, job.recv, count, type, op, job.root, comm_, stream);
            break;
        case Collective::kAlltoall:
            nccl.group_start();
            for (int peer = 0; peer < job.ranks && error == 0; ++peer) {
                error = nccl.send(send + peer * block, count, type, peer, comm_, stream);
                if (error == 0)
                    error = nccl.recv(job.recv + peer * block, count, type, peer, comm_, stream);
            }
            if (const int ended = nccl.group_end(); error == 0)
                error = ended;
            break;
        case Collective::kSendrecv:
            nccl.group_start();
            error = nccl.send(job.send, count, type, (job.rank + 1) % job.ranks, comm_, stream);
            if (error == 0)
                error = nccl.recv(job.recv, count, type, (job.rank + job.ranks - 1) % job.ranks, comm_, stream);
            if (const int ended = nccl.group_end(); error == 0)
                error = ended;
            break;
        default:  // options.cpp: on host memory only
            break;
    }
    return error == 0 ? "" : nccl.error(error);
}

}  // namespace flx::bench
