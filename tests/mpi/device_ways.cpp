/// Has the buffers of ways_test's calls in GPU memory that the host reaches as well (cudaMallocManaged). Skips without
/// a GPU that shares such memory with the host at any time.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "tests/mpi/harness.h"
#include "tests/mpi/job.h"

namespace flx::test {
namespace {

class Managed final : public std::pmr::memory_resource {
    void *do_allocate(size_t bytes, size_t /*alignment*/) override {
        void *memory = nullptr;
        if (cudaMallocManaged(&memory, bytes) != cudaSuccess)
            throw std::bad_alloc();
        return memory;
    }
    void do_deallocate(void *memory, size_t /*bytes*/, size_t /*alignment*/) override { cudaFree(memory); }
    [[nodiscard]] bool do_is_equal(const memory_resource &other) const noexcept override { return this == &other; }
};

const bool in_use = [] {
    int devices = 0;
    int shares = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0 ||
        cudaDeviceGetAttribute(&shares, cudaDevAttrConcurrentManagedAccess, 0) != cudaSuccess || shares == 0) {
        std::puts("skipped: no GPU that shares memory with the host");
        std::exit(77);
    }
    static Managed managed;
    job_memory(&managed);
    return true;
}();

/// They would go beside what FLX has on a stream of its own.
TEST(DeviceWays, CallsOnStreamsAreRefusedWhileRequestsAreUnderWay) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    std::pmr::vector<int32_t> in(1000, comm.rank() + 1, &job_memory());
    std::pmr::vector<int32_t> out(1000, 0, &job_memory());
    const auto on_stream = [&] {
        return flx_allreduce_on_stream(in.data(), out.data(), in.size(), FLX_INT32, FLX_SUM, comm, nullptr);
    };
    const int32_t sum = comm.size() * (comm.size() + 1) / 2;
    flx_request_t request = FLX_REQUEST_NULL;
    ASSERT_TRUE(succeeded(flx_iallreduce(in.data(), out.data(), in.size(), FLX_INT32, FLX_SUM, comm, &request)));
    EXPECT_EQ(on_stream(), FLX_ERR_UNSUPPORTED);
    EXPECT_NE(std::string(flx_last_error()).find("under way (1)"), std::string::npos) << flx_last_error();
    ASSERT_TRUE(succeeded(flx_wait(&request)));
    EXPECT_EQ(out[999], sum);
    out[999] = 0;
    ASSERT_TRUE(succeeded(on_stream()));
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    EXPECT_EQ(out[999], sum);

    // Of one that the program has freed the end is awaited.
    ASSERT_TRUE(succeeded(flx_iallreduce(in.data(), out.data(), in.size(), FLX_INT32, FLX_SUM, comm, &request)));
    ASSERT_TRUE(succeeded(flx_request_free(&request)));
    ASSERT_TRUE(succeeded(on_stream()));
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    EXPECT_EQ(out[999], sum);
}

}  // namespace
}  // namespace flx::test
