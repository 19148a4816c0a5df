#include "apps/bench/device_calls.h"

namespace flx::bench::perf {

std::string take_device(MPI_Comm /*mpi_comm*/) {
    return "this flx_perf was built without CUDA; --memory device needs it";
}

std::unique_ptr<DeviceMeasurer> make_device_measurer(const Options & /*options*/, flx_comm_t /*flx_comm*/,
                                                     MPI_Comm mpi_comm, LinkCounters & /*links*/, std::string &why) {
    why = take_device(mpi_comm);
    return nullptr;
}

}  // namespace flx::bench::perf
