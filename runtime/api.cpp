/// The public functions: they check arguments, make an operation, and keep the last error's sentence.
#include <cstring>
#include <memory>
#include <string>

#include "bootstrap_mpi.h"
#include "communicator.h"
#include "dtype.h"
#include "flx.h"
#include "info.h"
#include "log.h"
#include "telemetry.h"

struct flx_comm {
    std::unique_ptr<flx::Communicator> impl;
};

namespace {

using flx::fail;
using flx::Operation;
using flx::Status;
using flx::algorithms::Collective;

std::string &last_error() {
    thread_local std::string sentence;
    return sentence;
}

flx_status_t finish(const Status &status) {
    if (!status.ok())
        last_error() = status.sentence();
    return status.code();
}

/// Runs `body`; no exception (memory, say) leaves the library.
template <typename Body>
flx_status_t guarded(Body &&body) {
    try {
        return finish(body());
    } catch (const std::exception &error) {
        return finish(fail(FLX_ERR_SYSTEM, "{}", error.what()));
    }
}

Status need(const void *pointer, const char *name) {
    if (pointer == nullptr)
        return fail(FLX_ERR_ARGUMENT, "{} is null", name);
    return {};
}

Status check_comm(flx_comm_t comm) {
    if (comm == nullptr)
        return fail(FLX_ERR_ARGUMENT, "comm is null; flx_comm_create makes one");
    return {};
}

Status check_dtype(flx_dtype_t dtype) {
    if (!flx::valid(dtype))
        return fail(FLX_ERR_ARGUMENT, "dtype {} is not known; FLX_INT8 (0) to FLX_F64 ({}) are",
                    static_cast<int>(dtype), flx::kDtypes - 1);
    return {};
}

Status check_op(flx_op_t op) {
    if (!flx::valid(op))
        return fail(FLX_ERR_ARGUMENT, "op {} is not known; FLX_SUM (0) to FLX_AVG ({}) are", static_cast<int>(op),
                    flx::kOps - 1);
    return {};
}

Status check_root(int root, const flx::Communicator &comm) {
    if (root < 0 || root >= comm.size())
        return fail(FLX_ERR_ARGUMENT, "root {} is not a rank of the communicator; 0 to {} are", root, comm.size() - 1);
    return {};
}

/// The whole vector must have an address range.
Status check_count(size_t count, flx_dtype_t dtype, int blocks) {
    if (count > SIZE_MAX / 2 / flx::size_of(dtype) / blocks)
        return fail(FLX_ERR_ARGUMENT, "count {} of {} ranks is larger than memory", count, blocks);
    return {};
}

Status check_buffer(const void *buffer, const char *name, size_t count) {
    if (count == 0 || (buffer != nullptr && buffer != FLX_IN_PLACE))
        return {};
    return fail(FLX_ERR_ARGUMENT, "{} is {}; a buffer of {} elements is needed", name,
                buffer == nullptr ? "null" : "FLX_IN_PLACE", count);
}

Status check_overlap(const void *in, size_t in_bytes, const void *out, size_t out_bytes) {
    const auto *a = static_cast<const std::byte *>(in);
    const auto *b = static_cast<const std::byte *>(out);
    if (in_bytes == 0 || out_bytes == 0 || a + in_bytes <= b || b + out_bytes <= a)
        return {};
    return fail(FLX_ERR_ARGUMENT,
                "sendbuf and recvbuf overlap by {} bytes; they must be apart, or the call in place (FLX_IN_PLACE)",
                std::min(a + in_bytes, b + out_bytes) - std::max(a, b));
}

/// The checks that all collectives with data share, in the order a reader would expect.
Status check_common(flx_comm_t comm, size_t count, flx_dtype_t dtype, flx_op_t op, int root, bool whole) {
    FLX_TRY(check_comm(comm));
    FLX_TRY(check_dtype(dtype));
    FLX_TRY(check_op(op));
    FLX_TRY(check_root(root, *comm->impl));
    return check_count(count, dtype, whole ? 1 : comm->impl->size());
}

Operation make_operation(Collective collective, const void *in, void *out, size_t count, flx_dtype_t dtype, flx_op_t op,
                         int root) {
    Operation operation;
    operation.collective = collective;
    operation.in = in;
    operation.out = out;
    operation.count = count;
    operation.dtype = dtype;
    operation.op = op;
    operation.root = root;
    return operation;
}

/// For calls that do not serve device memory.
Status check_on_host(const void *buffer, const char *name) {
    if (flx::cuda::on_device(buffer))
        return fail(FLX_ERR_UNSUPPORTED,
                    "{} is GPU memory; flx_alltoallv, flx_send, flx_recv and flx_sendrecv take host "
                    "memory",
                    name);
    return {};
}

Status check_message(flx_comm_t comm, const void *buffer, const char *name, size_t count, flx_dtype_t dtype, int peer,
                     const char *role) {
    FLX_TRY(check_comm(comm));
    FLX_TRY(check_dtype(dtype));
    if (peer < 0 || peer >= comm->impl->size())
        return fail(FLX_ERR_ARGUMENT, "{} {} is not a rank of the communicator; 0 to {} are", role, peer,
                    comm->impl->size() - 1);
    FLX_TRY(check_count(count, dtype, 1));
    FLX_TRY(check_on_host(buffer, name));
    return check_buffer(buffer, name, count);
}

/// Where the blocks of an alltoallv lie in memory.
struct Ranges {
    const std::byte *base = nullptr;
    const size_t *counts = nullptr;
    const size_t *displacements = nullptr;
    int size = 0;
    size_t element = 1;
    size_t begin = SIZE_MAX;  ///< bytes that all blocks lie within
    size_t end = 0;

