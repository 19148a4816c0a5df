/// \file flx_library.h
/// The functions of flx.h, for the files of this folder: libflx and what it needs (UCX, hwloc) are loaded when the
/// first of them is called. Most programs are over before FLX would pay, and loading costs each rank 10 to 20 ms.
///
/// In this namespace the names of flx.h's functions mean these objects, which are called like them.
#pragma once

#include <atomic>
#include <string>

#include "runtime/include/flx.h"

namespace flx::preload {

/// The file that libflx would be, or is, loaded from: beside this library's own. Any thread.
std::string flx_library_file();

/// Loads it where it was not. Ends the process with a sentence where that fails, as the loader would. Any thread.
void *flx_function(const char *name);

template <typename Function>
class FlxFunction;

template <typename Result, typename... Parameters>
class FlxFunction<Result (*)(Parameters...)> {
  public:
    using Function = Result (*)(Parameters...);

    constexpr explicit FlxFunction(const char *name) : name_(name) {}
    /// A pointer to it, for those who call it later.
    [[nodiscard]] Function get() const {
        void *found = found_.load(std::memory_order_acquire);
        if (found == nullptr) [[unlikely]]
            found_.store(found = flx_function(name_), std::memory_order_release);
        return reinterpret_cast<Function>(found);
    }
    Result operator()(Parameters... parameters) const { return get()(parameters...); }

  private:
    const char *name_;
    mutable std::atomic<void *> found_{nullptr};
};

#define FLX_FUNCTION(NAME) inline constinit FlxFunction<decltype(&::flx_##NAME)> flx_##NAME("flx_" #NAME)
/// One that blocks, one that does not, and one that persists.
#define FLX_FUNCTIONS(NAME) \
    FLX_FUNCTION(NAME);     \
    FLX_FUNCTION(i##NAME);  \
    FLX_FUNCTION(NAME##_init)

FLX_FUNCTIONS(allgather);
FLX_FUNCTIONS(allgatherv);
FLX_FUNCTIONS(allreduce);
FLX_FUNCTIONS(alltoall);
FLX_FUNCTIONS(alltoallv);
FLX_FUNCTIONS(barrier);
FLX_FUNCTIONS(bcast);
FLX_FUNCTIONS(exscan);
FLX_FUNCTIONS(gather);
FLX_FUNCTIONS(gatherv);
FLX_FUNCTIONS(reduce);
FLX_FUNCTIONS(reduce_scatter);
FLX_FUNCTIONS(reduce_scatter_block);
FLX_FUNCTIONS(scan);
FLX_FUNCTIONS(scatter);
FLX_FUNCTIONS(scatterv);
FLX_FUNCTION(allreduce_on_stream);
FLX_FUNCTION(comm_create);
FLX_FUNCTION(comm_dup);
FLX_FUNCTION(comm_free);
FLX_FUNCTION(dtype_create);
FLX_FUNCTION(last_error);
FLX_FUNCTION(op_create);
FLX_FUNCTION(op_free);
FLX_FUNCTION(request_free);
FLX_FUNCTION(start);
FLX_FUNCTION(strerror);
FLX_FUNCTION(test);
FLX_FUNCTION(wait);

#undef FLX_FUNCTIONS
#undef FLX_FUNCTION

}  // namespace flx::preload
