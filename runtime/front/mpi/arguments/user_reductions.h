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

#include "runtime/front/mpi/arguments/types.h"
#include "runtime/include/flx.h"

namespace flx::preload {

/// A handle of the program's that it may free while an operation needs it. It is freed with the last user. The kinds
/// of handles differ in the function that frees them: some MPIs have one C type for all.
template <typename Handle, int (*kFree)(Handle *)>
struct Kept {
    explicit Kept(Handle handle) : handle(handle) {}
    ~Kept() {
        if (given_up)
            kFree(&handle);
    }
    Kept(const Kept &) = delete;
    Kept &operator=(const Kept &) = delete;
    Handle handle;
    bool given_up = false;  ///< by the program
};
using KeptOp = Kept<MPI_Op, PMPI_Op_free>;
using KeptType = Kept<MPI_Datatype, PMPI_Type_free>;

/// One reduction on one datatype. Whoever holds it may have FLX call it.
struct UserReduction {
    UserReduction() = default;
    ~UserReduction();
    UserReduction(const UserReduction &) = delete;
    UserReduction &operator=(const UserReduction &) = delete;
    std::shared_ptr<KeptOp> op;
    std::shared_ptr<KeptType> type;
    Layout layout;
    MPI_Aint lowest = 0;  ///< of an element's data, from its address
    MPI_Aint span = 0;    ///< from there to where they end
    bool commutes = false;
    // Made when FLX is to call it, not before: most programs are over sooner, and libflx takes 20 ms to load.
    mutable bool made = false;
    mutable flx_dtype_t flx_type = FLX_INT8;
    mutable flx_op_t flx_op = FLX_SUM;
};

class UserReductions {
  public:
    static UserReductions &instance();

    /// Null where FLX cannot: elements of no bytes or of too many. `op` is none of MPI's own.
    std::shared_ptr<const UserReduction> find(MPI_Op op, MPI_Datatype type);
    /// As FLX knows it. False: FLX has too many.
    bool make_known(const UserReduction &reduction, flx_dtype_t &dtype, flx_op_t &op);

    /// MPI_Op_free and MPI_Type_free: true if a reduction here needed it; then it ends with the last that does.
    bool give_up_op(MPI_Op op) { return give_up(op, ops_, &UserReduction::op); }
    bool give_up_type(MPI_Datatype type) { return !is_named(type) && give_up(type, types_, &UserReduction::type); }

  private:
    UserReductions() = default;
    std::shared_ptr<UserReduction> make(MPI_Op op, MPI_Datatype type, const Layout &layout);
    template <typename Handle, typename Kept>
    bool give_up(Handle handle, std::map<Handle, std::shared_ptr<Kept>> &all,
                 std::shared_ptr<Kept> UserReduction::*needed);

    std::mutex mutex_;  ///< of what follows
    std::map<std::pair<MPI_Op, MPI_Datatype>, std::shared_ptr<UserReduction>> known_;
    std::map<MPI_Op, std::shared_ptr<KeptOp>> ops_;
    std::map<MPI_Datatype, std::shared_ptr<KeptType>> types_;
    std::map<size_t, flx_dtype_t> flx_types_;  ///< by bytes
    std::atomic<bool> used_{false};            ///< most programs have no such reductions
};

}  // namespace flx::preload
