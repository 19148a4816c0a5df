/// The trace of calls that are passed on to MPI, from before there is a communicator of FLX's.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/record/recorder.h"
#include "runtime/record/trace_part.h"
#include "tests/runtime/record/in_front.h"

namespace flx::record {
namespace {

class PassedTraceTest : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        std::string name = "/tmp/passed-trace-XXXXXX";
        folder_ = mkdtemp(name.data());
        const Status status = passed().begin({false, folder_ + "/out.json", "here", "0badcafe", false});
        ASSERT_TRUE(status.ok()) << status.sentence();
    }
    static void TearDownTestSuite() {
        Recorder::of_process({false, folder_ + "/out.json", "here", false});  // it is linked in
        std::filesystem::remove_all(folder_);
    }
    /// Bytes of the calls that the trace has, in order.
    static std::vector<uint64_t> traced() {
        std::vector<uint64_t> bytes;
        for (const auto &file : std::filesystem::directory_iterator(folder_ + "/out.json.parts")) {
            TracePart part;
            if (!TracePart::open(file.path(), part).ok())
                continue;
            for (const Entry &entry : part.entries())
                if (entry.kind.load() == static_cast<uint64_t>(EntryKind::call))
                    bytes.push_back(
                        std::bit_cast<CallRecord>(std::array<uint64_t, 4>{entry.data[0].load(), entry.data[1].load(),
                                                                          entry.data[2].load(), entry.data[3].load()})
                            .bytes);
        }
        return bytes;
    }

    static std::string folder_;
};

std::string PassedTraceTest::folder_;

TEST_F(PassedTraceTest, BeginsWithTheRecordAndLacksWhatWasNone) {
    const uint32_t place = passed().open({kMpiIds, 0, 2, 1, 77, {}});
    passed().leave(passed().enter(place, bcast(8), 1));
    const uint64_t refused = passed().enter(place, bcast(16), 2);
    passed().take_back(refused, place, 1);
    passed().leave(refused);
    passed().leave(passed().enter(place, bcast(24), 2));
    EXPECT_EQ(traced(), (std::vector<uint64_t>{8, 24}));
    passed().close(place);
}

}  // namespace
}  // namespace flx::record
