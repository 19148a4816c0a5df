/// \file call.h
/// What module flx's calls have in common: an outcome that becomes `ierror`, and for collectives the three forms of
/// flx.h (blocking, non-blocking, persistent), which one piece of code serves.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/include/flx.h"

#define TRY(expression)                                                        \
    do {                                                                       \
        if (const flx_status_t outcome = (expression); outcome != FLX_SUCCESS) \
            return outcome;                                                    \
    } while (false)

namespace flx::fortran {

/// Where this is not empty it is the thread's last error; else FLX has it.
inline thread_local std::string sentence;

inline const char *last_error() {
    return sentence.empty() ? flx_last_error() : sentence.c_str();
}

inline flx_status_t refuse(Fault fault, std::string_view words) {
    const Status status(fault, words);
    sentence = status.sentence();
    return status.code();
}

/// Ends the program as MPI's own errors do, all ranks of it: what runs at exit would meet FLX's threads, and the other
/// ranks would wait for this one.
[[noreturn]] inline void give_up() {
    std::fprintf(stderr, "FLX: %s\n", last_error());
    int begun = 0;
    int ended = 0;
    PMPI_Initialized(&begun);
    PMPI_Finalized(&ended);
    if (begun != 0 && ended == 0)
        PMPI_Abort(MPI_COMM_WORLD, 1);
    std::_Exit(1);
}

/// Calls `body`. Its outcome is the caller's if there is an `ierror`; else an error ends the program.
template <typename Body>
void finish(int *ierror, Body &&body) {
    flx_status_t status = FLX_SUCCESS;
    sentence.clear();
    try {
        status = body();
    } catch (const std::exception &error) {
        const Status caught = thrown(error, "this call");
        sentence = caught.sentence();
        status = caught.code();
    }
    if (ierror != nullptr)
        *ierror = status;
    else if (status != FLX_SUCCESS)
        give_up();
}

/// Communicators with an open group.
class Groups {
  public:
    void set(flx_comm_t comm, bool open) {
        const std::lock_guard guard(mutex_);
        if (open)
            open_.insert(comm);
        else
            open_.erase(comm);
    }
    bool has(flx_comm_t comm) {
        const std::lock_guard guard(mutex_);
        return open_.count(comm) != 0;
    }

  private:
    std::mutex mutex_;
    std::unordered_set<flx_comm_t> open_;
};

inline Groups &groups() {
    static Groups all;
    return all;
}

enum class Form : uint8_t { blocking, nonblocking, persistent };

/// One call on a communicator. `request` only where it does not block.
struct Call {
    flx_comm_t comm = nullptr;
    Form form = Form::blocking;
    flx_request_t *request = nullptr;

    /// Why arrays must lie in one piece, or null where a copy does, since all has ended when the call returns.
    [[nodiscard]] const char *why_in_one_piece() const {
        if (form != Form::blocking)
            return "in a call that returns before it has ended";
        return groups().has(comm) ? "in a group" : nullptr;
    }
};

/// The three functions of flx.h for one collective, to be called alike: without the arguments that `call` has.
template <auto Blocking, auto Nonblocking, auto Persistent>
struct Forms {
    template <typename... Arguments>
    flx_status_t operator()(const Call &call, Arguments... arguments) const {
        switch (call.form) {
            case Form::nonblocking:
                return Nonblocking(arguments..., call.comm, call.request);
            case Form::persistent:
                return Persistent(arguments..., call.comm, call.request);
            default:
                return Blocking(arguments..., call.comm);
        }
    }
};
#define FORMS(collective) (Forms<flx_##collective, flx_i##collective, flx_##collective##_init>{})

#define UNWRAP(...) __VA_ARGS__
/// What module flx calls for a collective: the function of this name, which takes a Call and what follows, with
/// `parameters` (the last is `comm`) in its three forms.
#define EXPORT_COLLECTIVE(collective, parameters, ...)                                             \
    void flx_fortran_##collective(UNWRAP parameters, int *ierror) {                                \
        finish(ierror, [&] { return collective(Call{*comm} __VA_OPT__(, ) __VA_ARGS__); });        \
    }                                                                                              \
    void flx_fortran_i##collective(UNWRAP parameters, flx_request_t *request, int *ierror) {       \
        *request = FLX_REQUEST_NULL;                                                               \
        const Call call{*comm, Form::nonblocking, request};                                        \
        finish(ierror, [&] { return collective(call __VA_OPT__(, ) __VA_ARGS__); });               \
    }                                                                                              \
    void flx_fortran_##collective##_init(UNWRAP parameters, flx_request_t *request, int *ierror) { \
        *request = FLX_REQUEST_NULL;                                                               \
        const Call call{*comm, Form::persistent, request};                                         \
        finish(ierror, [&] { return collective(call __VA_OPT__(, ) __VA_ARGS__); });               \
    }

}  // namespace flx::fortran