    [[nodiscard]] const std::byte *first(int rank) const { return base + displacements[rank] * element; }
    [[nodiscard]] size_t bytes(int rank) const { return counts[rank] * element; }
};

Status check_ranges(const void *buffer, const char *name, const size_t *counts, const size_t *displacements, int size,
                    flx_dtype_t dtype, Ranges &ranges) {
    ranges = {static_cast<const std::byte *>(buffer), counts, displacements, size, flx::size_of(dtype)};
    for (int rank = 0; rank < size; ++rank) {
        if (counts[rank] == 0)
            continue;
        FLX_TRY(check_buffer(buffer, name, counts[rank]));
        FLX_TRY(check_count(counts[rank], dtype, 2));
        FLX_TRY(check_count(displacements[rank], dtype, 2));
        ranges.begin = std::min(ranges.begin, displacements[rank] * ranges.element);
        ranges.end = std::max(ranges.end, (displacements[rank] + counts[rank]) * ranges.element);
    }
    return {};
}

Status check_apart(const Ranges &from, const Ranges &to) {
    if (from.end == 0 || to.end == 0 || from.base + from.end <= to.base + to.begin ||
        to.base + to.end <= from.base + from.begin)
        return {};
    for (int source = 0; source < from.size; ++source)
        for (int target = 0; target < to.size; ++target)
            FLX_TRY(check_overlap(from.first(source), from.bytes(source), to.first(target), to.bytes(target)));
    return {};
}

/// When a call returns: with its result, or with the operation on a stream.
struct Order {
    bool on_stream = false;
    CUstream_st *stream = nullptr;
};

Status submit(flx_comm_t comm, const Operation &operation, const Order &order) {
    if (!order.on_stream && !flx::cuda::on_device(operation.out != nullptr ? operation.out : operation.in))
        return comm->impl->run(operation);
    return comm->impl->run_on_device({flx::cuda::kind_of(operation.collective), operation.in, operation.out,
                                      operation.count, operation.dtype, operation.op, operation.root},
                                     order.stream, !order.on_stream);
}

/// Knobs of the environment, overridden by what the caller set.
Status override_knobs(const flx_config_t *overrides, flx::Config &config) {
    if (overrides == nullptr)
        return {};
    if (overrides->struct_size != sizeof(flx_config_t))
        return fail(FLX_ERR_ARGUMENT, "config->struct_size is {}; FLX_CONFIG_INIT sets it to {}",
                    overrides->struct_size, sizeof(flx_config_t));
    const auto set = [&](const char *knob, const std::string &value) {
        return config.set(knob, value, "flx_config_t");
    };
    if (overrides->partition != nullptr)
        FLX_TRY(set("FLX_PARTITION", overrides->partition));
    if (overrides->links != nullptr)
        FLX_TRY(set("FLX_LINKS", overrides->links));
    if (overrides->algorithm != nullptr)
        FLX_TRY(set("FLX_ALGORITHM", overrides->algorithm));
    if (overrides->deadline_s != 0)
        FLX_TRY(set("FLX_DEADLINE", fmt::format("{}", overrides->deadline_s)));
    if (overrides->check != 0)
        FLX_TRY(set("FLX_CHECK", fmt::format("{}", overrides->check)));
    if (overrides->strict != 0)
        FLX_TRY(set("FLX_STRICT", fmt::format("{}", overrides->strict)));
    return {};
}

Status make_comm(std::shared_ptr<flx::Process> process, std::unique_ptr<flx::Bootstrap> bootstrap, flx::Config config,
                 const flx::Communicator *parent, flx_comm_t *comm) {
    auto made = std::make_unique<flx_comm>();
    FLX_TRY(flx::Communicator::make(std::move(process), std::move(bootstrap), std::move(config), parent, made->impl));
    *comm = made.release();
    return {};
}

}  // namespace

