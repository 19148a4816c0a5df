#include "apps/flx_lab/replay.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

#include "apps/bench/meet.h"
#include "apps/common/clock.h"

namespace flx::bench::lab {
namespace {

constexpr size_t kPage = 4096;

using apps::now;

/// What rank 0's clock shows, less this rank's: of several questions, the one that was answered soonest tells most
/// (Cristian, Distributed Computing 3, 1989). A barrier would not do: on a busy machine ranks leave it seconds apart.
double ahead_of_here(MPI_Comm mpi, int rank, int ranks) {
    constexpr int kQuestions = 20;
    double ahead = 0;
    double soonest = 0;
    for (int asking = 1; asking < ranks; ++asking) {
        for (int i = 0; i < kQuestions; ++i) {
            double there = 0;
            if (rank == 0) {
                MPI_Recv(&there, 1, MPI_DOUBLE, asking, 0, mpi, MPI_STATUS_IGNORE);
                there = now();
                MPI_Send(&there, 1, MPI_DOUBLE, asking, 0, mpi);
            } else if (rank == asking) {
                const double asked = now();
                MPI_Sendrecv(&asked, 1, MPI_DOUBLE, 0, 0, &there, 1, MPI_DOUBLE, 0, 0, mpi, MPI_STATUS_IGNORE);
                const double answered = now();
                if (i == 0 || answered - asked < soonest) {
                    soonest = answered - asked;
                    ahead = there - (asked + answered) / 2;
                }
            }
        }
    }
    return ahead;
}

/// What stands at the beginning of page `page` of message `number`.
uint64_t stamp(uint64_t number, uint64_t page) {
    return (number * 0x9e3779b97f4a7c15U) ^ (page + 1) * 0xbf58476d1ce4e5b9U;
}

void write_stamps(std::vector<std::byte> &buffer, uint64_t bytes, uint64_t number) {
    for (uint64_t at = 0; at + sizeof(uint64_t) <= bytes; at += kPage) {
        const uint64_t value = stamp(number, at / kPage);
        std::memcpy(buffer.data() + at, &value, sizeof value);
    }
}

uint64_t wrong_stamps(const std::vector<std::byte> &buffer, uint64_t bytes, uint64_t number) {
    uint64_t wrong = 0;
    for (uint64_t at = 0; at + sizeof(uint64_t) <= bytes; at += kPage) {
        uint64_t value = 0;
        std::memcpy(&value, buffer.data() + at, sizeof value);
        wrong += value != stamp(number, at / kPage) ? 1 : 0;
    }
    return wrong;
}

/// FLX_LEND for the time in which a communicator is made.
class LendSetting {
  public:
    explicit LendSetting(const std::string &value) {
        if (const char *before = std::getenv("FLX_LEND")) {
            before_ = before;
        }
        setenv("FLX_LEND", value.c_str(), 1);
    }
    ~LendSetting() {
        if (before_) {
            setenv("FLX_LEND", before_->c_str(), 1);
        } else {
            unsetenv("FLX_LEND");
        }
    }
    LendSetting(const LendSetting &) = delete;
    LendSetting &operator=(const LendSetting &) = delete;

  private:
    std::optional<std::string> before_;
};

struct Played {
    flx_comm_t comm = nullptr;
    ArrivalsWay *way = nullptr;
};

/// One rank's part of one round, which begins at `start` by this rank's clock. `number`: of the first message.
flx_status_t play(const std::vector<Arrived> &round, uint64_t number, Played side, int rank, double start,
                  std::vector<std::byte> &buffer) {
    for (size_t i = 0; i < round.size(); ++i, ++number) {
        const Arrived &message = round[i];
        flx_status_t status = FLX_SUCCESS;
        if (message.from == rank) {
            std::this_thread::sleep_for(std::chrono::duration<double>(start + message.seconds - now()));
            write_stamps(buffer, message.bytes, number);
            status = flx_send(buffer.data(), message.bytes, FLX_UINT8, message.to, side.comm);
        } else if (message.to == rank) {
            status = flx_recv(buffer.data(), message.bytes, FLX_UINT8, message.from, side.comm);
            side.way->seconds[number] = now() - start - message.seconds;
            side.way->wrong += wrong_stamps(buffer, message.bytes, number);
        }
        if (status != FLX_SUCCESS) {
            return status;
        }
    }
    return FLX_SUCCESS;
}

/// Each message was timed on its receiver.
void gather(ArrivalsWay &way, MPI_Comm mpi) {
    MPI_Allreduce(MPI_IN_PLACE, way.seconds.data(), static_cast<int>(way.seconds.size()), MPI_DOUBLE, MPI_SUM, mpi);
    MPI_Allreduce(MPI_IN_PLACE, &way.wrong, 1, MPI_UINT64_T, MPI_SUM, mpi);
}

}  // namespace

flx_status_t replay(const Options &options, MPI_Comm comm, ArrivalsResult &result) {
    int rank = 0;
    int ranks = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    result.trace = arrivals_of(options, ranks);
    const char *lend = std::getenv("FLX_LEND");
    result.bound.lend = "own";
    result.lent.lend = lend != nullptr && *lend != '\0' ? lend : "on";
    result.bound.seconds.assign(result.trace.size(), 0);
    result.lent.seconds.assign(result.trace.size(), 0);
    std::vector<std::byte> buffer(*std::max_element(options.sizes.begin(), options.sizes.end()) + sizeof(uint64_t));
    Played sides[] = {{nullptr, &result.bound}, {nullptr, &result.lent}};
    for (Played &side : sides) {
        const LendSetting setting(side.way->lend);
        if (const flx_status_t status = flx_comm_create(comm, nullptr, &side.comm); status != FLX_SUCCESS) {
            return status;
        }
    }
    const double ahead = ahead_of_here(comm, rank, ranks);
    uint64_t number = 0;
    for (int round = 0; round < kArrivalRounds; ++round) {
        const std::vector<Arrived> part = round_of(result.trace, round);
        for (int turn = 0; turn < 2; ++turn) {
            constexpr double kSoon = 0.5;  // seconds: all have heard of it by then
            meet(comm);                    // those that have nothing left must not hold up the others
            double start = now() + kSoon;
            MPI_Bcast(&start, 1, MPI_DOUBLE, 0, comm);
            const flx_status_t status = play(part, number, sides[(round + turn) % 2], rank, start - ahead, buffer);
            if (status != FLX_SUCCESS) {
                return status;
            }
        }
        number += part.size();
    }
    meet(comm);
    for (Played &side : sides) {
        gather(*side.way, comm);
        if (const flx_status_t status = flx_comm_free(&side.comm); status != FLX_SUCCESS) {
            return status;
        }
    }
    return FLX_SUCCESS;
}

}  // namespace flx::bench::lab
