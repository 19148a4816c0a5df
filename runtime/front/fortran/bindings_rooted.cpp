/// Collectives of module flx with a root or with uneven blocks.
#include <numeric>

#include "runtime/front/fortran/arrays.h"

namespace flx::fortran {
namespace {

struct Place {
    int rank = 0;
    int size = 1;
};
flx_status_t place_in(flx_comm_t comm, Place &place) {
    TRY(flx_comm_rank(comm, &place.rank));
    return flx_comm_size(comm, &place.size);
}

flx_status_t reduce(const Call &call, const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, int op, int root) {
    Place place;
    TRY(place_in(call.comm, place));
    Buffers buffers;
    Elements elements;
    if (place.rank == root) {
        TRY(buffers.take(call, sendbuf, recvbuf));
        TRY(buffers.check_equal());
    } else {
        TRY(buffers.take_input(call, sendbuf));
    }
    const Array &array = buffers.stay() ? buffers.receive : buffers.send;
    TRY(elements_of(array, op, elements));
    return buffers.receive.deliver(FORMS(reduce)(call, buffers.in, buffers.out, array.count() * elements.factor,
                                                 elements.dtype, static_cast<flx_op_t>(op), root));
}

flx_status_t reduce_scatter(const Call &call, const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf,
                            const CFI_cdesc_t *recvcounts, int op) {
    Place place;
    TRY(place_in(call.comm, place));
    Buffers buffers;
    Elements elements;
    TRY(buffers.take(call, sendbuf, recvbuf));
    TRY(elements_of(buffers.receive, op, elements));
    std::vector<size_t> counts;
    TRY(numbers_of(recvcounts, "recvcounts", place.size, elements.factor, counts));
    const size_t all = std::accumulate(counts.begin(), counts.end(), size_t{0}) / elements.factor;
    if (buffers.stay()) {
        TRY(check_size("recvbuf", buffers.receive.count(), "those of all blocks:", all));
    } else {
        TRY(check_size("sendbuf", buffers.send.count(), "those of all blocks:", all));
        TRY(check_size("recvbuf", buffers.receive.count(),
                       "those of this rank's block:", counts[place.rank] / elements.factor));
    }
    return buffers.receive.deliver(
        FORMS(reduce_scatter)(call, buffers.in, buffers.out, counts.data(), elements.dtype, static_cast<flx_op_t>(op)));
}

/// The blocks of recvbuf. What lies between them stays as it is.
flx_status_t take_gathered(const Call &call, const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf,
                           const CFI_cdesc_t *recvcounts, const CFI_cdesc_t *displs, const Place &place,
                           Buffers &buffers, Blocks &blocks) {
    TRY(buffers.take(call, sendbuf, recvbuf, true));
    TRY(blocks.take(recvcounts, "recvcounts", displs, "displs", buffers.receive, "recvbuf", place.size));
    if (buffers.stay())
        return FLX_SUCCESS;
    return check_size("sendbuf", buffers.send.count(),
                      "those of this rank's block:", blocks.counts[place.rank] / buffers.receive.element());
}

flx_status_t allgatherv(const Call &call, const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf,
                        const CFI_cdesc_t *recvcounts, const CFI_cdesc_t *displs) {
    Place place;
    TRY(place_in(call.comm, place));
    Buffers buffers;
    Blocks blocks;
    TRY(take_gathered(call, sendbuf, recvbuf, recvcounts, displs, place, buffers, blocks));
    return buffers.receive.deliver(FORMS(allgatherv)(call, buffers.in, buffers.send.bytes(), buffers.out,
                                                     blocks.counts.data(), blocks.displs.data(), FLX_UINT8));
}

flx_status_t gather(const Call &call, const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, int root) {
    Place place;
    TRY(place_in(call.comm, place));
    Buffers buffers;
    size_t bytes = 0;
    if (place.rank == root) {
        TRY(buffers.take(call, sendbuf, recvbuf));
        TRY(buffers.check_gathered(place.size));
        bytes = buffers.receive.bytes() / place.size;
    } else {
        TRY(buffers.take_input(call, sendbuf));
        bytes = buffers.send.bytes();
    }
    return buffers.receive.deliver(FORMS(gather)(call, buffers.in, buffers.out, bytes, FLX_UINT8, root));
}

flx_status_t gatherv(const Call &call, const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, const CFI_cdesc_t *recvcounts,
                     const CFI_cdesc_t *displs, int root) {
    Place place;
    TRY(place_in(call.comm, place));
    Buffers buffers;
    Blocks blocks;
    if (place.rank == root)
        TRY(take_gathered(call, sendbuf, recvbuf, recvcounts, displs, place, buffers, blocks));
    else
        TRY(buffers.take_input(call, sendbuf));
    return buffers.receive.deliver(FORMS(gatherv)(call, buffers.in, buffers.send.bytes(), buffers.out,
                                                  blocks.counts.data(), blocks.displs.data(), FLX_UINT8, root));
}

flx_status_t scatter(const Call &call, const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, int root) {
    Place place;
    TRY(place_in(call.comm, place));
    Buffers buffers;
    TRY(buffers.take_scattered(call, sendbuf, recvbuf, place.rank == root));
    size_t bytes = buffers.receive.bytes();
    if (place.rank == root) {
        TRY(multiple_of("sendbuf", buffers.send.count(), place.size));
        bytes = buffers.send.bytes() / place.size;
        if (buffers.out != FLX_IN_PLACE)
            TRY(check_size("sendbuf", buffers.send.count(),
                           "those of recvbuf for each rank:", buffers.receive.count() * place.size));
    }
    return buffers.receive.deliver(FORMS(scatter)(call, buffers.in, buffers.out, bytes, FLX_UINT8, root));
}

flx_status_t scatterv(const Call &call, const CFI_cdesc_t *sendbuf, const CFI_cdesc_t *sendcounts,
                      const CFI_cdesc_t *displs, CFI_cdesc_t *recvbuf, int root) {
    Place place;
    TRY(place_in(call.comm, place));
    Buffers buffers;
    Blocks blocks;
    TRY(buffers.take_scattered(call, sendbuf, recvbuf, place.rank == root));
    if (place.rank == root) {
        TRY(blocks.take(sendcounts, "sendcounts", displs, "displs", buffers.send, "sendbuf", place.size));
        if (buffers.out != FLX_IN_PLACE)
            TRY(check_size("recvbuf", buffers.receive.count(),
                           "those of this rank's block:", blocks.counts[place.rank] / buffers.send.element()));
    }
    return buffers.receive.deliver(FORMS(scatterv)(call, buffers.in, blocks.counts.data(), blocks.displs.data(),
                                                   buffers.out, buffers.receive.bytes(), FLX_UINT8, root));
}

flx_status_t alltoallv(const Call &call, const CFI_cdesc_t *sendbuf, const CFI_cdesc_t *sendcounts,
                       const CFI_cdesc_t *sdispls, CFI_cdesc_t *recvbuf, const CFI_cdesc_t *recvcounts,
                       const CFI_cdesc_t *rdispls) {
    int size = 1;
    TRY(flx_comm_size(call.comm, &size));
    Buffers buffers;
    Blocks out;
    Blocks in;
    TRY(buffers.take(call, sendbuf, recvbuf, true));  // what lies between the blocks stays as it is
    if (!buffers.stay())
        TRY(out.take(sendcounts, "sendcounts", sdispls, "sdispls", buffers.send, "sendbuf", size));
    TRY(in.take(recvcounts, "recvcounts", rdispls, "rdispls", buffers.receive, "recvbuf", size));
    return buffers.receive.deliver(FORMS(alltoallv)(call, buffers.in, buffers.out, out.counts.data(), out.displs.data(),
                                                    in.counts.data(), in.displs.data(), FLX_UINT8));
}

}  // namespace
}  // namespace flx::fortran

