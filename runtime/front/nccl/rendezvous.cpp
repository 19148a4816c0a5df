#include "runtime/front/nccl/rendezvous.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "runtime/base/clock.h"

namespace flx::nccl {
namespace {

constexpr size_t kPiece = 4096;
constexpr int kCircles = 8;

struct flock lock_of(short type, off_t at) {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = at;
    lock.l_len = 1;
    return lock;
}

Status system_error(const char *what, const std::string &name) {
    return fail(Fault::shm_refused, "{} of the shared memory {} in which ranks meet failed: {}", what, name,
                std::strerror(errno));
}

}  // namespace

/// Some ranks that exchange data: all of them (the first circle), or those of a split.
struct Rendezvous::Circle {
    struct alignas(64) Line {
        std::atomic<uint64_t> turn{0};
    };
    std::array<Line, kMaxRanks> arrived;
    std::atomic<uint32_t> taken{0};
    std::array<std::array<std::byte, kPiece>, kMaxRanks> data;
};

/// Zero at first, as the file is.
struct Rendezvous::Memory {
    std::atomic<uint32_t> attended{0};
    std::atomic<uint32_t> bound{0};  ///< masks of ranks
    std::atomic<uint32_t> left{0};
    std::atomic<uint32_t> votes{0};
    std::atomic<uint32_t> decision{0};  ///< 1: yes, 2: no
    AgreementBoard board;
    AgreementBoard outputs_board;
    std::array<Circle, kCircles> circles;
};

std::string key_of(std::initializer_list<std::string_view> parts) {
    constexpr uint64_t kPrime = 0x100000001b3;  // FNV-1a
    uint64_t first = 0xcbf29ce484222325;
    uint64_t second = 0x9e3779b97f4a7c15;
    const auto add = [&](unsigned char byte) {
        first = (first ^ byte) * kPrime;
        second = ((second ^ byte) * kPrime) ^ (second >> 29);
    };
    for (const std::string_view part : parts) {
        for (const char byte : part)
            add(static_cast<unsigned char>(byte));
        for (size_t length = part.size(), i = 0; i < sizeof length; ++i, length >>= 8)
            add(static_cast<unsigned char>(length & 0xff));
    }
    return fmt::format("{:016x}{:016x}", first, second);
}

Status Rendezvous::attend(const std::string &key, std::shared_ptr<Rendezvous> &result) {
    std::shared_ptr<Rendezvous> made(new Rendezvous);
    made->name_ = "/flx-nccl-" + key;  // runtime/shm/memory/segment.cpp removes such names if nobody has locked them
    made->file_.take([&] { return shm_open(made->name_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600); });
    if (made->file_.get() < 0)
        return system_error("opening", made->name_);
    struct stat found {};
    if (fstat(made->file_.get(), &found) != 0 || found.st_uid != geteuid())
        return fail(Fault::shm_refused,
                    "shared memory {} in which ranks meet is another user's; all ranks must be one user's",
                    made->name_);
    struct flock use = lock_of(F_RDLCK, 0);
    if (fcntl(made->file_.get(), F_OFD_SETLK, &use) != 0)
        return system_error("locking", made->name_);
    if (const int error = posix_fallocate(made->file_.get(), 0, sizeof(Memory)); error != 0) {
        errno = error;
        return system_error("making room", made->name_);
    }
    // Through a description of its own: forked children keep the mapping, and would keep the locks with it. The name is
    // there until all ranks have come.
    const int own = shm_open(made->name_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat mapped {};
    const bool same = own >= 0 && fstat(own, &mapped) == 0 && mapped.st_ino == found.st_ino;
    void *memory = same ? mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED, own, 0) : MAP_FAILED;
    if (own >= 0)
        close(own);
    if (memory == MAP_FAILED)
        return system_error("mapping", made->name_);
    made->memory_ = static_cast<Memory *>(memory);
    made->memory_->attended.fetch_add(1, std::memory_order_acq_rel);
    result = std::move(made);
    return {};
}

Rendezvous::~Rendezvous() {
    leave();
    remove_name();
    if (memory_ != nullptr)
        munmap(memory_, sizeof(Memory));
}

/// A later communicator may have the same name, with NCCL_COMM_ID: it goes only while it is this one's.
void Rendezvous::remove_name() {
    struct stat mine {};
    struct stat named {};
    if (!name_.empty() && fstat(file_.get(), &mine) == 0 && stat(("/dev/shm" + name_).c_str(), &named) == 0 &&
        mine.st_ino == named.st_ino)
        shm_unlink(name_.c_str());
    name_.clear();
}

bool Rendezvous::complete(int ranks) {
    remove_name();
    return ranks >= 2 && ranks <= kMaxRanks &&
           memory_->attended.load(std::memory_order_acquire) == static_cast<uint32_t>(ranks);
}

Status Rendezvous::bind(int rank, int ranks) {
    rank_ = rank;
    ranks_ = ranks;
    struct flock lock = lock_of(F_WRLCK, 1 + rank);
    if (fcntl(file_.get(), F_OFD_SETLK, &lock) != 0)
        return system_error("locking", name_);
    memory_->bound.fetch_or(1U << rank, std::memory_order_acq_rel);
    return {};
}

AgreementBoard &Rendezvous::board() {
    return memory_->board;
}
AgreementBoard &Rendezvous::outputs_board() {
    return memory_->outputs_board;
}

void Rendezvous::leave() {
    if (memory_ != nullptr && rank_ >= 0 && file_.get() >= 0)  // not a forked child
        memory_->left.fetch_or(1U << rank_, std::memory_order_acq_rel);
}

/// What ends a wait for `awaited`.
Status Rendezvous::look(int64_t waited_ns, int awaited) const {
    if ((memory_->left.load(std::memory_order_acquire) >> rank_ & 1) != 0)
        return fail(Fault::comm_given_up, "this rank has given up the communicator");
    if ((memory_->left.load(std::memory_order_acquire) >> awaited & 1) != 0)
        return fail(Fault::peer_gave_up, "rank {} has given up its communicator", awaited);
    if ((memory_->bound.load(std::memory_order_acquire) >> awaited & 1) != 0) {
        struct flock lock = lock_of(F_WRLCK, 1 + awaited);
        if (fcntl(file_.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK)
            return fail(Fault::peer_died, "rank {} died while the communicator was made; its own output says why",
                        awaited);
    }
    if (static_cast<double>(waited_ns) > patience_s_ * 1e9)
        return fail(
            Fault::peer_late,
            "rank {} did not come within {:g} s; all ranks must make the communicator, with FLX in front of NCCL",
            awaited, patience_s_);
    return {};
}

/// Spins, yields, then naps; looks at the awaited rank now and then.
class Rendezvous::Wait {
  public:
    explicit Wait(const Rendezvous &owner) : owner_(owner) {}
    Status once(int awaited) {
        constexpr int kSpins = 2000;
        constexpr int64_t kYieldNs = 2'000'000;
        constexpr int64_t kLookNs = 20'000'000;
        if (++turns_ < kSpins)
            return {};
        const int64_t now = now_ns();
        if (now - began_ < kYieldNs)
            sched_yield();
        else
            usleep(100);
        if (now - looked_ < kLookNs)
            return {};
        looked_ = now;
        return owner_.look(now - began_, awaited);
    }

  private:
    const Rendezvous &owner_;
    int turns_ = 0;
    int64_t began_ = now_ns();
    int64_t looked_ = began_;
};

bool Rendezvous::decide(bool yes) {
    constexpr uint32_t kYes = 1;
    constexpr uint32_t kNo = 2;
    std::atomic<uint32_t> &decision = memory_->decision;
    uint32_t none = 0;
    if (!yes)
        decision.compare_exchange_strong(none, kNo, std::memory_order_acq_rel);
    else if (memory_->votes.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(ranks_))
        decision.compare_exchange_strong(none, kYes, std::memory_order_acq_rel);
    Wait wait(*this);
    for (int turn = 0; decision.load(std::memory_order_acquire) == 0; ++turn) {
        const int other = turn % ranks_;
        if (other == rank_ || wait.once(other).ok())
            continue;
        none = 0;
        decision.compare_exchange_strong(none, kNo, std::memory_order_acq_rel);
    }
    return decision.load(std::memory_order_acquire) == kYes;
}

class ShmBootstrap final : public Bootstrap {
  public:
    /// `members`: ranks of the rendezvous, in the order of this group.
    ShmBootstrap(std::shared_ptr<Rendezvous> rendezvous, int circle, std::vector<int> members)
        : rendezvous_(std::move(rendezvous)),
          circle_(rendezvous_->memory_->circles[circle]),
          members_(std::move(members)) {
        rank_ = static_cast<int>(std::find(members_.begin(), members_.end(), rendezvous_->rank_) - members_.begin());
        circle_.taken.fetch_or(1U << rendezvous_->rank_, std::memory_order_acq_rel);
    }
    ~ShmBootstrap() override { circle_.taken.fetch_and(~(1U << rendezvous_->rank_), std::memory_order_acq_rel); }

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return static_cast<int>(members_.size()); }

    Status allgather(const void *mine, size_t bytes, void *all) override {
        const auto *from = static_cast<const std::byte *>(mine);
        auto *to = static_cast<std::byte *>(all);
        for (size_t at = 0; at < bytes; at += kPiece) {
            const size_t piece = std::min(kPiece, bytes - at);
            std::memcpy(circle_.data[members_[rank_]].data(), from + at, piece);
            FLX_TRY(barrier());
            for (int rank = 0; rank < size(); ++rank)
                std::memcpy(to + rank * bytes + at, circle_.data[members_[rank]].data(), piece);
            FLX_TRY(barrier());
        }
        return {};
    }

    Status barrier() override {
        ++turn_;
        circle_.arrived[members_[rank_]].turn.store(turn_, std::memory_order_release);
        Rendezvous::Wait wait(*rendezvous_);
        for (const int member : members_)
            while (circle_.arrived[member].turn.load(std::memory_order_acquire) < turn_)
                if (Status status = wait.once(member); !status.ok()) {
                    // It may have come before it went.
                    if (circle_.arrived[member].turn.load(std::memory_order_acquire) >= turn_)
                        break;
                    return status;
                }
        return {};
    }

    void progress() override {}

    Status split(int color, int key, std::unique_ptr<Bootstrap> &result) override {
        struct Wish {
            int color, key;
        };
        const Wish mine{color, key};
        std::vector<Wish> all(size());
        FLX_TRY(allgather(&mine, sizeof mine, all.data()));
        std::vector<int> chosen;  // of this group
        for (int rank = 0; rank < size(); ++rank)
            if (color >= 0 && all[rank].color == color)
                chosen.push_back(rank);
        std::stable_sort(chosen.begin(), chosen.end(), [&](int a, int b) { return all[a].key < all[b].key; });
        std::vector<int> members;
        for (const int rank : chosen)
            members.push_back(members_[rank]);
        // The first member finds room for the new group.
        int circle = kNone;
        if (!members.empty() && members.front() == rendezvous_->rank_)
            circle = take_circle();
        std::vector<int> circles(size());
        FLX_TRY(allgather(&circle, sizeof circle, circles.data()));
        if (std::find(circles.begin(), circles.end(), kFull) != circles.end())
            return fail(Fault::too_many_ranks, "ranks are in more than {} groups at a time; some must be freed first",
                        kCircles);
        result.reset();
        if (!members.empty())
            result = std::make_unique<ShmBootstrap>(rendezvous_, circles[chosen.front()], std::move(members));
        return barrier();
    }
    Status dup(std::unique_ptr<Bootstrap> &result) override { return split(0, rank_, result); }

  private:
    static constexpr int kNone = -1;
    static constexpr int kFull = -2;

    /// The index of one that nobody uses.
    int take_circle() {
        for (int index = 1; index < kCircles; ++index) {
            Rendezvous::Circle &circle = rendezvous_->memory_->circles[index];
            uint32_t nobody = 0;
            if (!circle.taken.compare_exchange_strong(nobody, 1U << rendezvous_->rank_, std::memory_order_acq_rel))
                continue;
            for (Rendezvous::Circle::Line &line : circle.arrived)
                line.turn.store(0, std::memory_order_release);
            return index;
        }
        return kFull;
    }

    std::shared_ptr<Rendezvous> rendezvous_;
    Rendezvous::Circle &circle_;
    std::vector<int> members_;
    int rank_ = 0;
    uint64_t turn_ = 0;
};

std::unique_ptr<Bootstrap> Rendezvous::bootstrap() {
    std::vector<int> members(ranks_);
    for (int rank = 0; rank < ranks_; ++rank)
        members[rank] = rank;
    return std::make_unique<ShmBootstrap>(shared_from_this(), 0, std::move(members));
}

}  // namespace flx::nccl
