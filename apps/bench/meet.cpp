#include "apps/bench/meet.h"

#include <chrono>
#include <thread>

namespace flx::bench {

void meet(MPI_Comm comm) {
    using std::chrono::steady_clock;
    constexpr std::chrono::milliseconds kAwake{1};
    constexpr std::chrono::milliseconds kNap{5};
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibarrier(comm, &request);
    const auto came = steady_clock::now();
    for (int all = 0; all == 0;) {
        MPI_Test(&request, &all, MPI_STATUS_IGNORE);
        if (all == 0 && steady_clock::now() - came > kAwake) {
            std::this_thread::sleep_for(kNap);
        }
    }
}

}  // namespace flx::bench
