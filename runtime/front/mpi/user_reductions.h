/// \file user_reductions.h
/// Reductions that the program made with MPI_Op_create, as FLX calls them: through MPI_Reduce_local, which knows the
/// functions of all languages.
///
/// Whether FLX serves one depends on the bytes of an element alone, which MPI has all ranks give alike; a datatype may
/// be derived on one rank only. Data with holes travel packed, and are unpacked around the program's function.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/front/mpi/types.h"
#include "runtime/include/flx.h"

namespace flx::preload {

/// A handle of the program's that it may free while an operation needs it. MPI frees it with the last user.
template <typename Handle>
struct Kept {
    explicit Kept(Handle handle) : handle(handle) {}
    ~Kept();
    Kept(const Kept &) = delete;
    Kept &operator=(const Kept &) = delete;
    Handle handle;
    bool given_up = false;  ///< by the program
};

/// One reduction on one datatype. Whoever holds it may have FLX call it.
struct UserReduction {
    UserReduction() = default;
    ~UserReduction();
    UserReduction(const UserReduction &) = delete;
    UserReduction &operator=(const UserReduction &) = delete;
    std::shared_ptr<Kept<MPI_Op>> op;
    std::shared_ptr<Kept<MPI_Datatype>> type;
    Layout layout;
    MPI_Aint lowest = 0;  ///< of an element's data, from its address
    MPI_Aint span = 0;    ///< from there to where they end
    flx_dtype_t flx_type = FLX_INT8;
    flx_op_t flx_op = FLX_SUM;
    bool made = false;  ///< `flx_op` is to be freed
};

class UserReductions {
  public:
    static UserReductions &instance();

    /// Null where FLX cannot: elements of no bytes or of too many. `op` is none of MPI's own.
    std::shared_ptr<const UserReduction> find(MPI_Op op, MPI_Datatype type);

    /// MPI_Op_free and MPI_Type_free: true if a reduction here needed it; then it ends with the last that does.
    bool give_up(MPI_Op *op) { return give_up(op, ops_); }
    bool give_up(MPI_Datatype *type) { return !is_named(*type) && give_up(type, types_); }

  private:
    template <typename Handle>
    using Handles = std::map<Handle, std::shared_ptr<Kept<Handle>>>;

    UserReductions() = default;
    std::shared_ptr<UserReduction> make(MPI_Op op, MPI_Datatype type, const Layout &layout);
    template <typename Handle>
    bool give_up(Handle *handle, Handles<Handle> &kept);

    std::mutex mutex_;  ///< of what follows
    std::map<std::pair<MPI_Op, MPI_Datatype>, std::shared_ptr<UserReduction>> known_;
    Handles<MPI_Op> ops_;
    Handles<MPI_Datatype> types_;
    std::map<size_t, flx_dtype_t> flx_types_;  ///< by bytes
    std::atomic<bool> used_{false};            ///< most programs have no such reductions
};

}  // namespace flx::preload
