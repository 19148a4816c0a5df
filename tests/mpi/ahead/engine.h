/// \file engine.h
/// Who carries calls out: FLX, or MPI's own interface with or without a library in front of it.
#pragma once

#include <cstddef>

#include "tests/mpi/ahead/call.h"
#include "tests/mpi/ahead/plan.h"

namespace flx::test::ahead {

/// One thread's. Functions that can fail say why: null is success.
class Engine {
  public:
    using Sentence = const char *;
    static constexpr size_t kSlots = 64;
    static constexpr int kNone = -1;

    virtual ~Engine() = default;

    /// Blocking and grouped calls leave nothing in `slot`; persistent ones are made and started.
    virtual Sentence issue(const Call &call, size_t slot) = 0;
    /// A persistent request once more.
    virtual Sentence start(size_t slot) = 0;
    virtual Sentence free(size_t slot) = 0;

    virtual Sentence wait(size_t slot) = 0;
    virtual Sentence test(size_t slot, bool &done) = 0;
    // Of all slots; one that was done, or kNone.
    virtual Sentence wait_any(int &slot) = 0;
    virtual Sentence test_any(int &slot) = 0;
    virtual Sentence wait_all() = 0;

    virtual Sentence group_begin(size_t group) = 0;
    virtual Sentence group_end(size_t group) = 0;

    /// For the time of the program. `shared`: where the interface has memory of its own.
    virtual void *allocate(size_t bytes, bool shared) = 0;
    /// Whether `right` on all ranks, of this thread. Collective.
    virtual bool agree(bool right) = 0;
    /// At the end of a program that was right so far. Collective.
    virtual Sentence finish() { return nullptr; }
};

}  // namespace flx::test::ahead
