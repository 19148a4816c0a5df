/// \file explain.h
/// Why a job does not go on: which rank everybody waits for, and what that one does.
#pragma once

#include <string>
#include <vector>

#include "runtime/record/reader.h"

namespace flx::record {

enum class Trouble : uint8_t {
    late,       ///< a rank that has not made the call, and computes or sleeps outside FLX
    stopped,    ///< one that a signal or a debugger has stopped
    dead,       ///< one that is gone
    broken,     ///< the communicator has ended with an error, which says why
    mismatch,   ///< calls that do not match
    elsewhere,  ///< ranks wait for one of which nothing is known here: it is on another host, or not in the record
    link,       ///< a link that carries nothing, or far less than it did, while others do
    slow,       ///< all have made the call and it is not over: bytes are under way
};

struct Finding {
    Trouble trouble = Trouble::late;
    size_t process = 0;    ///< of those given: the one to look at; one that waits, where nothing is known of that
    pid_t pid = 0;         ///< its; 0: it has none that is known here
    std::string host;      ///< its
    uint32_t comm = 0;     ///< the communicator's id
    int rank = -1;         ///< on it, of the one to look at
    size_t waiting = 0;    ///< ranks that wait, all in all
    std::string sentence;  ///< who waits for whom in what, and what that rank does
    std::string advice;    ///< what to do
};

/// `now` and, some milliseconds before it, `before` of the same processes (and maybe of others), from which it is told
/// who computes. Only calls that have lasted for `patience_ns` count as waits.
std::vector<Finding> explain_job(const std::vector<const ProcessSeen *> &now, const std::vector<ProcessSeen> &before,
                                 int64_t patience_ns);
std::vector<Finding> explain(const std::vector<ProcessSeen> &now, const std::vector<ProcessSeen> &before,
                             int64_t patience_ns);

/// As in JSON.
std::string name_of(Trouble trouble);

}  // namespace flx::record
