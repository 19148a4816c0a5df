/// \file own_messages.h
/// Messages of a call that a rank sends to itself.
#pragma once

#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/cuda/protocol/mailbox.h"

namespace flx::cuda {

struct OwnMessage {
    const char *from = nullptr;
    char *to = nullptr;
    uint64_t bytes = 0;
};

/// The n-th that is sent meets the n-th that is received. An error where there is none, or it has another size.
Status own_messages(std::span<const Message> messages, int rank, std::vector<OwnMessage> &own);

}  // namespace flx::cuda
