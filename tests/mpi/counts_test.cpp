/// Counts and displacements that no 32-bit number holds, on two ranks. Buffers show the same piece of memory again and
/// again, so that they cost little: data repeat with that piece, whose length divides no power of two, and what lands
/// in a wrong place, or is missing, shows. Results are written once, which collectives promise where they are not in
/// place (a chunk may be sent again).
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "tests/mpi/harness.h"

namespace flx::test {
namespace {

constexpr size_t kCount = (size_t{1} << 32) + 12'345;
constexpr size_t kPiece = size_t{4096} * 4099;

class Repeated {
  public:
    explicit Repeated(size_t bytes) : bytes_((bytes + kPiece - 1) / kPiece * kPiece) {
        const int file = memfd_create("flx_counts_test", 0);
        void *room = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        bool mapped = file >= 0 && ftruncate(file, kPiece) == 0 && room != MAP_FAILED;
        for (size_t at = 0; mapped && at < bytes_; at += kPiece)
            mapped = mmap(static_cast<std::byte *>(room) + at, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                          file, 0) != MAP_FAILED;
        if (file >= 0)
            close(file);
        if (mapped)
            memory_ = static_cast<uint8_t *>(room);
        else if (room != MAP_FAILED)
            munmap(room, bytes_);
    }
    ~Repeated() {
        if (memory_ != nullptr)
            munmap(memory_, bytes_);
    }
    Repeated(const Repeated &) = delete;
    Repeated &operator=(const Repeated &) = delete;

    [[nodiscard]] uint8_t *data() const { return memory_; }
    /// Puts value(i) everywhere.
    template <typename Value>
    void fill(Value &&value) {
        for (size_t i = 0; i < kPiece; ++i)
            memory_[i] = value(i);
    }
    template <typename Value>
    [[nodiscard]] testing::AssertionResult holds(Value &&value) const {
        for (size_t i = 0; i < kPiece; ++i)
            if (memory_[i] != value(i))
                return testing::AssertionFailure() << "byte " << i << " of the piece is wrong";
        return testing::AssertionSuccess();
    }

  private:
    size_t bytes_;
    uint8_t *memory_ = nullptr;
};

uint8_t value(size_t i, int rank) {
    return static_cast<uint8_t>((i * 2'654'435'761U >> 13) + static_cast<size_t>(rank));
}

class Counts : public testing::Test {
  protected:
    void SetUp() override {
        if (world_size() != 2)
            GTEST_SKIP() << "skipped: for two ranks";
        ASSERT_TRUE(everywhere(in_.data() != nullptr && out_.data() != nullptr)) << "no address space";
        comm_ = Comm::world();
        ASSERT_TRUE(comm_);
        in_.fill([&](size_t i) { return value(i, comm_.rank()); });
        out_.fill([](size_t) { return uint8_t{0}; });
    }

    Comm comm_;
    Repeated in_{kCount};
    Repeated out_{kCount};
};

TEST_F(Counts, Bcast) {
    Repeated &buffer = comm_.rank() == 1 ? in_ : out_;
    ASSERT_TRUE(succeeded(flx_bcast(buffer.data(), kCount, FLX_UINT8, 1, comm_)));
    EXPECT_TRUE(buffer.holds([](size_t i) { return value(i, 1); }));
}

TEST_F(Counts, Allreduce) {
    ASSERT_TRUE(succeeded(flx_allreduce(in_.data(), out_.data(), kCount, FLX_UINT8, FLX_BXOR, comm_)));
    EXPECT_TRUE(out_.holds([](size_t i) { return static_cast<uint8_t>(value(i, 0) ^ value(i, 1)); }));
}

/// Steps: cells of a block are numbered with 32 bits.
TEST_F(Counts, NonBlockingScan) {
    flx_request_t request = FLX_REQUEST_NULL;
    ASSERT_TRUE(succeeded(flx_iscan(in_.data(), out_.data(), kCount, FLX_UINT8, FLX_SUM, comm_, &request)));
    ASSERT_TRUE(succeeded(flx_wait(&request)));
    const bool second = comm_.rank() == 1;
    EXPECT_TRUE(
        out_.holds([second](size_t i) { return static_cast<uint8_t>(value(i, 0) + (second ? value(i, 1) : 0)); }));
}

/// A message, and a displacement beyond.
TEST_F(Counts, Gatherv) {
    const std::array<size_t, 2> counts = {1, kCount};
    const std::array<size_t, 2> displs = {kCount, 0};
    ASSERT_TRUE(succeeded(flx_gatherv(in_.data(), counts[static_cast<size_t>(comm_.rank())], out_.data(), counts.data(),
                                      displs.data(), FLX_UINT8, 0, comm_)));
    if (comm_.rank() == 0) {
        // The byte at the displacement lies where bytes of rank 1 do, whichever comes last.
        constexpr size_t kShared = kCount % kPiece;
        const uint8_t there = out_.data()[kShared];
        EXPECT_TRUE(there == value(0, 0) || there == value(kShared, 1)) << int{there};
        EXPECT_TRUE(out_.holds([there](size_t i) { return i == kShared ? there : value(i, 1); }));
    }
}

}  // namespace
}  // namespace flx::test
