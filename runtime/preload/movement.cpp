/// Collectives that move data: as bytes, from and to wherever each rank's datatypes say.
#include <algorithm>
#include <utility>
#include <vector>

#include "calls.h"
#include "staging.h"
#include "types.h"

namespace flx::preload {
namespace {

/// Whether this rank is the root, if there is one: `wrong` is what check_root() said.
bool is_root(int root, MPI_Comm comm, Reason wrong) {
    int rank = 0;
    if (wrong == Reason::none)
        PMPI_Comm_rank(comm, &rank);
    return wrong == Reason::none && rank == root;
}

constexpr flx_dtype_t kByte = FLX_UINT8;

/// One side of a call: `count` elements of `type`.
struct Side {
    bool valid = false;
    size_t count = 0;
    Layout layout;
    size_t bytes = 0;
};

Side side_of(int count, MPI_Datatype type) {
    Side side;
    side.valid = count >= 0 && layout_of(type, side.layout);
    if (side.valid) {
        side.count = static_cast<size_t>(count);
        side.bytes = side.count * side.layout.size;
    }
    return side;
}

/// What speaks against a call whose sides are as long as each other.
Reason objection_to(const Side &send, const Side &receive) {
    if (!send.valid || !receive.valid || send.bytes != receive.bytes)
        return Reason::invalid;
    return send.bytes == 0 ? Reason::empty : Reason::none;
}

Reason first_of(Reason a, Reason b) {
    return a != Reason::none ? a : b;
}

/// Blocks of one datatype, `counts[r]` elements at `displs[r]` extents.
bool blocks_of(const void *buffer, const int *counts, const int *displs, MPI_Datatype type, int size,
               std::vector<PackedBlocks::Block> &blocks) {
    Layout layout;
    if (counts == nullptr || displs == nullptr || !layout_of(type, layout))
        return false;
    auto *base = static_cast<std::byte *>(const_cast<void *>(buffer));
    blocks.resize(size);
    for (int rank = 0; rank < size; ++rank) {
        if (counts[rank] < 0)
            return false;
        blocks[rank] = {base + displs[rank] * layout.extent, static_cast<size_t>(counts[rank]), layout};
    }
    return true;
}

/// Blocks of a datatype each, at `displs[r]` bytes.
bool blocks_of(const void *buffer, const int *counts, const int *displs, const MPI_Datatype *types, int size,
               std::vector<PackedBlocks::Block> &blocks) {
    if (counts == nullptr || displs == nullptr || types == nullptr)
        return false;
    auto *base = static_cast<std::byte *>(const_cast<void *>(buffer));
    blocks.resize(size);
    for (int rank = 0; rank < size; ++rank) {
        Layout layout;
        if (counts[rank] < 0 || !layout_of(types[rank], layout))
            return false;
        blocks[rank] = {base + displs[rank], static_cast<size_t>(counts[rank]), layout};
    }
    return true;
}

size_t bytes_of(const std::vector<PackedBlocks::Block> &blocks) {
    size_t bytes = 0;
    for (const auto &block : blocks)
        bytes += block.count * block.layout.size;
    return bytes;
}

/// Element `index` of a buffer of `layout`.
std::byte *element(const void *buffer, size_t index, const Layout &layout) {
    return static_cast<std::byte *>(const_cast<void *>(buffer)) + static_cast<MPI_Aint>(index) * layout.extent;
}

#define MPI_TRY(expression)                                             \
    do {                                                                \
        if (const int mpi_try_ = (expression); mpi_try_ != MPI_SUCCESS) \
            return mpi_try_;                                            \
    } while (false)

}  // namespace

int bcast(const How &how, void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    const Side side = side_of(count, type);
    Call call(how, Collective::bcast, comm, side.bytes, first_of(check_root(root, comm), objection_to(side, side)));
    if (!call.served())
        return pass_on(how, FLX_MPI_FORMS(Bcast, bcast), buffer, count, type, root, comm);
    const bool at_root = call.rank() == root;
    Packed &packed = at_root ? call.staging().in : call.staging().out;
    MPI_TRY(packed.take(buffer, side.count, side.layout, at_root, comm));
    return call.carry_out(FLX_FORMS(bcast), packed.data(), side.bytes, kByte, root, call.flx());
}

int allgather(const How &how, const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
              MPI_Datatype recvtype, MPI_Comm comm) {
    const bool in_place = sendbuf == MPI_IN_PLACE;
    const Side receive = side_of(recvcount, recvtype);
    const Side send = in_place ? receive : side_of(sendcount, sendtype);
    const size_t size = size_of(comm);
    Call call(how, Collective::allgather, comm, receive.bytes * size, objection_to(send, receive));
    if (!call.served())
        return pass_on(how, FLX_MPI_FORMS(Allgather, allgather), sendbuf, sendcount, sendtype, recvbuf, recvcount,
                       recvtype, comm);
    Packed &in = call.staging().in;
    Packed &out = call.staging().out;
    MPI_TRY(out.take(recvbuf, receive.count * size, receive.layout, false, comm));
    if (in_place) {
        MPI_TRY(in.take(element(recvbuf, call.rank() * receive.count, receive.layout), receive.count, receive.layout,
                        true, comm));
    } else {
        MPI_TRY(in.take(sendbuf, send.count, send.layout, true, comm));
    }
    const bool own = in.data() == static_cast<std::byte *>(out.data()) + call.rank() * send.bytes;
    if (!own)
        MPI_TRY(in.keep_apart(out.data(), receive.bytes * size));
    return call.carry_out(FLX_FORMS(allgather), own ? FLX_IN_PLACE : in.data(), out.data(), send.bytes, kByte,
                          call.flx());
}

int allgatherv(const How &how, const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
               const int *recvcounts, const int *displs, MPI_Datatype recvtype, MPI_Comm comm) {
    const int size = size_of(comm);
    const bool in_place = sendbuf == MPI_IN_PLACE;
    std::vector<PackedBlocks::Block> blocks;
    const bool valid = blocks_of(recvbuf, recvcounts, displs, recvtype, size, blocks);
    const size_t bytes = bytes_of(blocks);
    Side send;
    Reason objection = Reason::none;
    if (!in_place)
        send = side_of(sendcount, sendtype);
    if (!valid || (!in_place && !send.valid))
        objection = Reason::invalid;
    else if (bytes == 0)
        objection = Reason::empty;
    Call call(how, Collective::allgatherv, comm, bytes, objection);
    if (!call.served())
        return pass_on(how, FLX_MPI_FORMS(Allgatherv, allgatherv), sendbuf, sendcount, sendtype, recvbuf, recvcounts,
                       displs, recvtype, comm);
    size_t *counts = call.numbers(2);
    size_t *begins = counts + size;
    Packed &in = call.staging().in;
    PackedBlocks &out = call.staging().blocks_out;
    const PackedBlocks::Block own_block = blocks[call.rank()];
    MPI_TRY(out.take(std::move(blocks), false, counts, begins, comm));
    if (in_place) {
        MPI_TRY(in.take(own_block.begin, own_block.count, own_block.layout, true, comm));
    } else {
        MPI_TRY(in.take(sendbuf, send.count, send.layout, true, comm));
    }
    const bool own = in_place && in.data() == static_cast<std::byte *>(out.data()) + begins[call.rank()];
    return call.carry_out(FLX_FORMS(allgatherv), own ? FLX_IN_PLACE : in.data(),
                          in_place ? counts[call.rank()] : send.bytes, out.data(), counts, begins, kByte, call.flx());
}

int gather(const How &how, const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
           MPI_Datatype recvtype, int root, MPI_Comm comm) {
    const Reason wrong_root = check_root(root, comm);
    const bool at_root = is_root(root, comm, wrong_root);
    const bool in_place = at_root && sendbuf == MPI_IN_PLACE;
    const Side receive = at_root ? side_of(recvcount, recvtype) : Side{};
    const Side send = in_place ? receive : side_of(sendcount, sendtype);
    const size_t size = size_of(comm);
    const Reason objection = first_of(wrong_root, objection_to(send, at_root ? receive : send));
    Call call(how, Collective::gather, comm, at_root ? receive.bytes * size : send.bytes, objection);
    if (!call.served())
        return pass_on(how, FLX_MPI_FORMS(Gather, gather), sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,
                       root, comm);
    Packed &in = call.staging().in;
    Packed &out = call.staging().out;
    if (at_root)
        MPI_TRY(out.take(recvbuf, receive.count * size, receive.layout, false, comm));
    if (in_place) {
        MPI_TRY(
            in.take(element(recvbuf, root * receive.count, receive.layout), receive.count, receive.layout, true, comm));
    } else {
        MPI_TRY(in.take(sendbuf, send.count, send.layout, true, comm));
    }
    const bool own = in_place && in.data() == static_cast<std::byte *>(out.data()) + root * send.bytes;
    return call.carry_out(FLX_FORMS(gather), own ? FLX_IN_PLACE : in.data(), out.data(), send.bytes, kByte, root,
                          call.flx());
}

int gatherv(const How &how, const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
            const int *recvcounts, const int *displs, MPI_Datatype recvtype, int root, MPI_Comm comm) {
    const Reason wrong_root = check_root(root, comm);
    const int size = size_of(comm);
    const bool at_root = is_root(root, comm, wrong_root);
    const bool in_place = at_root && sendbuf == MPI_IN_PLACE;
    std::vector<PackedBlocks::Block> blocks;
    bool valid = !at_root || blocks_of(recvbuf, recvcounts, displs, recvtype, size, blocks);
    Side send;
    if (!in_place) {
        send = side_of(sendcount, sendtype);
        valid = valid && send.valid;
    }
    // Who sends nothing does not know whether others do: no call is too small.
    const Reason objection = first_of(wrong_root, valid ? Reason::none : Reason::invalid);
    Call call(how, Collective::gatherv, comm, at_root ? bytes_of(blocks) : send.bytes, objection);
    if (!call.served())
        return pass_on(how, FLX_MPI_FORMS(Gatherv, gatherv), sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs,
                       recvtype, root, comm);
    Packed &in = call.staging().in;
    PackedBlocks &out = call.staging().blocks_out;
    PackedBlocks::Block own_block;
    size_t *counts = nullptr;
    size_t *begins = nullptr;
    if (at_root) {
        counts = call.numbers(2);
        begins = counts + size;
        own_block = blocks[root];
        MPI_TRY(out.take(std::move(blocks), false, counts, begins, comm));
    }
    size_t mine = send.bytes;
    if (in_place) {
        mine = counts[root];
        MPI_TRY(in.take(own_block.begin, own_block.count, own_block.layout, true, comm));
    } else {
        MPI_TRY(in.take(sendbuf, send.count, send.layout, true, comm));
    }
    const bool own = in_place && in.data() == static_cast<std::byte *>(out.data()) + begins[root];
    return call.carry_out(FLX_FORMS(gatherv), own ? FLX_IN_PLACE : in.data(), mine, out.data(), counts, begins, kByte,
                          root, call.flx());
}

int scatter(const How &how, const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
            MPI_Datatype recvtype, int root, MPI_Comm comm) {
    const Reason wrong_root = check_root(root, comm);
    const bool at_root = is_root(root, comm, wrong_root);
    const bool in_place = at_root && recvbuf == MPI_IN_PLACE;
    const Side send = at_root ? side_of(sendcount, sendtype) : Side{};
    const Side receive = in_place ? send : side_of(recvcount, recvtype);
    const size_t size = size_of(comm);
    const Reason objection = first_of(wrong_root, objection_to(receive, at_root ? send : receive));
    Call call(how, Collective::scatter, comm, at_root ? send.bytes * size : receive.bytes, objection);
    if (!call.served())
        return pass_on(how, FLX_MPI_FORMS(Scatter, scatter), sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,
                       root, comm);
    Packed &in = call.staging().in;
    Packed &out = call.staging().out;
    if (at_root)
        MPI_TRY(in.take(sendbuf, send.count * size, send.layout, true, comm));
    if (!in_place)
        MPI_TRY(out.take(recvbuf, receive.count, receive.layout, false, comm));
    return call.carry_out(FLX_FORMS(scatter), in.data(), in_place ? FLX_IN_PLACE : out.data(), receive.bytes, kByte,
                          root, call.flx());
}

int scatterv(const How &how, const void *sendbuf, const int *sendcounts, const int *displs, MPI_Datatype sendtype,
             void *recvbuf, int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm) {
    const Reason wrong_root = check_root(root, comm);
    const int size = size_of(comm);
    const bool at_root = is_root(root, comm, wrong_root);
    const bool in_place = at_root && recvbuf == MPI_IN_PLACE;
    std::vector<PackedBlocks::Block> blocks;
    bool valid = !at_root || blocks_of(sendbuf, sendcounts, displs, sendtype, size, blocks);
    Side receive;
    if (!in_place) {
        receive = side_of(recvcount, recvtype);
        valid = valid && receive.valid;
    }
    const Reason objection = first_of(wrong_root, valid ? Reason::none : Reason::invalid);
    Call call(how, Collective::scatterv, comm, at_root ? bytes_of(blocks) : receive.bytes, objection);
    if (!call.served())
        return pass_on(how, FLX_MPI_FORMS(Scatterv, scatterv), sendbuf, sendcounts, displs, sendtype, recvbuf,
                       recvcount, recvtype, root, comm);
    PackedBlocks &in = call.staging().blocks_in;
    Packed &out = call.staging().out;
    size_t *counts = nullptr;
    size_t *begins = nullptr;
    if (at_root) {
        counts = call.numbers(2);
        begins = counts + size;
        MPI_TRY(in.take(std::move(blocks), true, counts, begins, comm));
    }
    if (!in_place)
        MPI_TRY(out.take(recvbuf, receive.count, receive.layout, false, comm));
    return call.carry_out(FLX_FORMS(scatterv), in.data(), counts, begins, in_place ? FLX_IN_PLACE : out.data(),
                          in_place ? counts[root] : receive.bytes, kByte, root, call.flx());
}

int alltoall(const How &how, const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
             MPI_Datatype recvtype, MPI_Comm comm) {
    const bool in_place = sendbuf == MPI_IN_PLACE;
    const Side receive = side_of(recvcount, recvtype);
    const Side send = in_place ? receive : side_of(sendcount, sendtype);
    const size_t size = size_of(comm);
    Call call(how, Collective::alltoall, comm, receive.bytes * size, objection_to(send, receive));
    if (!call.served())
        return pass_on(how, FLX_MPI_FORMS(Alltoall, alltoall), sendbuf, sendcount, sendtype, recvbuf, recvcount,
                       recvtype, comm);
    Packed &in = call.staging().in;
    Packed &out = call.staging().out;
    MPI_TRY(out.take(recvbuf, receive.count * size, receive.layout, in_place, comm));
    if (!in_place) {
        MPI_TRY(in.take(sendbuf, send.count * size, send.layout, true, comm));
        MPI_TRY(in.keep_apart(out.data(), receive.bytes * size));
    }
    return call.carry_out(FLX_FORMS(alltoall), in_place ? FLX_IN_PLACE : in.data(), out.data(), send.bytes, kByte,
                          call.flx());
}

namespace {

/// alltoallv and alltoallw, once their blocks are known. Who sends and receives nothing does not know whether others
/// do.
int exchange(Call &call, bool in_place, std::vector<PackedBlocks::Block> from, std::vector<PackedBlocks::Block> to,
             MPI_Comm comm) {
    const int size = call.size();
    size_t *sendcounts = call.numbers(4);
    size_t *sdispls = sendcounts + size;
    size_t *recvcounts = sdispls + size;
    size_t *rdispls = recvcounts + size;
    PackedBlocks &in = call.staging().blocks_in;
    PackedBlocks &out = call.staging().blocks_out;
    MPI_TRY(out.take(std::move(to), in_place, recvcounts, rdispls, comm));
    if (!in_place)
        MPI_TRY(in.take(std::move(from), true, sendcounts, sdispls, comm));
    return call.carry_out(FLX_FORMS(alltoallv), in_place ? FLX_IN_PLACE : in.data(), out.data(), sendcounts, sdispls,
                          recvcounts, rdispls, kByte, call.flx());
}

}  // namespace

int alltoallv(const How &how, const void *sendbuf, const int *sendcounts, const int *sdispls, MPI_Datatype sendtype,
              void *recvbuf, const int *recvcounts, const int *rdispls, MPI_Datatype recvtype, MPI_Comm comm) {
    const bool in_place = sendbuf == MPI_IN_PLACE;
    const int size = size_of(comm);
    std::vector<PackedBlocks::Block> from;
    std::vector<PackedBlocks::Block> to;
    const bool valid = blocks_of(recvbuf, recvcounts, rdispls, recvtype, size, to) &&
                       (in_place || blocks_of(sendbuf, sendcounts, sdispls, sendtype, size, from));
    Call call(how, Collective::alltoallv, comm, std::max(bytes_of(from), bytes_of(to)),
              valid ? Reason::none : Reason::invalid);
    if (!call.served())
        return pass_on(how, FLX_MPI_FORMS(Alltoallv, alltoallv), sendbuf, sendcounts, sdispls, sendtype, recvbuf,
                       recvcounts, rdispls, recvtype, comm);
    return exchange(call, in_place, std::move(from), std::move(to), comm);
}

int alltoallw(const How &how, const void *sendbuf, const int *sendcounts, const int *sdispls,
              const MPI_Datatype *sendtypes, void *recvbuf, const int *recvcounts, const int *rdispls,
              const MPI_Datatype *recvtypes, MPI_Comm comm) {
    const bool in_place = sendbuf == MPI_IN_PLACE;
    const int size = size_of(comm);
    std::vector<PackedBlocks::Block> from;
    std::vector<PackedBlocks::Block> to;
    const bool valid = blocks_of(recvbuf, recvcounts, rdispls, recvtypes, size, to) &&
                       (in_place || blocks_of(sendbuf, sendcounts, sdispls, sendtypes, size, from));
    Call call(how, Collective::alltoallw, comm, std::max(bytes_of(from), bytes_of(to)),
              valid ? Reason::none : Reason::invalid);
    if (!call.served())
        return pass_on(how, FLX_MPI_FORMS(Alltoallw, alltoallw), sendbuf, sendcounts, sdispls, sendtypes, recvbuf,
                       recvcounts, rdispls, recvtypes, comm);
    return exchange(call, in_place, std::move(from), std::move(to), comm);
}

}  // namespace flx::preload
