/// Random programs: many collectives, one after another, on communicators that are split, dupped and freed meanwhile.
#include <algorithm>
#include <array>

#include "tests/mpi/reference.h"

namespace flx::test {
namespace {

/// A communicator of FLX and the ranks of MPI_COMM_WORLD in it, in its order.
struct Group {
    Comm comm;
    std::vector<int> ranks;  ///< empty: this rank is not in it
};

Case random_case(Random &random, int size) {
    Case c;
    c.collective = static_cast<Collective>(random.below(kCollectives));
    c.dtype = dtype_at(random.below(kDtypes));
    c.op = fitting(static_cast<flx_op_t>(random.below(kOps)), c.dtype);
    // Mostly small, so that operations follow each other closely; some that need many chunks.
    const size_t kind = random.below(100);
    c.count = random.below(kind < 60 ? 40 : kind < 90 ? 3000 : kind < 98 ? 20000 : 150000);
    if (c.collective == Collective::allgather || c.collective == Collective::reduce_scatter_block)
        c.count /= size;
    c.root = static_cast<int>(random.below(size));
    c.in_place = random.below(2) != 0;
    c.shift = static_cast<int>(random.below(4));
    c.data = random.below(2) != 0 ? Data::random : Data::exact;
    c.seed = random.next();
    return c;
}

class Program {
  public:
    explicit Program(uint64_t seed) : random_(seed) {}

    void run(int operations) {
        groups_.emplace_back();
        groups_[0].comm = Comm::world();
        ASSERT_TRUE(groups_[0].comm);
        for (int rank = 0; rank < world_size(); ++rank)
            groups_[0].ranks.push_back(rank);
        for (int done = 0; done < operations && !testing::Test::HasFailure(); ++done) {
            if (done % 200 == 199)
                change_groups();
            const size_t index = random_.below(groups_.size());
            Group &group = groups_[index];
            // Every rank draws the same numbers, whether or not it takes part.
            const Case c = random_case(random_, static_cast<int>(group.ranks.size()));
            if (!group.comm)
                continue;
            EXPECT_TRUE(check(c, group.comm)) << "operation " << done << " on communicator " << index;
        }
    }

  private:
    void change_groups() {
        constexpr size_t kMost = 6;
        if (groups_.size() >= kMost)
            groups_.erase(groups_.begin() + 1 + static_cast<ptrdiff_t>(random_.below(groups_.size() - 1)));
        Group &from = groups_[random_.below(groups_.size())];
        Group made;
        if (random_.below(3) == 0) {
            made.ranks = from.ranks;
            if (from.comm) {
                flx_comm_t dup = nullptr;
                ASSERT_TRUE(succeeded(flx_comm_dup(from.comm, &dup)));
                made.comm = Comm(dup);
            }
        } else {
            split(from, made);
        }
        groups_.push_back(std::move(made));
    }

    /// Keeps the part with color 0; those of color 1 and of none have only taken part.
    void split(const Group &from, Group &made) {
        const bool backwards = random_.below(2) != 0;
        int color_of_mine = -1;
        int place = 0;
        for (size_t i = 0; i < from.ranks.size(); ++i) {
            const int rank = from.ranks[i];
            const auto draw = random_.below(4);
            const int color = draw < 2 || i == 0 ? 0 : draw == 2 ? 1 : -1;
            if (color == 0)
                made.ranks.push_back(rank);
            if (rank == world_rank()) {
                color_of_mine = color;
                place = static_cast<int>(i);
            }
        }
        if (backwards)
            std::reverse(made.ranks.begin(), made.ranks.end());
        if (!from.comm)
            return;
        flx_comm_t part = nullptr;
        ASSERT_TRUE(succeeded(flx_comm_split(from.comm, color_of_mine, backwards ? -place : place, &part)));
        ASSERT_EQ(part == nullptr, color_of_mine < 0);
        Comm comm(part);
        if (color_of_mine != 0)
            return;
        ASSERT_EQ(comm.size(), static_cast<int>(made.ranks.size()));
        ASSERT_EQ(made.ranks[comm.rank()], world_rank());
        made.comm = std::move(comm);
    }

    Random random_;
    std::vector<Group> groups_;
};

TEST(Programs, RandomOnesAreRight) {
    const int operations = full() ? 100000 : 4000;
    Program program(seed());
    program.run(operations);
}

/// Two programs over the same processes do not mix up their chunks: calls alternate between many communicators.
TEST(Programs, CommunicatorsDoNotMix) {
    std::vector<Comm> comms;
    for (int i = 0; i < 4; ++i) {
        comms.push_back(Comm::world());
        ASSERT_TRUE(comms.back());
    }
    Random random(seed());
    for (int call = 0; call < 100; ++call) {
        const Comm &comm = comms[random.below(comms.size())];
        const Case c = random_case(random, world_size());
        ASSERT_TRUE(check(c, comm));
    }
}

}  // namespace
}  // namespace flx::test