flx_status_t flx_comm_create(MPI_Comm mpi_comm, const flx_config_t *config, flx_comm_t *comm) {
    return guarded([&]() -> Status {
        FLX_TRY(need(comm, "comm"));
        *comm = nullptr;
        std::unique_ptr<flx::Bootstrap> bootstrap;
        FLX_TRY(flx::make_mpi_bootstrap(mpi_comm, bootstrap));
        // A rank whose knobs are wrong must not leave the others waiting for it.
        std::shared_ptr<flx::Process> process;
        flx::Config knobs;
        Status status = flx::Config::from_environment(knobs);
        if (status.ok())
            status = override_knobs(config, knobs);
        if (status.ok())
            status = flx::Process::shared(flx::mpi_allows_threads(), process);
        FLX_TRY(flx::agree(*bootstrap, std::move(status)));
        return make_comm(std::move(process), std::move(bootstrap), std::move(knobs), nullptr, comm);
    });
}

flx_status_t flx_comm_dup(flx_comm_t comm, flx_comm_t *dup) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        FLX_TRY(need(dup, "dup"));
        *dup = nullptr;
        FLX_TRY(comm->impl->usable());
        std::unique_ptr<flx::Bootstrap> bootstrap;
        FLX_TRY(comm->impl->bootstrap().dup(bootstrap));
        return make_comm(comm->impl->process(), std::move(bootstrap), comm->impl->config(), comm->impl.get(), dup);
    });
}

flx_status_t flx_comm_split(flx_comm_t comm, int color, int key, flx_comm_t *split) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        FLX_TRY(need(split, "split"));
        *split = nullptr;
        FLX_TRY(comm->impl->usable());
        std::unique_ptr<flx::Bootstrap> bootstrap;
        FLX_TRY(comm->impl->bootstrap().split(color, key, bootstrap));
        if (!bootstrap)
            return {};
        return make_comm(comm->impl->process(), std::move(bootstrap), comm->impl->config(), nullptr, split);
    });
}

flx_status_t flx_comm_free(flx_comm_t *comm) {
    return guarded([&]() -> Status {
        if (comm == nullptr || *comm == nullptr)
            return check_comm(nullptr);
        (*comm)->impl->close();
        delete *comm;
        *comm = nullptr;
        return {};
    });
}

flx_status_t flx_comm_rank(flx_comm_t comm, int *rank) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        FLX_TRY(need(rank, "rank"));
        *rank = comm->impl->rank();
        return {};
    });
}

flx_status_t flx_comm_size(flx_comm_t comm, int *size) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        FLX_TRY(need(size, "size"));
        *size = comm->impl->size();
        return {};
    });
}

