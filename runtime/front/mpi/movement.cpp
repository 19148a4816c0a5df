/// Collectives that move data: as bytes, from and to wherever each rank's datatypes say.
#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "runtime/front/mpi/arguments/staging.h"
#include "runtime/front/mpi/arguments/types.h"
#include "runtime/front/mpi/calls.h"

namespace flx::preload {
namespace {

int rank_in(MPI_Comm comm) {
    int rank = 0;
    PMPI_Comm_rank(comm, &rank);
    return rank;
}

/// Whether this rank is the root, if there is one: `wrong` is what check_root() said.
bool is_root(int root, MPI_Comm comm, const Objection &wrong) {
    return wrong.why == Reason::none && rank_in(comm) == root;
}

constexpr flx_dtype_t kByte = FLX_UINT8;

/// One side of a call: `count` elements of `type`.
struct Side {
    int error = MPI_SUCCESS;  ///< what MPI says of them
    size_t count = 0;
    Layout layout;
    size_t bytes = 0;
};

Side side_of(MPI_Count count, MPI_Datatype type) {
    Side side;
    if (count < 0)
        side.error = MPI_ERR_COUNT;
    else if (!layout_of(type, side.layout))
        side.error = MPI_ERR_TYPE;
    if (side.error != MPI_SUCCESS)
        return side;
    side.count = static_cast<size_t>(count);
    side.bytes = side.count * side.layout.size;
    return side;
}

/// The first that is an error.
int first_of(std::initializer_list<int> errors) {
    const auto *found = std::find_if(errors.begin(), errors.end(), [](int error) { return error != MPI_SUCCESS; });
    return found != errors.end() ? *found : MPI_SUCCESS;
}

/// A buffer that MPI does not let be MPI_IN_PLACE, or not on this rank.
int not_in_place(const void *buffer) {
    return buffer == MPI_IN_PLACE ? kInPlaceError : MPI_SUCCESS;
}

/// What speaks against a call whose root is as `root` says, has this `error` and no data at all if `empty`.
Objection objection_to(const Objection &root, int error, bool empty) {
    if (root.why != Reason::none)
        return root;
    Objection objection = wrong(error);
    if (error == MPI_SUCCESS && empty)
        objection.why = Reason::empty;
    objection.root = root.root;
    return objection;
}

/// Blocks of one datatype, `counts[r]` elements at `displs[r]` extents. MPI_SUCCESS, or what MPI says of them.
int blocks_of(const void *buffer, Numbers counts, Numbers displs, MPI_Datatype type, int size,
              std::vector<PackedBlocks::Block> &blocks) {
    Layout layout;
    if (displs == nullptr)
        return MPI_ERR_ARG;
    if (counts == nullptr)
        return MPI_ERR_COUNT;
    if (!layout_of(type, layout))
        return MPI_ERR_TYPE;
    auto *base = static_cast<std::byte *>(const_cast<void *>(buffer));
    blocks.resize(size);
    for (int rank = 0; rank < size; ++rank) {
        if (counts[rank] < 0)
            return MPI_ERR_COUNT;
        blocks[rank] = {base + displs[rank] * layout.extent, static_cast<size_t>(counts[rank]), layout};
    }
    return MPI_SUCCESS;
}

/// Blocks of a datatype each, at `displs[r]` bytes.
int blocks_of(const void *buffer, Numbers counts, Numbers displs, const MPI_Datatype *types, int size,
              std::vector<PackedBlocks::Block> &blocks) {
    auto *base = static_cast<std::byte *>(const_cast<void *>(buffer));
    blocks.resize(size);
    Layout layout;
    MPI_Datatype known = MPI_DATATYPE_NULL;  // types repeat, and to ask MPI takes longer than to send a short message
    for (int rank = 0; rank < size; ++rank) {
        if (counts[rank] < 0)
            return MPI_ERR_COUNT;
        if (known == MPI_DATATYPE_NULL || types[rank] != known) {
            if (!layout_of(types[rank], layout))
                return MPI_ERR_TYPE;
            known = types[rank];
        }
        blocks[rank] = {base + displs[rank], static_cast<size_t>(counts[rank]), layout};
    }
    return MPI_SUCCESS;
}

size_t bytes_of(const std::vector<PackedBlocks::Block> &blocks) {
    size_t bytes = 0;
    for (const auto &block : blocks)
        bytes += block.bytes();
    return bytes;
}

/// Element `index` of a buffer of `layout`.
std::byte *element(const void *buffer, size_t index, const Layout &layout) {
    return static_cast<std::byte *>(const_cast<void *>(buffer)) + static_cast<MPI_Aint>(index) * layout.extent;
}

/// What lies in `count` elements of `buffer`, as FLX or MPI sees it.
Span span_of(const void *data, size_t bytes) {
    return {static_cast<const std::byte *>(data), bytes};
}

/// A rank's own block, of which it gives fewer bytes than it takes, as MPI lets it: brought here, and the call is in
/// place. MPI_SUCCESS or an error.
int bring_own(const void *from, const Side &send, const PackedBlocks::Block &to, MPI_Comm comm) {
    if (send.bytes == 0)  // a part of an allgatherv or a gatherv
        return MPI_SUCCESS;
    if (send.bytes % to.layout.size != 0) {
        PMPI_Comm_call_errhandler(comm, MPI_ERR_TRUNCATE);
        return MPI_ERR_TRUNCATE;
    }
    Aside aside;
    if (!aside.make(send.bytes)) {
        PMPI_Comm_call_errhandler(comm, MPI_ERR_NO_MEM);
        return MPI_ERR_NO_MEM;
    }
    const int code = pack(from, send.count, send.layout, aside.data(), comm);
    return code != MPI_SUCCESS ? code : unpack(aside.data(), to.begin, send.bytes / to.layout.size, to.layout, comm);
}

#define MPI_TRY(expression)                                             \
    do {                                                                \
        if (const int mpi_try_ = (expression); mpi_try_ != MPI_SUCCESS) \
            return mpi_try_;                                            \
    } while (false)

}  // namespace

int bcast(const How &how, void *buffer, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {
    const Side side = side_of(count, type);
    const Objection wrong_root = check_root(root, comm);
    const bool at_root = is_root(root, comm, wrong_root);
    const auto describe = [&](Whereabouts &where) {
        where.fits_gpus = true;
        if (at_root)
            where.sends(buffer, count, type);
        else
            where.receives(buffer, count, type, 1, true);
    };
    Call call(how, Collective::bcast, comm, side.bytes,
              objection_to(wrong_root, first_of({side.error, not_in_place(buffer)}), side.bytes == 0), describe);
    buffer = at_root ? call.sent(buffer) : call.received(buffer);
    if (!call.served())
        return call.pass_on(FLX_MPI_FORMS(Bcast, bcast), buffer, count, type, root, comm);
    Packed &packed = at_root ? call.staging().in : call.staging().out;
    MPI_TRY(packed.take(buffer, side.count, side.layout, at_root, comm));
    const void *nothing = FLX_IN_PLACE;
    void *data = packed.data();
    MPI_TRY(call.lift(nothing, 0, data, side.bytes, at_root, !at_root));
    return call.carry_out(FLX_FORMS(bcast), data, side.bytes, kByte, root, call.flx());
}

int allgather(const How &how, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
              MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm) {
    bool in_place = sendbuf == MPI_IN_PLACE;
    const Side receive = side_of(recvcount, recvtype);
    const Side send = in_place ? receive : side_of(sendcount, sendtype);
    const size_t size = size_of(comm);
    // Open MPI does nothing where either is empty.
    const bool empty = send.bytes == 0 || receive.bytes == 0;
    const int error = first_of({receive.error, not_in_place(recvbuf), send.error,
                                !empty && send.bytes > receive.bytes ? MPI_ERR_TRUNCATE : MPI_SUCCESS});
    const auto describe = [&](Whereabouts &where) {
        where.fits_gpus = true;
        where.rearranged = send.bytes != receive.bytes;
        where.sends(sendbuf, sendcount, sendtype);
        where.receives(recvbuf, recvcount, recvtype, static_cast<int>(size), !in_place && !where.rearranged);
    };
    Call call(how, Collective::allgather, comm, receive.bytes * size, objection_to({}, error, empty), describe);
    sendbuf = call.sent(sendbuf);
    recvbuf = call.received(recvbuf);
    if (!call.served())
        return call.pass_on(FLX_MPI_FORMS(Allgather, allgather), sendbuf, sendcount, sendtype, recvbuf, recvcount,
                            recvtype, comm);
    Packed &in = call.staging().in;
    Packed &out = call.staging().out;
    std::byte *const own_block = element(recvbuf, call.rank() * receive.count, receive.layout);
    if (send.bytes != receive.bytes) {
        MPI_TRY(bring_own(sendbuf, send, {own_block, receive.count, receive.layout}, comm));
        in_place = true;
    }
    MPI_TRY(out.take(recvbuf, receive.count * size, receive.layout, false, comm));
    if (in_place) {
        MPI_TRY(in.take(own_block, receive.count, receive.layout, true, comm));
    } else {
        MPI_TRY(in.take(sendbuf, send.count, send.layout, true, comm));
    }
    const bool own = in.data() == static_cast<std::byte *>(out.data()) + call.rank() * receive.bytes;
    if (!own)
        MPI_TRY(in.keep_apart(span_of(out.data(), receive.bytes * size)));
    const void *from = own ? FLX_IN_PLACE : in.data();
    void *to = out.data();
    MPI_TRY(call.lift(from, receive.bytes, to, receive.bytes * size, own));
    return call.carry_out(FLX_FORMS(allgather), from, to, receive.bytes, kByte, call.flx());
}

int allgatherv(const How &how, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
               Numbers recvcounts, Numbers displs, MPI_Datatype recvtype, MPI_Comm comm) {
    const int size = size_of(comm);
    bool in_place = sendbuf == MPI_IN_PLACE;
    std::vector<PackedBlocks::Block> blocks;
    const int wrong_blocks =
        displs == nullptr ? MPI_ERR_BUFFER : blocks_of(recvbuf, recvcounts, displs, recvtype, size, blocks);
    const size_t bytes = wrong_blocks == MPI_SUCCESS ? bytes_of(blocks) : 0;
    const Side send = in_place ? Side{} : side_of(sendcount, sendtype);
    int error = first_of({not_in_place(recvbuf), send.error, wrong_blocks});
    PackedBlocks::Block own_block;
    if (error == MPI_SUCCESS && size != 0) {
        own_block = blocks[rank_in(comm)];
        if (send.bytes > own_block.bytes())
            error = MPI_ERR_TRUNCATE;
    }
    const auto describe = [&](Whereabouts &where) {
        where.sends(sendbuf, sendcount, sendtype);
        where.receives(recvbuf, recvcounts, displs, &recvtype, true, size);
    };
    Call call(how, Collective::allgatherv, comm, bytes, objection_to({}, error, bytes == 0), describe);
    sendbuf = call.sent(sendbuf);
    recvbuf = call.received(recvbuf);
    call.follow_received(blocks);
    own_block.begin = call.received(own_block.begin);
    if (!call.served())
        return call.pass_on(FLX_MPI_FORMS(Allgatherv, allgatherv), sendbuf, sendcount, sendtype, recvbuf, recvcounts,
                            displs, recvtype, comm);
    size_t *counts = call.numbers(2);
    size_t *begins = counts + size;
    Packed &in = call.staging().in;
    PackedBlocks &out = call.staging().blocks_out;
    if (!in_place && send.bytes != own_block.bytes()) {
        MPI_TRY(bring_own(sendbuf, send, own_block, comm));
        in_place = true;
    }
    MPI_TRY(out.take(std::move(blocks), false, counts, begins, comm, false));
    if (in_place) {
        MPI_TRY(in.take(own_block.begin, own_block.count, own_block.layout, true, comm));
    } else {
        MPI_TRY(in.take(sendbuf, send.count, send.layout, true, comm));
    }
    const bool own = in_place && in.data() == static_cast<std::byte *>(out.data()) + begins[call.rank()];
    if (!own)
        MPI_TRY(in.keep_apart(out.span()));
    return call.carry_out(FLX_FORMS(allgatherv), own ? FLX_IN_PLACE : in.data(), counts[call.rank()], out.data(),
                          counts, begins, kByte, call.flx());
}

int gather(const How &how, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
           MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm) {
    const Objection wrong_root = check_root(root, comm);
    const bool at_root = is_root(root, comm, wrong_root);
    const bool in_place = at_root && sendbuf == MPI_IN_PLACE;
    const Side receive = at_root ? side_of(recvcount, recvtype) : Side{};
    const Side send = in_place ? receive : side_of(sendcount, sendtype);
    const size_t size = size_of(comm);
    const int error = first_of({not_in_place(at_root ? recvbuf : sendbuf), send.error, receive.error});
    const size_t bytes = send.bytes;
    const auto describe = [&](Whereabouts &where) {
        where.sends(sendbuf, sendcount, sendtype);
        if (at_root)
            where.receives(recvbuf, recvcount, recvtype, static_cast<int>(size), !in_place && bytes == receive.bytes);
    };
    Call call(how, Collective::gather, comm, at_root ? bytes * size : bytes, bytes * size,
              objection_to(wrong_root, error, bytes == 0), describe);
    sendbuf = call.sent(sendbuf);
    recvbuf = call.received(recvbuf);
    if (!call.served())
        return call.pass_on(FLX_MPI_FORMS(Gather, gather), sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,
                            root, comm);
    Packed &in = call.staging().in;
    Packed &out = call.staging().out;
    if (at_root && bytes != receive.bytes) {
        // What all ranks name alike is what each gives; the root's own mistake is what it takes.
        MPI_TRY(out.take_otherwise(recvbuf, receive.count, receive.layout, false, size, bytes, comm));
        if (bytes > receive.bytes || bytes % receive.layout.size != 0)
            call.staging().late_error = MPI_ERR_TRUNCATE;
    } else if (at_root) {
        MPI_TRY(out.take(recvbuf, receive.count * size, receive.layout, false, comm));
    }
    if (in_place) {
        MPI_TRY(
            in.take(element(recvbuf, root * receive.count, receive.layout), receive.count, receive.layout, true, comm));
    } else {
        MPI_TRY(in.take(sendbuf, send.count, send.layout, true, comm));
    }
    const bool own = in_place && in.data() == static_cast<std::byte *>(out.data()) + root * bytes;
    if (at_root && !own)
        MPI_TRY(in.keep_apart(span_of(out.data(), bytes * size)));
    return call.carry_out(FLX_FORMS(gather), own ? FLX_IN_PLACE : in.data(), out.data(), bytes, kByte, root,
                          call.flx());
}

int gatherv(const How &how, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
            Numbers recvcounts, Numbers displs, MPI_Datatype recvtype, int root, MPI_Comm comm) {
    const Objection wrong_root = check_root(root, comm);
    const int size = size_of(comm);
    const bool at_root = is_root(root, comm, wrong_root);
    bool in_place = at_root && sendbuf == MPI_IN_PLACE;
    std::vector<PackedBlocks::Block> blocks;
    const Side send = in_place ? Side{} : side_of(sendcount, sendtype);
    const int error =
        first_of({not_in_place(at_root ? recvbuf : sendbuf), send.error,
                  at_root ? blocks_of(recvbuf, recvcounts, displs, recvtype, size, blocks) : MPI_SUCCESS});
    // Who sends nothing does not know whether others do: no call is too small.
    const auto describe = [&](Whereabouts &where) {
        where.sends(sendbuf, sendcount, sendtype);
        if (at_root)
            where.receives(recvbuf, recvcounts, displs, &recvtype, true, size);
    };
    Call call(how, Collective::gatherv, comm, at_root && error == MPI_SUCCESS ? bytes_of(blocks) : send.bytes,
              kBytesUnknown, objection_to(wrong_root, error, false), describe);
    sendbuf = call.sent(sendbuf);
    recvbuf = call.received(recvbuf);
    call.follow_received(blocks);
    if (!call.served())
        return call.pass_on(FLX_MPI_FORMS(Gatherv, gatherv), sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs,
                            recvtype, root, comm);
    Packed &in = call.staging().in;
    PackedBlocks &out = call.staging().blocks_out;
    size_t *counts = nullptr;
    size_t *begins = nullptr;
    PackedBlocks::Block own_block;
    if (at_root) {
        counts = call.numbers(2);
        begins = counts + size;
        own_block = blocks[root];
        if (!in_place && send.bytes < own_block.bytes())
            MPI_TRY(bring_own(sendbuf, send, own_block, comm));
        if (!in_place && send.bytes > own_block.bytes())
            call.staging().late_error = MPI_ERR_TRUNCATE;
        in_place = in_place || send.bytes != own_block.bytes();
        MPI_TRY(out.take(std::move(blocks), false, counts, begins, comm, false));
    }
    if (in_place) {
        MPI_TRY(in.take(own_block.begin, own_block.count, own_block.layout, true, comm));
    } else {
        MPI_TRY(in.take(sendbuf, send.count, send.layout, true, comm));
    }
    const bool own = in_place && in.data() == static_cast<std::byte *>(out.data()) + begins[root];
    if (at_root && !own)
        MPI_TRY(in.keep_apart(out.span()));
    return call.carry_out(FLX_FORMS(gatherv), own ? FLX_IN_PLACE : in.data(), in_place ? counts[root] : send.bytes,
                          out.data(), counts, begins, kByte, root, call.flx());
}

int scatter(const How &how, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
            MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm) {
    const Objection wrong_root = check_root(root, comm);
    const bool at_root = is_root(root, comm, wrong_root);
    const bool in_place = at_root && recvbuf == MPI_IN_PLACE;
    const Side send = at_root ? side_of(sendcount, sendtype) : Side{};
    const Side receive = in_place ? send : side_of(recvcount, recvtype);
    const size_t size = size_of(comm);
    const int error = first_of({not_in_place(at_root ? sendbuf : recvbuf), receive.error, send.error});
    const size_t bytes = receive.bytes;
    const auto describe = [&](Whereabouts &where) {
        if (at_root)
            where.sends(sendbuf, sendcount, sendtype, static_cast<int>(size));
        where.receives(recvbuf, recvcount, recvtype, 1, !at_root || bytes == send.bytes);
    };
    Call call(how, Collective::scatter, comm, at_root ? bytes * size : bytes, bytes * size,
              objection_to(wrong_root, error, bytes == 0), describe);
    sendbuf = call.sent(sendbuf);
    recvbuf = call.received(recvbuf);
    if (!call.served())
        return call.pass_on(FLX_MPI_FORMS(Scatter, scatter), sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,
                            root, comm);
    Packed &in = call.staging().in;
    Packed &out = call.staging().out;
    if (at_root && bytes != send.bytes) {
        // What all ranks name alike is what each takes. Others cannot be told that they get less.
        MPI_TRY(in.take_otherwise(sendbuf, send.count, send.layout, true, size, bytes, comm));
        call.staging().late_error = MPI_ERR_TRUNCATE;
    } else if (at_root) {
        MPI_TRY(in.take(sendbuf, send.count * size, send.layout, true, comm));
    }
    if (!in_place) {
        MPI_TRY(out.take(recvbuf, receive.count, receive.layout, false, comm));
        if (at_root)
            MPI_TRY(out.keep_apart(span_of(in.data(), bytes * size)));
    }
    return call.carry_out(FLX_FORMS(scatter), in.data(), in_place ? FLX_IN_PLACE : out.data(), bytes, kByte, root,
                          call.flx());
}

int scatterv(const How &how, const void *sendbuf, Numbers sendcounts, Numbers displs, MPI_Datatype sendtype,
             void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm) {
    const Objection wrong_root = check_root(root, comm);
    const int size = size_of(comm);
    const bool at_root = is_root(root, comm, wrong_root);
    bool in_place = at_root && recvbuf == MPI_IN_PLACE;
    std::vector<PackedBlocks::Block> blocks;
    const Side receive = in_place ? Side{} : side_of(recvcount, recvtype);
    const int error =
        first_of({not_in_place(at_root ? sendbuf : recvbuf), receive.error,
                  at_root ? blocks_of(sendbuf, sendcounts, displs, sendtype, size, blocks) : MPI_SUCCESS});
    const auto describe = [&](Whereabouts &where) {
        if (at_root)
            where.sends(sendbuf, sendcounts, displs, &sendtype, true, size);
        where.receives(recvbuf, recvcount, recvtype);
    };
    Call call(how, Collective::scatterv, comm, at_root && error == MPI_SUCCESS ? bytes_of(blocks) : receive.bytes,
              kBytesUnknown, objection_to(wrong_root, error, false), describe);
    sendbuf = call.sent(sendbuf);
    recvbuf = call.received(recvbuf);
    call.follow_sent(blocks);
    if (!call.served())
        return call.pass_on(FLX_MPI_FORMS(Scatterv, scatterv), sendbuf, sendcounts, displs, sendtype, recvbuf,
                            recvcount, recvtype, root, comm);
    PackedBlocks &in = call.staging().blocks_in;
    Packed &out = call.staging().out;
    size_t *counts = nullptr;
    size_t *begins = nullptr;
    if (at_root) {
        counts = call.numbers(2);
        begins = counts + size;
        const PackedBlocks::Block own_block = blocks[root];
        if (!in_place && receive.bytes > own_block.bytes()) {
            const Side send{MPI_SUCCESS, own_block.count, own_block.layout, own_block.bytes()};
            MPI_TRY(bring_own(own_block.begin, send, {static_cast<std::byte *>(recvbuf), receive.count, receive.layout},
                              comm));
        }
        if (!in_place && receive.bytes < own_block.bytes())
            call.staging().late_error = MPI_ERR_TRUNCATE;
        in_place = in_place || receive.bytes != own_block.bytes();
        MPI_TRY(in.take(std::move(blocks), true, counts, begins, comm, false));
    }
    if (!in_place) {
        MPI_TRY(out.take(recvbuf, receive.count, receive.layout, false, comm));
        if (at_root)
            MPI_TRY(out.keep_apart(in.span()));
    }
    return call.carry_out(FLX_FORMS(scatterv), in.data(), counts, begins, in_place ? FLX_IN_PLACE : out.data(),
                          in_place ? counts[root] : receive.bytes, kByte, root, call.flx());
}

int alltoall(const How &how, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
             MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm) {
    const bool in_place = sendbuf == MPI_IN_PLACE;
    const Side receive = side_of(recvcount, recvtype);
    const Side send = in_place ? receive : side_of(sendcount, sendtype);
    const size_t size = size_of(comm);
    const int error = first_of({not_in_place(recvbuf), send.error, receive.error,
                                send.bytes != receive.bytes ? MPI_ERR_TRUNCATE : MPI_SUCCESS});
    const auto describe = [&](Whereabouts &where) {
        where.fits_gpus = true;
        where.sends(sendbuf, sendcount, sendtype, static_cast<int>(size));
        where.receives(recvbuf, recvcount, recvtype, static_cast<int>(size), !in_place);
    };
    Call call(how, Collective::alltoall, comm, receive.bytes * size, objection_to({}, error, receive.bytes == 0),
              describe);
    sendbuf = call.sent(sendbuf);
    recvbuf = call.received(recvbuf);
    if (!call.served())
        return call.pass_on(FLX_MPI_FORMS(Alltoall, alltoall), sendbuf, sendcount, sendtype, recvbuf, recvcount,
                            recvtype, comm);
    Packed &in = call.staging().in;
    Packed &out = call.staging().out;
    MPI_TRY(out.take(recvbuf, receive.count * size, receive.layout, in_place, comm));
    if (!in_place) {
        MPI_TRY(in.take(sendbuf, send.count * size, send.layout, true, comm));
        MPI_TRY(in.keep_apart(span_of(out.data(), receive.bytes * size)));
    }
    const void *from = in_place ? FLX_IN_PLACE : in.data();
    void *to = out.data();
    MPI_TRY(call.lift(from, receive.bytes * size, to, receive.bytes * size, in_place));
    return call.carry_out(FLX_FORMS(alltoall), from, to, send.bytes, kByte, call.flx());
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
    // What is lifted is packed: between the program's blocks there may be what others write meanwhile.
    MPI_TRY(out.take(std::move(to), in_place, recvcounts, rdispls, comm, call.lifts()));
    if (!in_place)
        MPI_TRY(in.take(std::move(from), true, sendcounts, sdispls, comm, call.lifts(), out.span()));
    const void *sent = in_place ? FLX_IN_PLACE : in.data();
    void *received = out.data();
    MPI_TRY(call.lift(sent, in.span().bytes, received, out.span().bytes, false));
    return call.carry_out(FLX_FORMS(alltoallv), sent, received, sendcounts, sdispls, recvcounts, rdispls, kByte,
                          call.flx());
}

/// What MPI says of the arguments of both, once the blocks are known to be right.
int error_of(bool in_place, const void *recvbuf, const std::vector<PackedBlocks::Block> &from,
             const std::vector<PackedBlocks::Block> &to, MPI_Comm comm) {
    if (recvbuf == MPI_IN_PLACE)
        return kInPlaceError;
    if (in_place || to.empty())
        return MPI_SUCCESS;
    const int rank = rank_in(comm);
    return from[rank].bytes() != to[rank].bytes() ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
}

}  // namespace

int alltoallv(const How &how, const void *sendbuf, Numbers sendcounts, Numbers sdispls, MPI_Datatype sendtype,
              void *recvbuf, Numbers recvcounts, Numbers rdispls, MPI_Datatype recvtype, MPI_Comm comm) {
    const bool in_place = sendbuf == MPI_IN_PLACE;
    const int size = size_of(comm);
    std::vector<PackedBlocks::Block> from;
    std::vector<PackedBlocks::Block> to;
    int error = MPI_SUCCESS;
    if (recvcounts == nullptr || rdispls == nullptr || (!in_place && (sendcounts == nullptr || sdispls == nullptr)))
        error = MPI_ERR_ARG;
    else
        error = first_of({blocks_of(recvbuf, recvcounts, rdispls, recvtype, size, to),
                          in_place ? MPI_SUCCESS : blocks_of(sendbuf, sendcounts, sdispls, sendtype, size, from)});
    if (error == MPI_SUCCESS)
        error = error_of(in_place, recvbuf, from, to, comm);
    const auto describe = [&](Whereabouts &where) {
        where.fits_gpus = !in_place;
        if (!in_place)
            where.sends(sendbuf, sendcounts, sdispls, &sendtype, true, size);
        where.receives(recvbuf, recvcounts, rdispls, &recvtype, true, size);
    };
    Call call(how, Collective::alltoallv, comm, std::max(bytes_of(from), bytes_of(to)), kBytesUnknown,
              objection_to({}, error, false), describe);
    sendbuf = call.sent(sendbuf);
    recvbuf = call.received(recvbuf);
    call.follow_sent(from);
    call.follow_received(to);
    if (!call.served())
        return call.pass_on(FLX_MPI_FORMS(Alltoallv, alltoallv), sendbuf, sendcounts, sdispls, sendtype, recvbuf,
                            recvcounts, rdispls, recvtype, comm);
    return exchange(call, in_place, std::move(from), std::move(to), comm);
}

int alltoallw(const How &how, const void *sendbuf, Numbers sendcounts, Numbers sdispls, const MPI_Datatype *sendtypes,
              void *recvbuf, Numbers recvcounts, Numbers rdispls, const MPI_Datatype *recvtypes, MPI_Comm comm) {
    const bool in_place = sendbuf == MPI_IN_PLACE;
    const int size = size_of(comm);
    std::vector<PackedBlocks::Block> from;
    std::vector<PackedBlocks::Block> to;
    int error = MPI_SUCCESS;
    if (recvcounts == nullptr || rdispls == nullptr || recvtypes == nullptr ||
        (!in_place && (sendcounts == nullptr || sdispls == nullptr || sendtypes == nullptr)))
        error = MPI_ERR_ARG;
    else
        error = first_of({blocks_of(recvbuf, recvcounts, rdispls, recvtypes, size, to),
                          in_place ? MPI_SUCCESS : blocks_of(sendbuf, sendcounts, sdispls, sendtypes, size, from)});
    if (error == MPI_SUCCESS)
        error = error_of(in_place, recvbuf, from, to, comm);
    const auto describe = [&](Whereabouts &where) {
        where.fits_gpus = !in_place;
        if (!in_place)
            where.sends(sendbuf, sendcounts, sdispls, sendtypes, false, size);
        where.receives(recvbuf, recvcounts, rdispls, recvtypes, false, size);
    };
    Call call(how, Collective::alltoallw, comm, std::max(bytes_of(from), bytes_of(to)), kBytesUnknown,
              objection_to({}, error, false), describe);
    sendbuf = call.sent(sendbuf);
    recvbuf = call.received(recvbuf);
    call.follow_sent(from);
    call.follow_received(to);
    if (!call.served())
        return call.pass_on(FLX_MPI_FORMS(Alltoallw, alltoallw), sendbuf, sendcounts, sdispls, sendtypes, recvbuf,
                            recvcounts, rdispls, recvtypes, comm);
    return exchange(call, in_place, std::move(from), std::move(to), comm);
}

}  // namespace flx::preload
