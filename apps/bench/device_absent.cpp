#include "apps/bench/device_calls.h"

namespace flx::bench {

std::string take_device(MPI_Comm /*mpi_comm*/) {
    return "this program was built without CUDA, which GPU memory needs";
}

std::unique_ptr<DeviceCalls> DeviceCalls::make(const CallOptions & /*options*/, const DeviceSettings & /*settings*/,
                                               flx_comm_t /*comm*/, MPI_Comm mpi_comm, std::string &why) {
    why = take_device(mpi_comm);
    return nullptr;
}

}  // namespace flx::bench