namespace {

flx_status_t allreduce(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                       flx_comm_t comm, Order order) {
    return guarded([&]() -> Status {
        FLX_TRY(check_common(comm, count, dtype, op, 0, true));
        FLX_TRY(check_buffer(recvbuf, "recvbuf", count));
        if (sendbuf == FLX_IN_PLACE || sendbuf == recvbuf) {
            sendbuf = recvbuf;
        } else {
            FLX_TRY(check_buffer(sendbuf, "sendbuf", count));
            const size_t bytes = count * flx::size_of(dtype);
            FLX_TRY(check_overlap(sendbuf, bytes, recvbuf, bytes));
        }
        return submit(comm, make_operation(Collective::allreduce, sendbuf, recvbuf, count, dtype, op, 0), order);
    });
}

flx_status_t reduce_scatter_block(const void *sendbuf, void *recvbuf, size_t recvcount, flx_dtype_t dtype, flx_op_t op,
                                  flx_comm_t comm, Order order) {
    return guarded([&]() -> Status {
        FLX_TRY(check_common(comm, recvcount, dtype, op, 0, false));
        const size_t count = recvcount * comm->impl->size();
        FLX_TRY(check_buffer(recvbuf, "recvbuf", recvcount));
        if (sendbuf == FLX_IN_PLACE || sendbuf == recvbuf) {
            sendbuf = recvbuf;
        } else {
            FLX_TRY(check_buffer(sendbuf, "sendbuf", count));
            const size_t element = flx::size_of(dtype);
            FLX_TRY(check_overlap(sendbuf, count * element, recvbuf, recvcount * element));
        }
        return submit(comm, make_operation(Collective::reduce_scatter_block, sendbuf, recvbuf, count, dtype, op, 0),
                      order);
    });
}

flx_status_t allgather(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_comm_t comm,
                       Order order) {
    return guarded([&]() -> Status {
        FLX_TRY(check_common(comm, count, dtype, FLX_SUM, 0, false));
        const size_t total = count * comm->impl->size();
        FLX_TRY(check_buffer(recvbuf, "recvbuf", total));
        const size_t block = count * flx::size_of(dtype);
        const std::byte *own = static_cast<std::byte *>(recvbuf) + comm->impl->rank() * block;
        if (sendbuf == FLX_IN_PLACE || sendbuf == own) {
            sendbuf = own;
        } else {
            FLX_TRY(check_buffer(sendbuf, "sendbuf", count));
            FLX_TRY(check_overlap(sendbuf, block, recvbuf, block * comm->impl->size()));
        }
        return submit(comm, make_operation(Collective::allgather, sendbuf, recvbuf, total, dtype, FLX_SUM, 0), order);
    });
}

flx_status_t bcast(void *buf, size_t count, flx_dtype_t dtype, int root, flx_comm_t comm, Order order) {
    return guarded([&]() -> Status {
        FLX_TRY(check_common(comm, count, dtype, FLX_SUM, root, true));
        FLX_TRY(check_buffer(buf, "buf", count));
        return submit(comm, make_operation(Collective::bcast, buf, buf, count, dtype, FLX_SUM, root), order);
    });
}

flx_status_t alltoall(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_comm_t comm,
                      Order order) {
    return guarded([&]() -> Status {
        FLX_TRY(check_common(comm, count, dtype, FLX_SUM, 0, false));
        const size_t total = count * comm->impl->size();
        FLX_TRY(check_buffer(recvbuf, "recvbuf", total));
        if (sendbuf == FLX_IN_PLACE || sendbuf == recvbuf) {
            sendbuf = recvbuf;
        } else {
            FLX_TRY(check_buffer(sendbuf, "sendbuf", total));
            const size_t bytes = total * flx::size_of(dtype);
            FLX_TRY(check_overlap(sendbuf, bytes, recvbuf, bytes));
        }
        if (order.on_stream || flx::cuda::on_device(recvbuf))
            return comm->impl->run_on_device({flx::cuda::Kind::alltoall, sendbuf, recvbuf, total, dtype, FLX_SUM, 0},
                                             order.stream, !order.on_stream);
        return comm->impl->alltoall(sendbuf, recvbuf, count, dtype);
    });
}

flx_status_t reduce(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op, int root,
                    flx_comm_t comm, Order order) {
    return guarded([&]() -> Status {
        FLX_TRY(check_common(comm, count, dtype, op, root, true));
        if (comm->impl->rank() != root) {
            FLX_TRY(check_buffer(sendbuf, "sendbuf", count));
            recvbuf = nullptr;
        } else {
            FLX_TRY(check_buffer(recvbuf, "recvbuf", count));
            if (sendbuf == FLX_IN_PLACE || sendbuf == recvbuf) {
                sendbuf = recvbuf;
            } else {
                FLX_TRY(check_buffer(sendbuf, "sendbuf", count));
                const size_t bytes = count * flx::size_of(dtype);
                FLX_TRY(check_overlap(sendbuf, bytes, recvbuf, bytes));
            }
        }
        return submit(comm, make_operation(Collective::reduce, sendbuf, recvbuf, count, dtype, op, root), order);
    });
}

}  // namespace

