#include "runtime/front/mpi/arguments/user_reductions.h"

#include <algorithm>
#include <new>
#include <vector>

#include "runtime/front/mpi/libraries/flx_library.h"

namespace flx::preload {
namespace {

/// Room that any type may lie in, of one thread.
class Room {
  public:
    std::byte *at_least(size_t bytes) {
        lines_.resize(std::max(lines_.size(), (bytes + sizeof(Line) - 1) / sizeof(Line)));
        return lines_.front().bytes;
    }
    static constexpr size_t kAlignment = 64;

  private:
    struct alignas(kAlignment) Line {
        std::byte bytes[kAlignment];
    };
    std::vector<Line> lines_;
};

/// The room that `count` elements need, and where in it the first one is put, if the lowest byte of all is to lie
/// there.
struct Spread {
    size_t bytes = 0;
    MPI_Aint first = 0;  ///< from the beginning of the room; a multiple of the alignment, as programs' own are
};

Spread spread_of(const UserReduction &reduction, int count) {
    constexpr auto kAlignment = static_cast<MPI_Aint>(Room::kAlignment);
    const MPI_Aint last = (count - 1) * reduction.layout.extent;
    const MPI_Aint low = std::min<MPI_Aint>(last, 0) + reduction.lowest;
    const MPI_Aint high = std::max<MPI_Aint>(last, 0) + reduction.lowest + reduction.span;
    Spread spread;
    // Downwards where the type has absolute addresses (MPI_BOTTOM).
    spread.first = low >= 0 ? -(low / kAlignment * kAlignment) : (-low + kAlignment - 1) / kAlignment * kAlignment;
    spread.bytes = static_cast<size_t>(std::max<MPI_Aint>(spread.first + high, 1));
    return spread;
}

void reduce(const void *in, void *inout, size_t count, flx_dtype_t, void *argument) {
    const auto &reduction = *static_cast<const UserReduction *>(argument);
    const auto elements = static_cast<int>(count);  // FLX gives no more than a few thousand at a time
    if (reduction.layout.dense) {
        PMPI_Reduce_local(in, inout, elements, reduction.type->handle, reduction.op->handle);
        return;
    }
    thread_local Room left_room;
    thread_local Room right_room;
    const Spread spread = spread_of(reduction, elements);
    std::byte *left = left_room.at_least(spread.bytes) + spread.first;
    std::byte *right = right_room.at_least(spread.bytes) + spread.first;
    const auto bytes = static_cast<int>(count * reduction.layout.size);
    int position = 0;
    PMPI_Unpack(in, bytes, &position, left, elements, reduction.layout.type, MPI_COMM_SELF);
    position = 0;
    PMPI_Unpack(inout, bytes, &position, right, elements, reduction.layout.type, MPI_COMM_SELF);
    PMPI_Reduce_local(left, right, elements, reduction.type->handle, reduction.op->handle);
    position = 0;
    PMPI_Pack(right, elements, reduction.layout.type, inout, bytes, &position, MPI_COMM_SELF);
}

bool same(const Layout &a, const Layout &b) {
    return a.size == b.size && a.extent == b.extent && a.dense == b.dense;
}

/// The one behind `handle`, which all reductions with it share.
template <typename Handle, typename Kept>
std::shared_ptr<Kept> keep(std::map<Handle, std::shared_ptr<Kept>> &all, Handle handle) {
    std::shared_ptr<Kept> &kept = all[handle];
    if (kept == nullptr)
        kept = std::make_shared<Kept>(handle);
    return kept;
}

}  // namespace

UserReduction::~UserReduction() {
    if (made)
        flx_op_free(&flx_op);
}

UserReductions &UserReductions::instance() {
    static auto *const reductions = new UserReductions;  // stays: MPI may be finalized by a destructor
    return *reductions;
}

std::shared_ptr<const UserReduction> UserReductions::find(MPI_Op op, MPI_Datatype type) {
    Layout layout;
    if (!layout_of(type, layout))
        return nullptr;
    std::shared_ptr<UserReduction> stale;  // ends without the lock
    const std::lock_guard guard(mutex_);
    used_.store(true, std::memory_order_relaxed);
    std::shared_ptr<UserReduction> &known = known_[{op, type}];
    // The place of a type that was freed without this library's knowledge may have another one by now.
    if (known == nullptr || !same(known->layout, layout)) {
        stale = std::move(known);
        known = make(op, type, layout);
    }
    return known;
}

std::shared_ptr<UserReduction> UserReductions::make(MPI_Op op, MPI_Datatype type, const Layout &layout) {
    auto made = std::make_shared<UserReduction>();
    made->layout = layout;
    if (PMPI_Type_get_true_extent(type, &made->lowest, &made->span) != MPI_SUCCESS)
        return nullptr;
    constexpr size_t kMostBytes = 16384;  // flx_dtype_create
    int commutes = 0;
    if (layout.size == 0 || layout.size > kMostBytes || PMPI_Op_commutative(op, &commutes) != MPI_SUCCESS)
        return nullptr;
    made->commutes = commutes != 0;
    made->op = keep(ops_, op);
    made->type = keep(types_, type);
    return made;
}

bool UserReductions::make_known(const UserReduction &reduction, flx_dtype_t &dtype, flx_op_t &op) {
    const std::lock_guard guard(mutex_);
    if (!reduction.made) {
        const auto [known, is_new] = flx_types_.try_emplace(reduction.layout.size, FLX_INT8);
        if (is_new && flx_dtype_create(reduction.layout.size, &known->second) != FLX_SUCCESS) {
            flx_types_.erase(known);
            return false;
        }
        reduction.flx_type = known->second;
        if (flx_op_create(reduce, const_cast<UserReduction *>(&reduction), reduction.commutes ? 1 : 0,
                          &reduction.flx_op) != FLX_SUCCESS)
            return false;
        reduction.made = true;
    }
    dtype = reduction.flx_type;
    op = reduction.flx_op;
    return true;
}

template <typename Handle, typename Kept>
bool UserReductions::give_up(Handle handle, std::map<Handle, std::shared_ptr<Kept>> &all,
                             std::shared_ptr<Kept> UserReduction::*needed) {
    if (!used_.load(std::memory_order_relaxed))
        return false;
    std::vector<std::shared_ptr<UserReduction>> ended;  // without the lock
    std::shared_ptr<Kept> mine;
    const std::lock_guard guard(mutex_);
    const auto found = all.find(handle);
    if (found == all.end())
        return false;
    mine = std::move(found->second);
    all.erase(found);
    for (auto each = known_.begin(); each != known_.end();) {
        if (each->second != nullptr && (*each->second).*needed == mine) {
            ended.push_back(std::move(each->second));
            each = known_.erase(each);
        } else {
            ++each;
        }
    }
    mine->given_up = true;
    return true;
}

template bool UserReductions::give_up(MPI_Op, std::map<MPI_Op, std::shared_ptr<KeptOp>> &,
                                      std::shared_ptr<KeptOp> UserReduction::*);
template bool UserReductions::give_up(MPI_Datatype, std::map<MPI_Datatype, std::shared_ptr<KeptType>> &,
                                      std::shared_ptr<KeptType> UserReduction::*);

}  // namespace flx::preload
