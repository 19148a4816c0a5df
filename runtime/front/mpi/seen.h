/// \file seen.h
/// What others see of the calls that MPI gets (runtime/record/passed_calls.h): which call of which communicator a rank
/// is in, and since when. They are numbered for themselves on each communicator, agreements of the ranks on the way of
/// a call included, which are calls of MPI's as well.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/config.h"
#include "runtime/front/mpi/routing/collectives.h"
#include "runtime/record/passed_calls.h"

namespace flx::preload {

/// The process's record. It stays: MPI may be finalized by a destructor.
record::PassedCalls &passed_calls();
/// Makes it, as the knobs say, and has libflx write a trace where one is wanted. Of MPI_Init's end.
/// `job`: a number that is the same on all ranks, and no other job's.
void begin_to_be_seen(const Config &config, uint32_t job, bool threads);

/// What is seen of one of the program's communicators.
struct SeenComm {
    uint32_t place = record::kNowhere;
    uint64_t calls = 0;
    bool opened = false;
    uint32_t made = 0;  ///< its number among those of the same members, from 1, in the order of making; 0: not known
};
/// MPI made it, of these members. They make those that they have in common in one order, but where several threads of
/// theirs make some: those are not numbered.
void note_made(SeenComm &seen, const std::vector<int> &members);
/// Gives it a place. `members`: its ranks in MPI_COMM_WORLD; empty: they are not known (of two groups, or of several
/// programs), so that nobody can say who is late. One rank alone waits for nobody, and is not recorded.
void open_seen(SeenComm &seen, MPI_Comm comm, int rank, int size, const std::vector<int> &members);

/// A call of the program's, by what all ranks name alike.
struct Said {
    Collective collective = Collective::barrier;
    Form form = Form::blocking;
    size_t bytes = 0;  ///< or kBytesUnknown
    int root = -1;     ///< -1: it has none

    [[nodiscard]] CallRecord record() const;
};

/// While it lives, agreements of this thread are for that call.
class Saying {
  public:
    explicit Saying(const Said &said) { said_ = &said; }
    ~Saying() { said_ = nullptr; }
    Saying(const Saying &) = delete;
    Saying &operator=(const Saying &) = delete;
    static const Said *current() { return said_; }

  private:
    /// This library is there when the program begins, so its variables of threads can be where it takes no call to
    /// find them.
    [[gnu::tls_model("initial-exec")]] static inline constinit thread_local const Said *said_ = nullptr;
};

/// A call that MPI has, from its beginning to its end.
class Seen {
  public:
    Seen(MPI_Comm comm, const Said &said);
    /// An agreement for the call that the thread says.
    explicit Seen(MPI_Comm comm) {
        if (const Said *said = Saying::current(); said != nullptr)
            enter(comm, *said);
    }
    ~Seen() {
        if (stamp_ != 0)
            passed_calls().leave(stamp_);
    }
    Seen(const Seen &) = delete;
    Seen &operator=(const Seen &) = delete;
    /// MPI refused it for its arguments: the other ranks will not see it as a call of this one.
    void takes_back() const;

  private:
    void enter(MPI_Comm comm, const Said &said);
    uint64_t stamp_ = 0;
    SeenComm *comm_ = nullptr;
};

inline Seen::Seen(MPI_Comm comm, const Said &said) {
    enter(comm, said);
}

}  // namespace flx::preload