flx_status_t flx_allreduce(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                           flx_comm_t comm) {
    return allreduce(sendbuf, recvbuf, count, dtype, op, comm, Order{});
}

flx_status_t flx_allreduce_on_stream(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                                     flx_comm_t comm, CUstream_st *stream) {
    return allreduce(sendbuf, recvbuf, count, dtype, op, comm, Order{true, stream});
}

flx_status_t flx_reduce_scatter_block(const void *sendbuf, void *recvbuf, size_t recvcount, flx_dtype_t dtype,
                                      flx_op_t op, flx_comm_t comm) {
    return reduce_scatter_block(sendbuf, recvbuf, recvcount, dtype, op, comm, Order{});
}

flx_status_t flx_reduce_scatter_block_on_stream(const void *sendbuf, void *recvbuf, size_t recvcount, flx_dtype_t dtype,
                                                flx_op_t op, flx_comm_t comm, CUstream_st *stream) {
    return reduce_scatter_block(sendbuf, recvbuf, recvcount, dtype, op, comm, Order{true, stream});
}

flx_status_t flx_allgather(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_comm_t comm) {
    return allgather(sendbuf, recvbuf, count, dtype, comm, Order{});
}

flx_status_t flx_allgather_on_stream(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype,
                                     flx_comm_t comm, CUstream_st *stream) {
    return allgather(sendbuf, recvbuf, count, dtype, comm, Order{true, stream});
}

flx_status_t flx_bcast(void *buf, size_t count, flx_dtype_t dtype, int root, flx_comm_t comm) {
    return bcast(buf, count, dtype, root, comm, Order{});
}

flx_status_t flx_bcast_on_stream(void *buf, size_t count, flx_dtype_t dtype, int root, flx_comm_t comm,
                                 CUstream_st *stream) {
    return bcast(buf, count, dtype, root, comm, Order{true, stream});
}

flx_status_t flx_reduce(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op, int root,
                        flx_comm_t comm) {
    return reduce(sendbuf, recvbuf, count, dtype, op, root, comm, Order{});
}

flx_status_t flx_reduce_on_stream(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                                  int root, flx_comm_t comm, CUstream_st *stream) {
    return reduce(sendbuf, recvbuf, count, dtype, op, root, comm, Order{true, stream});
}

flx_status_t flx_alltoall_on_stream(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype,
                                    flx_comm_t comm, CUstream_st *stream) {
    return alltoall(sendbuf, recvbuf, count, dtype, comm, Order{true, stream});
}

flx_status_t flx_register(flx_comm_t comm, void *memory, size_t bytes) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        return comm->impl->register_memory(memory, bytes);
    });
}

flx_status_t flx_deregister(flx_comm_t comm, void *memory) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        return comm->impl->deregister_memory(memory);
    });
}

flx_status_t flx_alltoall(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_comm_t comm) {
    return alltoall(sendbuf, recvbuf, count, dtype, comm, Order{});
}

