/// Errors that no public function meets on an ordinary machine, provoked where they come from.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/wait.h"
#include "runtime/process/bootstrap_mpi.h"
#include "runtime/process/liveness_doors.h"
#include "runtime/record/trace_files.h"
#include "runtime/shares/partition.h"
#include "runtime/shm/ways/fused.h"
#include "ucx_glue/context.h"

namespace flx {
namespace {

/// Whether `status` is of the kind, and its sentence has all of `words`.
testing::AssertionResult is(const Status &status, Fault fault, std::initializer_list<std::string> words) {
    if (status.number() != number_of(fault))
        return testing::AssertionFailure()
               << status.number() << " instead of " << number_of(fault) << ": " << status.sentence();
    for (const std::string &word : words)
        if (status.sentence().find(word) == std::string::npos)
            return testing::AssertionFailure() << "no \"" << word << "\" in \"" << status.sentence() << "\"";
    return testing::AssertionSuccess();
}

TEST(Provoked, ByMpiThatDoesNotRun) {
    std::unique_ptr<Bootstrap> bootstrap;
    const Status status = make_mpi_bootstrap(
        MPI_COMM_WORLD, [] { return Status(); }, bootstrap);
    EXPECT_TRUE(is(status, Fault::mpi_not_running, {"MPI is not initialized", "MPI_Init"}));
}

TEST(Provoked, ByTooManyLinks) {
    std::vector<std::string> links;
    for (size_t l = 0; l <= kMaxLinks; ++l)
        links.push_back(fmt::format("rail{}", l));
    PartitionVector vector;
    EXPECT_TRUE(is(parse_partition("rail0:1", links, vector), Fault::too_many_links,
                   {fmt::format("{} links", links.size()), "FLX_LINKS"}));
}

TEST(Provoked, ByAnAddressOfAnotherHost) {
    std::unique_ptr<liveness::Door> door;
    constexpr uint32_t kDocumentation = 0x010200c0;  // 192.0.2.1, which no host has
    EXPECT_TRUE(
        is(liveness::Door::open(liveness::ipv4_address(kDocumentation), door), Fault::no_socket, {"192.0.2.1"}));
}

TEST(Provoked, ByAFolderThatCannotBeMade) {
    std::string path;
    int fd = -1;
    EXPECT_TRUE(is(record::make_part("/proc/flx/train.json", 0, "h", {1, 0}, path, fd), Fault::not_written,
                   {"/proc/flx/train.json", "cannot be made"}));
    record::TraceMade made;
    EXPECT_NE(record::make_trace("/proc/flx/train.json", made).number(), 0);
}

TEST(Provoked, ByDevicesAndTransportsThatAreNot) {
    ucx::Context context;
    EXPECT_TRUE(is(context.open({"eth17", "eth17", "tcp", false}, {}), Fault::no_such_device, {"eth17", "ip link"}));
    EXPECT_TRUE(is(context.open({"odd", "memory", "warp", false}, {}), Fault::rail_not_opened, {"odd", "warp"}));
}

class Unwatched final : public Watch {
  public:
    void progress() override {}
    Status check(int64_t /*waited_ns*/) override { return {}; }
};

TEST(Provoked, ByAWayThatACollectiveLacks) {
    std::vector<std::byte> memory(shm::Fused::bytes(2, 64) + 64);
    const auto aligned = (reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64;
    shm::Fused fused(reinterpret_cast<std::byte *>(aligned), 0, 2, 64);
    Call call;
    call.operation.collective = algorithms::Collective::alltoallv;
    Unwatched watch;
    Waiter waiter(WaitPolicy(), watch);
    EXPECT_TRUE(is(fused.run(call, waiter), Fault::no_such_way, {"alltoallv"}));
}

}  // namespace
}  // namespace flx
