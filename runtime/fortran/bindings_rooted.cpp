/// Collectives of module flx with a root, with uneven blocks, and scans.
#include <numeric>

#include "arrays.h"

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

using Scan = flx_status_t (*)(const void *, void *, size_t, flx_dtype_t, flx_op_t, flx_comm_t);
flx_status_t scan_by(Scan scan, const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, int op, flx_comm_t comm) {
    Array send;
    Array receive;
    Elements elements;
    const void *data = nullptr;
    // The first rank's is not written by an exscan.
    TRY(receive.take(recvbuf, "recvbuf", true, comm));
    TRY(take_input(sendbuf, receive, comm, send, data));
    if (data != FLX_IN_PLACE)
        TRY(check_size("sendbuf", send.count(), "as many as in recvbuf:", receive.count()));
    TRY(elements_of(receive, op, elements));
    return receive.deliver(
        scan(data, receive.data(), receive.count() * elements.factor, elements.dtype, static_cast<flx_op_t>(op), comm));
}

}  // namespace
}  // namespace flx::fortran

using namespace flx::fortran;

#pragma GCC visibility push(default)
extern "C" {

flx_status_t flx_fortran_scan(const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, int op, flx_comm_t comm) {
    return guarded([&] { return scan_by(flx_scan, sendbuf, recvbuf, op, comm); });
}

flx_status_t flx_fortran_exscan(const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, int op, flx_comm_t comm) {
    return guarded([&] { return scan_by(flx_exscan, sendbuf, recvbuf, op, comm); });
}

flx_status_t flx_fortran_reduce_scatter(const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, const CFI_cdesc_t *recvcounts,
                                        int op, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        Place place;
        TRY(place_in(comm, place));
        Array send;
        Array receive;
        Elements elements;
        const void *data = nullptr;
        TRY(receive.take(recvbuf, "recvbuf", in_place(sendbuf), comm));
        TRY(take_input(sendbuf, receive, comm, send, data));
        TRY(elements_of(receive, op, elements));
        std::vector<size_t> counts;
        TRY(numbers_of(recvcounts, "recvcounts", place.size, elements.factor, counts));
        const size_t all = std::accumulate(counts.begin(), counts.end(), size_t{0}) / elements.factor;
        if (data == FLX_IN_PLACE) {
            TRY(check_size("recvbuf", receive.count(), "those of all blocks:", all));
        } else {
            TRY(check_size("sendbuf", send.count(), "those of all blocks:", all));
            TRY(check_size("recvbuf", receive.count(),
                           "those of this rank's block:", counts[place.rank] / elements.factor));
        }
        return receive.deliver(
            flx_reduce_scatter(data, receive.data(), counts.data(), elements.dtype, static_cast<flx_op_t>(op), comm));
    });
}

flx_status_t flx_fortran_allgatherv(const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, const CFI_cdesc_t *recvcounts,
                                    const CFI_cdesc_t *displs, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        Place place;
        TRY(place_in(comm, place));
        Array send;
        Array receive;
        const void *data = nullptr;
        TRY(receive.take(recvbuf, "recvbuf", true, comm));  // what lies between the blocks stays as it is
        TRY(take_input(sendbuf, receive, comm, send, data));
        Blocks blocks;
        TRY(blocks.take(recvcounts, "recvcounts", displs, "displs", receive, "recvbuf", place.size));
        if (data != FLX_IN_PLACE)
            TRY(check_size("sendbuf", send.count(),
                           "those of this rank's block:", blocks.counts[place.rank] / receive.element()));
        return receive.deliver(flx_allgatherv(data, send.bytes(), receive.data(), blocks.counts.data(),
                                              blocks.displs.data(), FLX_UINT8, comm));
    });
}

flx_status_t flx_fortran_gather(const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, int root, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        Place place;
        TRY(place_in(comm, place));
        Array send;
        Array receive;
        const void *data = nullptr;
        if (place.rank != root) {
            TRY(not_in_place(sendbuf, "sendbuf"));
            TRY(send.take(sendbuf, "sendbuf", true, comm));
            return flx_gather(send.data(), nullptr, send.bytes(), FLX_UINT8, root, comm);
        }
        TRY(receive.take(recvbuf, "recvbuf", in_place(sendbuf), comm));
        TRY(take_input(sendbuf, receive, comm, send, data));
        if (data == FLX_IN_PLACE)
            TRY(multiple_of("recvbuf", receive.count(), place.size));
        else
            TRY(check_size("recvbuf", receive.count(), "those of sendbuf from each rank:", send.count() * place.size));
        return receive.deliver(flx_gather(data, receive.data(), receive.bytes() / place.size, FLX_UINT8, root, comm));
    });
}