flx_status_t flx_alltoallv(const void *sendbuf, void *recvbuf, const size_t *sendcounts, const size_t *sdispls,
                           const size_t *recvcounts, const size_t *rdispls, flx_dtype_t dtype, flx_comm_t comm) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        FLX_TRY(check_dtype(dtype));
        const int size = comm->impl->size();
        FLX_TRY(need(recvcounts, "recvcounts"));
        FLX_TRY(need(rdispls, "rdispls"));
        Ranges to;
        FLX_TRY(check_ranges(recvbuf, "recvbuf", recvcounts, rdispls, size, dtype, to));
        FLX_TRY(check_on_host(recvbuf, "recvbuf"));
        flx::UnevenCall call{sendbuf, recvbuf, sendcounts, sdispls, recvcounts, rdispls, dtype, false};
        call.in_place = sendbuf == FLX_IN_PLACE;
        if (!call.in_place) {
            FLX_TRY(need(sendcounts, "sendcounts"));
            FLX_TRY(need(sdispls, "sdispls"));
            Ranges from;
            FLX_TRY(check_ranges(sendbuf, "sendbuf", sendcounts, sdispls, size, dtype, from));
            FLX_TRY(check_apart(from, to));
            const int rank = comm->impl->rank();
            if (sendcounts[rank] != recvcounts[rank])
                return fail(FLX_ERR_ARGUMENT, "sendcounts[{0}] is {1} and recvcounts[{0}] is {2}, both of rank {0}",
                            rank, sendcounts[rank], recvcounts[rank]);
        }
        return comm->impl->alltoallv(call);
    });
}

flx_status_t flx_send(const void *sendbuf, size_t count, flx_dtype_t dtype, int dest, flx_comm_t comm) {
    return guarded([&]() -> Status {
        FLX_TRY(check_message(comm, sendbuf, "sendbuf", count, dtype, dest, "dest"));
        return comm->impl->send(sendbuf, count * flx::size_of(dtype), dest);
    });
}

flx_status_t flx_recv(void *recvbuf, size_t count, flx_dtype_t dtype, int source, flx_comm_t comm) {
    return guarded([&]() -> Status {
        FLX_TRY(check_message(comm, recvbuf, "recvbuf", count, dtype, source, "source"));
        return comm->impl->receive(recvbuf, count * flx::size_of(dtype), source);
    });
}

flx_status_t flx_sendrecv(const void *sendbuf, void *recvbuf, size_t sendcount, size_t recvcount, flx_dtype_t dtype,
                          int dest, int source, flx_comm_t comm) {
    return guarded([&]() -> Status {
        FLX_TRY(check_message(comm, sendbuf, "sendbuf", sendcount, dtype, dest, "dest"));
        FLX_TRY(check_message(comm, recvbuf, "recvbuf", recvcount, dtype, source, "source"));
        const size_t element = flx::size_of(dtype);
        FLX_TRY(check_overlap(sendbuf, sendcount * element, recvbuf, recvcount * element));
        return comm->impl->send_receive(sendbuf, sendcount * element, dest, recvbuf, recvcount * element, source);
    });
}

flx_status_t flx_group_begin(flx_comm_t comm) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        return comm->impl->begin_group();
    });
}

flx_status_t flx_group_end(flx_comm_t comm) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        return comm->impl->end_group();
    });
}

flx_status_t flx_barrier(flx_comm_t comm) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        const uint8_t in = 0;
        uint8_t out = 0;
        return comm->impl->run(make_operation(Collective::barrier, &in, &out, 1, FLX_UINT8, FLX_MAX, 0));
    });
}

int flx_version(void) {
    return FLX_VERSION_MAJOR * 10000 + FLX_VERSION_MINOR * 100 + FLX_VERSION_PATCH;
}

const char *flx_strerror(flx_status_t status) {
    switch (status) {
        case FLX_SUCCESS:
            return "FLX_SUCCESS: all went well";
        case FLX_ERR_ARGUMENT:
            return "FLX_ERR_ARGUMENT: an argument of this call is not allowed";
        case FLX_ERR_CONFIG:
            return "FLX_ERR_CONFIG: a knob is not known or its value not allowed";
        case FLX_ERR_UNSUPPORTED:
            return "FLX_ERR_UNSUPPORTED: this build or these links cannot do that";
        case FLX_ERR_MISMATCH:
            return "FLX_ERR_MISMATCH: ranks called with arguments that differ";
        case FLX_ERR_LINK:
            return "FLX_ERR_LINK: no link to a peer works";
        case FLX_ERR_PEER:
            return "FLX_ERR_PEER: a peer died or stopped";
        case FLX_ERR_COMM:
            return "FLX_ERR_COMM: the communicator was broken by an earlier error";
        case FLX_ERR_SYSTEM:
            return "FLX_ERR_SYSTEM: the system refused something";
    }
    return "not a status of FLX";
}