using namespace flx::fortran;

#pragma GCC visibility push(default)
extern "C" {

EXPORT_COLLECTIVE(reduce,
                  (const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, const int *op, const int *root,
                   const flx_comm_t *comm),
                  sendbuf, recvbuf, *op, *root)
EXPORT_COLLECTIVE(reduce_scatter,
                  (const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, const CFI_cdesc_t *recvcounts, const int *op,
                   const flx_comm_t *comm),
                  sendbuf, recvbuf, recvcounts, *op)
EXPORT_COLLECTIVE(allgatherv,
                  (const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, const CFI_cdesc_t *recvcounts,
                   const CFI_cdesc_t *displs, const flx_comm_t *comm),
                  sendbuf, recvbuf, recvcounts, displs)
EXPORT_COLLECTIVE(gather, (const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, const int *root, const flx_comm_t *comm),
                  sendbuf, recvbuf, *root)
EXPORT_COLLECTIVE(gatherv,
                  (const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, const CFI_cdesc_t *recvcounts,
                   const CFI_cdesc_t *displs, const int *root, const flx_comm_t *comm),
                  sendbuf, recvbuf, recvcounts, displs, *root)
EXPORT_COLLECTIVE(scatter, (const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, const int *root, const flx_comm_t *comm),
                  sendbuf, recvbuf, *root)
EXPORT_COLLECTIVE(scatterv,
                  (const CFI_cdesc_t *sendbuf, const CFI_cdesc_t *sendcounts, const CFI_cdesc_t *displs,
                   CFI_cdesc_t *recvbuf, const int *root, const flx_comm_t *comm),
                  sendbuf, sendcounts, displs, recvbuf, *root)
EXPORT_COLLECTIVE(alltoallv,
                  (const CFI_cdesc_t *sendbuf, const CFI_cdesc_t *sendcounts, const CFI_cdesc_t *sdispls,
                   CFI_cdesc_t *recvbuf, const CFI_cdesc_t *recvcounts, const CFI_cdesc_t *rdispls,
                   const flx_comm_t *comm),
                  sendbuf, sendcounts, sdispls, recvbuf, recvcounts, rdispls)

}  // extern "C"
#pragma GCC visibility pop
