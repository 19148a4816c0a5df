/// \file types.h
/// MPI's datatypes and reductions, as FLX sees them.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>

#include "runtime/include/flx.h"

namespace flx::preload {

/// How elements of a datatype lie in memory.
struct Layout {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    size_t size = 0;      ///< bytes of data in one element
    MPI_Aint extent = 0;  ///< from one element to the next
    bool dense =
        false;  ///< the data of `count` elements are the `count`·size bytes from the buffer's address on, in order
};

/// False where `type` is null or MPI does not know it.
bool layout_of(MPI_Datatype type, Layout &layout);

/// Whether `type` is one of MPI's own.
bool is_named(MPI_Datatype type);

struct UserReduction;

/// A reduction that FLX has. FLX serves it if `known`, which is the same on all ranks: MPI has them name the same type
/// and reduction, or, with a reduction of the program's, elements of the same bytes.
struct Reduction {
    bool known = false;
    flx_dtype_t dtype = FLX_INT8;
    flx_op_t op = FLX_SUM;
    size_t size = 0;                            ///< bytes of an element, as FLX takes them
    Layout layout;                              ///< of an element
    std::shared_ptr<const UserReduction> user;  ///< to be held while `op` may be called; `dtype` and `op` are not set

    /// Sets `dtype` and `op`, where FLX serves a call with it. False: FLX has too many of the program's.
    bool make_known();
};
Reduction reduction_of(MPI_Datatype type, MPI_Op op);

}  // namespace flx::preload