flx_status_t flx_fortran_gatherv(const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, const CFI_cdesc_t *recvcounts,
                                 const CFI_cdesc_t *displs, int root, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        Place place;
        TRY(place_in(comm, place));
        Array send;
        Array receive;
        const void *data = nullptr;
        if (place.rank != root) {
            TRY(not_in_place(sendbuf, "sendbuf"));
            TRY(send.take(sendbuf, "sendbuf", true, comm));
            return flx_gatherv(send.data(), send.bytes(), nullptr, nullptr, nullptr, FLX_UINT8, root, comm);
        }
        TRY(receive.take(recvbuf, "recvbuf", true, comm));
        TRY(take_input(sendbuf, receive, comm, send, data));
        Blocks blocks;
        TRY(blocks.take(recvcounts, "recvcounts", displs, "displs", receive, "recvbuf", place.size));
        if (data != FLX_IN_PLACE)
            TRY(check_size("sendbuf", send.count(),
                           "those of this rank's block:", blocks.counts[place.rank] / receive.element()));
        return receive.deliver(flx_gatherv(data, send.bytes(), receive.data(), blocks.counts.data(),
                                           blocks.displs.data(), FLX_UINT8, root, comm));
    });
}

flx_status_t flx_fortran_scatter(const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, int root, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        Place place;
        TRY(place_in(comm, place));
        Array send;
        Array receive;
        const bool stays = in_place(recvbuf);
        if (place.rank != root)
            TRY(not_in_place(recvbuf, "recvbuf"));
        if (!stays)
            TRY(receive.take(recvbuf, "recvbuf", false, comm));
        if (place.rank != root)
            return receive.deliver(flx_scatter(nullptr, receive.data(), receive.bytes(), FLX_UINT8, root, comm));
        TRY(send.take(sendbuf, "sendbuf", true, comm));
        TRY(multiple_of("sendbuf", send.count(), place.size));
        if (!stays) {
            TRY(check_alike(send, receive));
            TRY(check_size("sendbuf", send.count(), "those of recvbuf for each rank:", receive.count() * place.size));
        }
        return receive.deliver(flx_scatter(send.data(), stays ? FLX_IN_PLACE : receive.data(),
                                           send.bytes() / place.size, FLX_UINT8, root, comm));
    });
}

flx_status_t flx_fortran_scatterv(const CFI_cdesc_t *sendbuf, const CFI_cdesc_t *sendcounts, const CFI_cdesc_t *displs,
                                  CFI_cdesc_t *recvbuf, int root, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        Place place;
        TRY(place_in(comm, place));
        Array send;
        Array receive;
        const bool stays = in_place(recvbuf);
        if (place.rank != root)
            TRY(not_in_place(recvbuf, "recvbuf"));
        if (!stays)
            TRY(receive.take(recvbuf, "recvbuf", false, comm));
        void *const data = stays ? FLX_IN_PLACE : receive.data();
        if (place.rank != root)
            return receive.deliver(
                flx_scatterv(nullptr, nullptr, nullptr, receive.data(), receive.bytes(), FLX_UINT8, root, comm));
        TRY(send.take(sendbuf, "sendbuf", true, comm));
        Blocks blocks;
        TRY(blocks.take(sendcounts, "sendcounts", displs, "displs", send, "sendbuf", place.size));
        if (!stays) {
            TRY(check_alike(send, receive));
            TRY(check_size("recvbuf", receive.count(),
                           "those of this rank's block:", blocks.counts[place.rank] / send.element()));
        }
        return receive.deliver(flx_scatterv(send.data(), blocks.counts.data(), blocks.displs.data(), data,
                                            receive.bytes(), FLX_UINT8, root, comm));
    });
}

}  // extern "C"
#pragma GCC visibility pop
