/// \file introduction.h
/// What a rank says of itself when the ranks of a communicator meet.
#pragma once

#include <cstdint>
#include <string>

#include "probe/cpus.h"
#include "runtime/base/status.h"

namespace flx {

struct Introduction {
    uint64_t uid = 0;  ///< of the process
    int pid = 0;
    std::string memory_host;  ///< equal where memory can be shared
    std::string hostname;
    std::string devices;   ///< of the network, as probe::to_text
    std::string liveness;  ///< Liveness::address
    probe::CpuMask cpus;   ///< its affinity
    std::string knobs;     ///< those that must be equal on all ranks, as text
    bool remembers;        ///< its process has something that an earlier communicator found out
};

/// The introduction as text, with the version of this library, for read_introduction().
std::string to_text(const Introduction &mine);
/// What `rank` said, to `rank_here`, whose own is `mine`. FLX_ERR_CONFIG if it runs another version of FLX, whose
/// messages and segments may be laid out otherwise, or if its knobs are not the same; FLX_ERR_SYSTEM if it cannot be
/// read.
Status read_introduction(const std::string &text, int rank, const Introduction &mine, int rank_here,
                         Introduction &theirs);

}  // namespace flx
