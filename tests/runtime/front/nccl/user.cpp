/// A library that uses NCCL and is loaded with what it needs by a program that does not know it.
#include <cstdio>
#include <thread>
#include <vector>

#include "runtime/front/nccl/exports.h"
#include "tests/runtime/front/nccl/fake_device.h"

/// Two ranks add. 0: right.
extern "C" __attribute__((visibility("default"))) int use_nccl() {
    ncclUniqueId id;
    if (ncclGetUniqueId(&id) != ncclSuccess)
        return 1;
    std::vector<int> results(2, 1);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank)
        threads.emplace_back([&, rank] {
            ncclComm_t comm = nullptr;
            std::vector<int> data(10, rank + 1);
            cudaStream_t stream = fake::make_stream();
            if (ncclCommInitRank(&comm, 2, id, rank) == ncclSuccess &&
                ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, comm, stream) == ncclSuccess &&
                fake::synchronize(stream) && data[9] == 3 && ncclCommDestroy(comm) == ncclSuccess)
                results[rank] = 0;
            fake::free_stream(stream);
        });
    for (std::thread &thread : threads)
        thread.join();
    return results[0] + results[1];
}
