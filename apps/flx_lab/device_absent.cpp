#include "apps/flx_lab/beside_measure.h"
#include "apps/flx_lab/load_measure.h"

namespace flx::bench::lab {

std::unique_ptr<BesideMeasurer> BesideMeasurer::make(const Options & /*options*/, DeviceCalls & /*calls*/,
                                                     flx_comm_t /*comm*/, MPI_Comm mpi_comm, std::string &why) {
    why = take_device(mpi_comm);
    return nullptr;
}

std::unique_ptr<LoadMeasurer> LoadMeasurer::make(const Options & /*options*/, DeviceCalls & /*calls*/,
                                                 flx_comm_t /*comm*/, MPI_Comm mpi_comm, LinkCounters & /*links*/,
                                                 std::string &why) {
    why = take_device(mpi_comm);
    return nullptr;
}

}  // namespace flx::bench::lab
