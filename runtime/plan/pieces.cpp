#include "runtime/plan/pieces.h"

namespace flx {

using algorithms::Collective;

namespace {

class Finder {
  public:
    Finder(const Call &call, int ranks, int rank)
        : call_(call), ranks_(ranks), rank_(rank), element_(call.operation.element()) {}

    Pieces find() {
        const Operation &operation = call_.operation;
        const size_t total = operation.count;
        const bool at_root = rank_ == operation.root;
        switch (operation.collective) {
            case Collective::allreduce:
            case Collective::scan:
            case Collective::alltoall:
                reads(0, total);
                writes(0, total);
                break;
            case Collective::exscan:
                reads(0, total);
                writes(0, rank_ == 0 ? 0 : total);
                break;
            case Collective::reduce:
                reads(0, total);
                writes(0, at_root ? total : 0);
                break;
            case Collective::reduce_scatter_block:
            case Collective::reduce_scatter:
                reads(0, total);
                writes(0, own().count);
                break;
            case Collective::bcast:
                reads(0, at_root ? total : 0);
                writes(0, at_root ? 0 : total);
                break;
            case Collective::allgather:
                reads(0, own().count);
                writes(0, total);
                break;
            case Collective::gather:
                reads(0, own().count);
                writes(0, at_root ? total : 0);
                break;
            case Collective::scatter:
                reads(0, at_root ? total : 0);
                writes(0, own().count);
                break;
            case Collective::allgatherv:
            case Collective::gatherv:
            case Collective::scatterv:
            case Collective::alltoallv:
                find_of_lengths();
                break;
            case Collective::barrier:
            case Collective::send_recv:
                break;
        }
        return std::move(pieces_);
    }

  private:
    /// Of collectives whose blocks have lengths of their own.
    void find_of_lengths() {
        const bool at_root = rank_ == call_.operation.root;
        switch (call_.operation.collective) {
            case Collective::allgatherv:
                reads(0, own().count);
                writes_blocks();
                break;
            case Collective::gatherv:
                reads(0, call_.in_place ? 0 : call_.own);
                if (at_root)
                    writes_blocks();
                break;
            case Collective::scatterv:
                if (at_root)
                    blocks(in(), call_.blocks, -1, pieces_.read);
                writes(0, call_.in_place ? 0 : call_.own);
                break;
            default:  // alltoallv
                if (call_.in_place)
                    blocks(call_.out(), call_.blocks, -1, pieces_.read);
                else
                    blocks(in(), call_.sends, -1, pieces_.read);
                blocks(call_.out(), call_.blocks, -1, pieces_.written);
        }
    }

    [[nodiscard]] std::byte *in() const { return const_cast<std::byte *>(call_.in()); }  // only read from
    [[nodiscard]] algorithms::Extent own() const { return call_.block(ranks_, rank_); }

    void add(std::byte *base, size_t offset, size_t count, std::vector<Piece> &to) const {
        if (count != 0)
            to.push_back({base + offset * element_, count * element_});
    }
    void reads(size_t offset, size_t count) { add(in(), offset, count, pieces_.read); }
    void writes(size_t offset, size_t count) { add(call_.out(), offset, count, pieces_.written); }
    /// `but`: a rank whose block is left out.
    void blocks(std::byte *base, const Blocks &all, int but, std::vector<Piece> &to) const {
        for (int rank = 0; rank < ranks_; ++rank)
            if (rank != but)
                add(base, all.displacements[rank], all.counts[rank], to);
    }
    /// Of a gathering call; in place the own block is there.
    void writes_blocks() { blocks(call_.out(), call_.blocks, call_.in_place ? rank_ : -1, pieces_.written); }

    const Call &call_;
    const int ranks_;
    const int rank_;
    const size_t element_;
    Pieces pieces_;
};

}  // namespace

Pieces pieces_of(const Call &call, int ranks, int rank) {
    return Finder(call, ranks, rank).find();
}

}  // namespace flx
