#include "apps/flx_perf/beside_measure.h"
#include "apps/flx_perf/load_measure.h"

namespace flx::bench::perf {

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

}  // namespace flx::bench::perf
