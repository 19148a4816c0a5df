/// Waits that cross: an operation is under way on each of two communicators, and ranks wait for them in different
/// orders, so that each waits first for the one that the other does not wait for. MPI allows several threads, of which
/// one calls FLX, or two that each have two such communicators, or two of which one completes what the other began.
/// Meanwhile a further thread makes and frees communicators. With `single` MPI allows one thread, and there is one.
/// Within a host or, with `hosts`, between hosts.
#include <flx.h>
#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr unsigned kMostSeconds = 120;  // one that hangs ends
constexpr int kRounds = 4;
std::atomic<int> failures{0};

void expect(bool condition, const char *what) {
    if (condition)
        return;
    ++failures;
    std::fprintf(stderr, "%s: %s\n", what, flx_last_error());
}

/// A communicator and an allreduce on it.
class Lane {
  public:
    explicit Lane(MPI_Comm mpi_comm) {
        expect(flx_comm_create(mpi_comm, nullptr, &comm_) == FLX_SUCCESS, "create");
        flx_comm_rank(comm_, &rank_);
        flx_comm_size(comm_, &size_);
    }
    ~Lane() { expect(flx_comm_free(&comm_) == FLX_SUCCESS, "free"); }
    Lane(const Lane &) = delete;
    Lane &operator=(const Lane &) = delete;

    void begin(size_t count) {
        data_.assign(count, rank_ + 1);
        expect(flx_iallreduce(FLX_IN_PLACE, data_.data(), count, FLX_INT32, FLX_SUM, comm_, &request_) == FLX_SUCCESS,
               "begin");
    }
    void wait() {
        expect(flx_wait(&request_) == FLX_SUCCESS, "wait");
        check();
    }
    void test_until_done() {
        for (int done = 0; done == 0;)
            expect(flx_test(&request_, &done) == FLX_SUCCESS, "test");
        check();
    }
    void call(size_t count) {
        data_.assign(count, rank_ + 1);
        expect(flx_allreduce(FLX_IN_PLACE, data_.data(), count, FLX_INT32, FLX_SUM, comm_) == FLX_SUCCESS, "call");
        check();
    }
    /// Makes a communicator from this one.
    void part(bool all) {
        flx_comm_t made = nullptr;
        const flx_status_t status = all ? flx_comm_dup(comm_, &made) : flx_comm_split(comm_, rank_ % 2, 0, &made);
        expect(status == FLX_SUCCESS, "dup or split");
        expect(flx_comm_free(&made) == FLX_SUCCESS, "free of a part");
    }
    [[nodiscard]] bool odd() const { return rank_ % 2 != 0; }

  private:
    void check() const {
        bool right = true;
        for (const int32_t value : data_)
            right = right && value == size_ * (size_ + 1) / 2;
        expect(right, "a sum is wrong");
    }

    flx_comm_t comm_ = nullptr;
    flx_request_t request_ = FLX_REQUEST_NULL;
    int rank_ = 0;
    int size_ = 1;
    std::vector<int32_t> data_;
};

size_t count_in(int round) {
    return round % 2 == 0 ? 300'000 : 3000;  // in many chunks, and in few
}

/// One thread.
void cross(Lane &a, Lane &b) {
    for (int round = 0; round < kRounds; ++round) {
        a.begin(count_in(round));
        b.begin(count_in(round));
        (a.odd() ? b : a).wait();
        (a.odd() ? a : b).wait();
        // A call that blocks on the one, beside what is under way on the other.
        a.begin(count_in(round));
        if (a.odd())
            a.wait();
        b.call(count_in(round));
        if (!a.odd())
            a.wait();
        a.begin(count_in(round));
        b.begin(count_in(round));
        (a.odd() ? b : a).test_until_done();
        (a.odd() ? a : b).wait();
    }
}

/// Ranks make a communicator before they wait for what is under way on another, or after.
void make_meanwhile(MPI_Comm mpi_comm, Lane &a) {
    for (int round = 0; round < kRounds; ++round) {
        a.begin(count_in(round));
        if (a.odd())
            a.wait();
        Lane(mpi_comm).call(10);
        if (!a.odd())
            a.wait();
        a.begin(count_in(round));
        if (!a.odd())
            a.wait();
        a.part(round % 2 == 0);
        if (a.odd())
            a.wait();
    }
}

/// The other thread completes what this one began, while this one is in a wait on the other communicator, which moves
/// the first one's operation, too.
void hand_over(Lane &a, Lane &b) {
    for (int round = 0; round < kRounds; ++round) {
        a.begin(count_in(round));
        b.begin(count_in(round));
        std::thread other([&] { b.wait(); });
        a.wait();
        other.join();
    }
}

void make_and_free(MPI_Comm mpi_comm, const std::atomic<bool> &ends) {
    for (int all_end = 0; all_end == 0;) {
        Lane lane(mpi_comm);
        lane.call(100);
        lane.begin(3000);
        lane.wait();
        const int mine = ends ? 1 : 0;
        MPI_Allreduce(&mine, &all_end, 1, MPI_INT, MPI_MIN, mpi_comm);
    }
}

}  // namespace

int main(int argc, char **argv) {
    constexpr int kSkipped = 77;
    constexpr int kComms = 5;
    alarm(kMostSeconds);
    const std::string mode = argc > 1 ? argv[1] : "";
    const bool single = mode == "single";
    int level = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, single ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &level);
    if (!single && level != MPI_THREAD_MULTIPLE) {
        std::puts("skipped: this MPI does not allow several threads");
        MPI_Finalize();
        return kSkipped;
    }
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (mode == "hosts")
        setenv("FLX_HOST_ID", ("host" + std::to_string(rank)).c_str(), 1);
    MPI_Comm comms[kComms];
    for (MPI_Comm &comm : comms)
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    {
        Lane a(comms[0]);
        Lane b(comms[1]);
        cross(a, b);
        make_meanwhile(comms[2], a);
    }
    if (!single) {
        Lane a(comms[0]);
        Lane b(comms[1]);
        Lane c(comms[2]);
        Lane d(comms[3]);
        std::atomic<bool> ends{false};
        std::thread maker([&] { make_and_free(comms[4], ends); });
        std::thread other([&] { cross(c, d); });
        cross(b, a);
        other.join();
        hand_over(a, c);
        ends = true;
        maker.join();
    }
    int mine = failures;
    int all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (MPI_Comm &comm : comms)
        MPI_Comm_free(&comm);
    MPI_Finalize();
    return all == 0 ? 0 : 1;
}