const char *flx_last_error(void) {
    return last_error().c_str();
}

flx_status_t flx_comm_link_stats(flx_comm_t comm, flx_link_stats_t *stats, size_t entry_size, size_t capacity,
                                 size_t *count) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        FLX_TRY(need(count, "count"));
        if (capacity != 0)
            FLX_TRY(need(stats, "stats"));
        if (entry_size != sizeof(flx_link_stats_t))
            return fail(FLX_ERR_ARGUMENT, "entry_size is {}; sizeof(flx_link_stats_t) is {}", entry_size,
                        sizeof(flx_link_stats_t));
        const auto &links = comm->impl->links();
        *count = links.size();
        for (size_t l = 0; l < std::min(capacity, links.size()); ++l) {
            flx_link_stats_t entry{};
            std::strncpy(entry.name, links[l].name.c_str(), sizeof entry.name - 1);
            std::strncpy(entry.why, links[l].why_off.c_str(), sizeof entry.why - 1);
            entry.enabled = links[l].link != nullptr && links[l].why_off.empty() ? 1 : 0;
            const flx::LinkCounters counters = comm->impl->counters(static_cast<int>(l));
            entry.bytes_sent = counters.bytes;
            entry.chunks_sent = counters.chunks;
            const flx::LinkMeasured &measured = links[l].far.done ? links[l].far : links[l].near;
            entry.latency_us = measured.latency_ns / 1e3;
            entry.bandwidth_GBps = measured.bytes_per_ns;
            entry.share = comm->impl->last_share(static_cast<int>(l));
            stats[l] = entry;
        }
        return {};
    });
}

flx_status_t flx_comm_algorithm(flx_comm_t comm, const char *collective, size_t bytes, flx_dtype_t dtype, flx_op_t op,
                                const char **name) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        FLX_TRY(need(collective, "collective"));
        FLX_TRY(need(name, "name"));
        FLX_TRY(check_dtype(dtype));
        FLX_TRY(check_op(op));
        auto parsed = flx::algorithms::parse_collective(collective);
        for (const Collective exchange : {Collective::alltoall, Collective::alltoallv, Collective::send_recv})
            if (flx::algorithms::name_of(exchange) == collective)
                parsed = exchange;
        if (!parsed)
            return fail(FLX_ERR_ARGUMENT, "collective \"{}\" is not known", collective);
        *name = comm->impl->size() == 1 ? "copy" : comm->impl->choose(*parsed, bytes).name();
        return {};
    });
}

flx_status_t flx_comm_device_algorithm(flx_comm_t comm, const char *collective, size_t bytes, const void *recvbuf,
                                       const char **name) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        FLX_TRY(need(collective, "collective"));
        FLX_TRY(need(name, "name"));
        return comm->impl->device_way(collective, bytes, recvbuf, *name);
    });
}

flx_status_t flx_counters(flx_counters_t *counters) {
    return guarded([&]() -> Status {
        FLX_TRY(need(counters, "counters"));
        if (counters->struct_size != sizeof(flx_counters_t))
            return fail(FLX_ERR_ARGUMENT, "counters->struct_size is {}; sizeof(flx_counters_t) is {}",
                        counters->struct_size, sizeof(flx_counters_t));
        const flx::Telemetry &telemetry = flx::telemetry();
        counters->operations = telemetry.operations;
        counters->allocations = telemetry.allocations;
        counters->registrations = telemetry.registrations;
        counters->locks = telemetry.locks;
        return {};
    });
}

flx_status_t flx_report(flx_comm_t comm, void (*line)(const char *text, void *arg), void *arg) {
    return guarded([&]() -> Status {
        FLX_TRY(need(reinterpret_cast<const void *>(line), "line"));
        std::vector<std::string> lines;
        FLX_TRY(flx::report(comm == nullptr ? nullptr : comm->impl.get(), lines));
        for (const std::string &text : lines)
            line(text.c_str(), arg);
        return {};
    });
}
