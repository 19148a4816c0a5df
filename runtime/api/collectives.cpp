/// The checks of each collective's arguments, and the public functions that block.
#include <algorithm>

#include "runtime/api/api.h"

namespace flx::api {

using algorithms::Collective;

namespace {

[[gnu::cold]] Status unfit(flx_op_t op, flx_dtype_t dtype) {
    if (is_float8(dtype))
        return fail(Fault::op_not_for_dtype,
                    "op {} does not go with dtype {}; sum, avg, min and max go with 8-bit floats", name_of(op),
                    name_of(dtype));
    return fail(Fault::op_not_for_dtype,
                "op {} does not go with dtype {}; sum, prod and avg go with integers, floats and complex numbers, min "
                "and max with integers and floats, logical and bitwise ones with integers, minloc and maxloc with "
                "pairs, a scaled sum with the type that it was made for",
                name_of(op), name_of(dtype));
}

Status check_fits(flx_op_t op, flx_dtype_t dtype) {
    return fits(op, dtype) ? Status() : unfit(op, dtype);
}

/// The checks of collectives that only move data, which may be of any type.
Status check_moved(flx_comm_t comm, flx_dtype_t dtype, int root) {
    FLX_TRY(check_comm(comm));
    FLX_TRY(check_dtype(dtype));
    return check_root(root, *comm->impl);
}

/// The checks that all reductions share, in the order a reader would expect.
Status check_common(flx_comm_t comm, flx_dtype_t dtype, flx_op_t op, int root) {
    FLX_TRY(check_comm(comm));
    FLX_TRY(check_dtype(dtype));
    FLX_TRY(check_op(op));
    FLX_TRY(check_fits(op, dtype));
    return check_root(root, *comm->impl);
}

void fill(Call &call, Collective collective, const void *in, void *out, size_t count, flx_dtype_t dtype, flx_op_t op,
          int root) {
    Operation &operation = call.operation;
    operation.collective = collective;
    operation.in = in;
    operation.out = out;
    operation.count = count;
    operation.dtype = dtype;
    operation.op = op;
    operation.root = root;
}

/// Input and output of a call where both have `in_count` and `out_count` elements; in place, the input is at `own`.
Status check_pair(const void *&sendbuf, size_t in_count, void *recvbuf, size_t out_count, const void *own,
                  flx_dtype_t dtype) {
    FLX_TRY(check_buffer(recvbuf, "recvbuf", out_count));
    if (sendbuf == FLX_IN_PLACE || sendbuf == own) {
        sendbuf = own;
        return {};
    }
    FLX_TRY(check_buffer(sendbuf, "sendbuf", in_count));
    return check_overlap(sendbuf, in_count * size_of(dtype), recvbuf, out_count * size_of(dtype));
}

/// The blocks of a buffer: where they lie, and how long they are.
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
    ranges = {static_cast<const std::byte *>(buffer), counts, displacements, size, size_of(dtype)};
    for (int rank = 0; rank < size; ++rank) {
        if (counts[rank] == 0)
            continue;
        FLX_TRY(check_buffer(buffer, name, counts[rank]));
        FLX_TRY(check_part(counts[rank], dtype, "count", rank));
        FLX_TRY(check_part(displacements[rank], dtype, "displacement", rank));
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

Status need_arrays(const size_t *counts, const char *counts_name, const size_t *displacements,
                   const char *displs_name) {
    FLX_TRY(need(counts, counts_name));
    return need(displacements, displs_name);
}

Status sum_of(const size_t *counts, int size, flx_dtype_t dtype, size_t &sum) {
    sum = 0;
    for (int rank = 0; rank < size; ++rank) {
        FLX_TRY(check_part(counts[rank], dtype, "count", rank));
        sum += counts[rank];
        FLX_TRY(check_count(sum, dtype, 1));
    }
    return {};
}

}  // namespace

Status make_barrier(flx_comm_t comm, Call &call) {
    FLX_TRY(check_comm(comm));
    // Nobody reads what is added, so all barriers of a process may write there.
    static const uint8_t in = 0;
    static thread_local uint8_t out = 0;
    fill(call, Collective::barrier, &in, &out, 1, FLX_UINT8, FLX_MAX, 0);
    return {};
}

Status make_allreduce(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op, flx_comm_t comm,
                      Call &call) {
    FLX_TRY(check_common(comm, dtype, op, 0));
    FLX_TRY(check_count(count, dtype, 1));
    FLX_TRY(check_pair(sendbuf, count, recvbuf, count, recvbuf, dtype));
    fill(call, Collective::allreduce, sendbuf, recvbuf, count, dtype, op, 0);
    return {};
}

Status make_reduce(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op, int root,
                   flx_comm_t comm, Call &call) {
    FLX_TRY(check_common(comm, dtype, op, root));
    FLX_TRY(check_count(count, dtype, 1));
    if (comm->impl->rank() != root) {
        FLX_TRY(check_buffer(sendbuf, "sendbuf", count));
        recvbuf = nullptr;
    } else {
        FLX_TRY(check_pair(sendbuf, count, recvbuf, count, recvbuf, dtype));
    }
    fill(call, Collective::reduce, sendbuf, recvbuf, count, dtype, op, root);
    return {};
}

Status make_reduce_scatter_block(const void *sendbuf, void *recvbuf, size_t recvcount, flx_dtype_t dtype, flx_op_t op,
                                 flx_comm_t comm, Call &call) {
    FLX_TRY(check_common(comm, dtype, op, 0));
    FLX_TRY(check_count(recvcount, dtype, comm->impl->size()));
    const size_t count = recvcount * comm->impl->size();
    FLX_TRY(check_pair(sendbuf, count, recvbuf, recvcount, recvbuf, dtype));
    fill(call, Collective::reduce_scatter_block, sendbuf, recvbuf, count, dtype, op, 0);
    return {};
}

Status make_reduce_scatter(const void *sendbuf, void *recvbuf, const size_t *recvcounts, flx_dtype_t dtype, flx_op_t op,
                           flx_comm_t comm, Call &call) {
    FLX_TRY(check_common(comm, dtype, op, 0));
    FLX_TRY(need(recvcounts, "recvcounts"));
    const int size = comm->impl->size();
    size_t count = 0;
    FLX_TRY(sum_of(recvcounts, size, dtype, count));
    const size_t own = recvcounts[comm->impl->rank()];
    const bool in_place = sendbuf == FLX_IN_PLACE || sendbuf == recvbuf;
    FLX_TRY(check_pair(sendbuf, count, recvbuf, in_place ? count : own, recvbuf, dtype));
    const bool equal = std::all_of(recvcounts, recvcounts + size, [&](size_t each) { return each == own; });
    fill(call, equal ? Collective::reduce_scatter_block : Collective::reduce_scatter, sendbuf, recvbuf, count, dtype,
         op, 0);
    if (!equal)
        call.blocks.counts = recvcounts;
    return {};
}

Status make_bcast(void *buf, size_t count, flx_dtype_t dtype, int root, flx_comm_t comm, Call &call) {
    FLX_TRY(check_moved(comm, dtype, root));
    FLX_TRY(check_count(count, dtype, 1));
    FLX_TRY(check_buffer(buf, "buf", count));
    fill(call, Collective::bcast, buf, buf, count, dtype, FLX_SUM, root);
    return {};
}

Status make_allgather(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_comm_t comm,
                      Call &call) {
    FLX_TRY(check_moved(comm, dtype, 0));
    FLX_TRY(check_count(count, dtype, comm->impl->size()));
    const size_t total = count * comm->impl->size();
    const std::byte *own = static_cast<std::byte *>(recvbuf) + comm->impl->rank() * count * size_of(dtype);
    FLX_TRY(check_pair(sendbuf, count, recvbuf, total, own, dtype));
    fill(call, Collective::allgather, sendbuf, recvbuf, total, dtype, FLX_SUM, 0);
    return {};
}

Status make_allgatherv(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *recvcounts,
                       const size_t *displs, flx_dtype_t dtype, flx_comm_t comm, Call &call) {
    FLX_TRY(check_moved(comm, dtype, 0));
    FLX_TRY(need_arrays(recvcounts, "recvcounts", displs, "displs"));
    const int size = comm->impl->size();
    const int rank = comm->impl->rank();
    size_t total = 0;
    FLX_TRY(sum_of(recvcounts, size, dtype, total));
    Ranges to;
    FLX_TRY(check_ranges(recvbuf, "recvbuf", recvcounts, displs, size, dtype, to));
    const void *own = static_cast<std::byte *>(recvbuf) + displs[rank] * size_of(dtype);
    if (sendbuf == FLX_IN_PLACE || sendbuf == own) {
        sendbuf = own;
    } else {
        if (sendcount != recvcounts[rank])
            return fail(Fault::own_counts_differ,
                        "sendcount is {} and recvcounts[{}] is {}, both of rank {}; they must be equal", sendcount,
                        rank, recvcounts[rank], rank);
        FLX_TRY(check_buffer(sendbuf, "sendbuf", sendcount));
        const size_t zero = 0;
        FLX_TRY(check_apart({static_cast<const std::byte *>(sendbuf), &sendcount, &zero, 1, size_of(dtype), 0,
                             sendcount * size_of(dtype)},
                            to));
    }
    fill(call, Collective::allgatherv, sendbuf, recvbuf, total, dtype, FLX_SUM, 0);
    call.blocks = {recvcounts, displs};
    return {};
}

Status make_gather(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, int root, flx_comm_t comm,
                   Call &call) {
    FLX_TRY(check_moved(comm, dtype, root));
    FLX_TRY(check_count(count, dtype, comm->impl->size()));
    const size_t total = count * comm->impl->size();
    if (comm->impl->rank() != root) {
        FLX_TRY(check_buffer(sendbuf, "sendbuf", count));
        recvbuf = nullptr;
    } else {
        const std::byte *own = static_cast<std::byte *>(recvbuf) + root * count * size_of(dtype);
        FLX_TRY(check_pair(sendbuf, count, recvbuf, total, own, dtype));
    }
    fill(call, Collective::gather, sendbuf, recvbuf, total, dtype, FLX_SUM, root);
    return {};
}

Status make_gatherv(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *recvcounts,
                    const size_t *displs, flx_dtype_t dtype, int root, flx_comm_t comm, Call &call) {
    FLX_TRY(check_moved(comm, dtype, root));
    FLX_TRY(check_part(sendcount, dtype, "count", comm->impl->rank()));
    call.own = sendcount;
    if (comm->impl->rank() != root) {
        FLX_TRY(check_buffer(sendbuf, "sendbuf", sendcount));
        recvbuf = nullptr;
    } else {
        FLX_TRY(need_arrays(recvcounts, "recvcounts", displs, "displs"));
        Ranges to;
        FLX_TRY(check_ranges(recvbuf, "recvbuf", recvcounts, displs, comm->impl->size(), dtype, to));
        call.blocks = {recvcounts, displs};
        call.in_place = sendbuf == FLX_IN_PLACE || (sendbuf == to.first(root) && sendcount == recvcounts[root]);
        if (!call.in_place) {
            if (sendcount != recvcounts[root])
                return fail(Fault::own_counts_differ,
                            "sendcount is {} and recvcounts[{}] is {}, both of the root; they must be equal", sendcount,
                            root, recvcounts[root]);
            FLX_TRY(check_buffer(sendbuf, "sendbuf", sendcount));
            const size_t zero = 0;
            FLX_TRY(check_apart({static_cast<const std::byte *>(sendbuf), &sendcount, &zero, 1, size_of(dtype), 0,
                                 sendcount * size_of(dtype)},
                                to));
        }
    }
    fill(call, Collective::gatherv, sendbuf, recvbuf, 0, dtype, FLX_SUM, root);
    return {};
}

Status make_scatter(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, int root, flx_comm_t comm,
                    Call &call) {
    FLX_TRY(check_moved(comm, dtype, root));
    FLX_TRY(check_count(count, dtype, comm->impl->size()));
    const size_t total = count * comm->impl->size();
    if (comm->impl->rank() != root) {
        FLX_TRY(check_buffer(recvbuf, "recvbuf", count));
        sendbuf = nullptr;
    } else {
        FLX_TRY(check_buffer(sendbuf, "sendbuf", total));
        auto *own = const_cast<std::byte *>(static_cast<const std::byte *>(sendbuf)) + root * count * size_of(dtype);
        if (recvbuf == FLX_IN_PLACE || recvbuf == own) {
            recvbuf = own;
        } else {
            FLX_TRY(check_buffer(recvbuf, "recvbuf", count));
            FLX_TRY(check_overlap(sendbuf, total * size_of(dtype), recvbuf, count * size_of(dtype)));
        }
    }
    fill(call, Collective::scatter, sendbuf, recvbuf, total, dtype, FLX_SUM, root);
    return {};
}

Status make_scatterv(const void *sendbuf, const size_t *sendcounts, const size_t *displs, void *recvbuf,
                     size_t recvcount, flx_dtype_t dtype, int root, flx_comm_t comm, Call &call) {
    FLX_TRY(check_moved(comm, dtype, root));
    FLX_TRY(check_part(recvcount, dtype, "count", comm->impl->rank()));
    call.own = recvcount;
    if (comm->impl->rank() != root) {
        FLX_TRY(check_buffer(recvbuf, "recvbuf", recvcount));
        sendbuf = nullptr;
    } else {
        FLX_TRY(need_arrays(sendcounts, "sendcounts", displs, "displs"));
        Ranges from;
        FLX_TRY(check_ranges(sendbuf, "sendbuf", sendcounts, displs, comm->impl->size(), dtype, from));
        call.blocks = {sendcounts, displs};
        call.in_place = recvbuf == FLX_IN_PLACE || (recvbuf == from.first(root) && recvcount == sendcounts[root]);
        if (!call.in_place) {
            if (recvcount != sendcounts[root])
                return fail(Fault::own_counts_differ,
                            "recvcount is {} and sendcounts[{}] is {}, both of the root; they must be equal", recvcount,
                            root, sendcounts[root]);
            FLX_TRY(check_buffer(recvbuf, "recvbuf", recvcount));
            const size_t zero = 0;
            FLX_TRY(check_apart(from, {static_cast<const std::byte *>(recvbuf), &recvcount, &zero, 1, size_of(dtype), 0,
                                       recvcount * size_of(dtype)}));
        }
    }
    fill(call, Collective::scatterv, sendbuf, recvbuf, 0, dtype, FLX_SUM, root);
    return {};
}

Status make_alltoall(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_comm_t comm, Call &call) {
    FLX_TRY(check_moved(comm, dtype, 0));
    FLX_TRY(check_count(count, dtype, comm->impl->size()));
    const size_t total = count * comm->impl->size();
    FLX_TRY(check_pair(sendbuf, total, recvbuf, total, recvbuf, dtype));
    fill(call, Collective::alltoall, sendbuf, recvbuf, total, dtype, FLX_SUM, 0);
    return {};
}

Status make_alltoallv(const void *sendbuf, void *recvbuf, const size_t *sendcounts, const size_t *sdispls,
                      const size_t *recvcounts, const size_t *rdispls, flx_dtype_t dtype, flx_comm_t comm, Call &call) {
    FLX_TRY(check_moved(comm, dtype, 0));
    const int size = comm->impl->size();
    FLX_TRY(need_arrays(recvcounts, "recvcounts", rdispls, "rdispls"));
    Ranges to;
    FLX_TRY(check_ranges(recvbuf, "recvbuf", recvcounts, rdispls, size, dtype, to));
    call.in_place = sendbuf == FLX_IN_PLACE;
    call.blocks = {recvcounts, rdispls};
    if (!call.in_place) {
        FLX_TRY(need_arrays(sendcounts, "sendcounts", sdispls, "sdispls"));
        Ranges from;
        FLX_TRY(check_ranges(sendbuf, "sendbuf", sendcounts, sdispls, size, dtype, from));
        FLX_TRY(check_apart(from, to));
        const int rank = comm->impl->rank();
        if (sendcounts[rank] != recvcounts[rank])
            return fail(Fault::own_counts_differ,
                        "sendcounts[{0}] is {1} and recvcounts[{0}] is {2}, both of rank {0}; they must be equal", rank,
                        sendcounts[rank], recvcounts[rank]);
        call.sends = {sendcounts, sdispls};
    }
    fill(call, Collective::alltoallv, sendbuf, recvbuf, 0, dtype, FLX_SUM, 0);
    return {};
}

Status make_scan(bool exclusive, const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                 flx_comm_t comm, Call &call) {
    FLX_TRY(check_common(comm, dtype, op, 0));
    FLX_TRY(check_count(count, dtype, 1));
    if (op == FLX_AVG)
        return fail(Fault::op_not_for_dtype, "FLX_AVG is not a reduction of scans; FLX_SUM and the others are");
    // Nothing is written on rank 0 of an exclusive one, and any address may be given.
    if (exclusive && comm->impl->rank() == 0 && sendbuf != FLX_IN_PLACE)
        FLX_TRY(check_buffer(sendbuf, "sendbuf", count));
    else
        FLX_TRY(check_pair(sendbuf, count, recvbuf, count, recvbuf, dtype));
    fill(call, exclusive ? Collective::exscan : Collective::scan, sendbuf, recvbuf, count, dtype, op, 0);
    return {};
}

}  // namespace flx::api

using flx::Call;
using flx::Communicator;
using flx::Status;
using namespace flx::api;

namespace {

/// Hands the call to those who carry it out.
Status submit(flx_comm_t comm, const Call &call) {
    Communicator &impl = *comm->impl;
    const Communicator::Place place = impl.place_of(call);
    if (place == Communicator::Place::host)
        return impl.run(call);
    if (place == Communicator::Place::gpus)
        return impl.run_on_device(Communicator::on_gpus(call), nullptr, true);
    if (place == Communicator::Place::mail)
        return settled(comm).post_on_device(messages_of(call, impl.size()), nullptr, true, true);
    return impl.run_mirrored(call);
}

template <typename Make>
flx_status_t block(flx_comm_t comm, Make &&make) {
    return guarded([&]() -> Status {
        Call call;
        FLX_TRY(make(call));
        return submit(comm, call);
    });
}

}  // namespace

flx_status_t flx_barrier(flx_comm_t comm) {
    return block(comm, [&](Call &call) { return make_barrier(comm, call); });
}

flx_status_t flx_allreduce(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                           flx_comm_t comm) {
    return block(comm, [&](Call &call) { return make_allreduce(sendbuf, recvbuf, count, dtype, op, comm, call); });
}

flx_status_t flx_reduce(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op, int root,
                        flx_comm_t comm) {
    return block(comm, [&](Call &call) { return make_reduce(sendbuf, recvbuf, count, dtype, op, root, comm, call); });
}

flx_status_t flx_reduce_scatter_block(const void *sendbuf, void *recvbuf, size_t recvcount, flx_dtype_t dtype,
                                      flx_op_t op, flx_comm_t comm) {
    return block(comm, [&](Call &call) {
        return make_reduce_scatter_block(sendbuf, recvbuf, recvcount, dtype, op, comm, call);
    });
}

flx_status_t flx_reduce_scatter(const void *sendbuf, void *recvbuf, const size_t *recvcounts, flx_dtype_t dtype,
                                flx_op_t op, flx_comm_t comm) {
    return block(comm,
                 [&](Call &call) { return make_reduce_scatter(sendbuf, recvbuf, recvcounts, dtype, op, comm, call); });
}

flx_status_t flx_bcast(void *buf, size_t count, flx_dtype_t dtype, int root, flx_comm_t comm) {
    return block(comm, [&](Call &call) { return make_bcast(buf, count, dtype, root, comm, call); });
}

flx_status_t flx_allgather(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_comm_t comm) {
    return block(comm, [&](Call &call) { return make_allgather(sendbuf, recvbuf, count, dtype, comm, call); });
}

flx_status_t flx_allgatherv(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *recvcounts,
                            const size_t *displs, flx_dtype_t dtype, flx_comm_t comm) {
    return block(comm, [&](Call &call) {
        return make_allgatherv(sendbuf, sendcount, recvbuf, recvcounts, displs, dtype, comm, call);
    });
}

flx_status_t flx_gather(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, int root,
                        flx_comm_t comm) {
    return block(comm, [&](Call &call) { return make_gather(sendbuf, recvbuf, count, dtype, root, comm, call); });
}

flx_status_t flx_gatherv(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *recvcounts,
                         const size_t *displs, flx_dtype_t dtype, int root, flx_comm_t comm) {
    return block(comm, [&](Call &call) {
        return make_gatherv(sendbuf, sendcount, recvbuf, recvcounts, displs, dtype, root, comm, call);
    });
}

flx_status_t flx_scatter(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, int root,
                         flx_comm_t comm) {
    return block(comm, [&](Call &call) { return make_scatter(sendbuf, recvbuf, count, dtype, root, comm, call); });
}

flx_status_t flx_scatterv(const void *sendbuf, const size_t *sendcounts, const size_t *displs, void *recvbuf,
                          size_t recvcount, flx_dtype_t dtype, int root, flx_comm_t comm) {
    return block(comm, [&](Call &call) {
        return make_scatterv(sendbuf, sendcounts, displs, recvbuf, recvcount, dtype, root, comm, call);
    });
}

flx_status_t flx_alltoall(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_comm_t comm) {
    return block(comm, [&](Call &call) { return make_alltoall(sendbuf, recvbuf, count, dtype, comm, call); });
}

flx_status_t flx_alltoallv(const void *sendbuf, void *recvbuf, const size_t *sendcounts, const size_t *sdispls,
                           const size_t *recvcounts, const size_t *rdispls, flx_dtype_t dtype, flx_comm_t comm) {
    return block(comm, [&](Call &call) {
        return make_alltoallv(sendbuf, recvbuf, sendcounts, sdispls, recvcounts, rdispls, dtype, comm, call);
    });
}

flx_status_t flx_scan(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                      flx_comm_t comm) {
    return block(comm, [&](Call &call) { return make_scan(false, sendbuf, recvbuf, count, dtype, op, comm, call); });
}

flx_status_t flx_exscan(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                        flx_comm_t comm) {
    return block(comm, [&](Call &call) { return make_scan(true, sendbuf, recvbuf, count, dtype, op, comm, call); });
}
