#include "runtime/cuda/protocol/own_messages.h"

namespace flx::cuda {

Status own_messages(std::span<const Message> messages, int rank, std::vector<OwnMessage> &own) {
    own.clear();
    size_t received = 0;
    for (const Message &message : messages)
        if (message.peer == rank && message.sends)
            own.push_back({message.memory, nullptr, message.bytes});
    for (const Message &message : messages) {
        if (message.peer != rank || message.sends)
            continue;
        if (received < own.size() && own[received].bytes != message.bytes)
            return fail(Fault::bytes_differ, "rank {} sends itself {} bytes and receives {}; both must be the same",
                        rank, own[received].bytes, message.bytes);
        if (received < own.size())
            own[received].to = message.memory;
        ++received;
    }
    if (received != own.size())
        return fail(Fault::message_to_itself,
                    "rank {} sends itself {} messages and receives {} of them; in one group, or by flx_sendrecv, they "
                    "must be as many",
                    rank, own.size(), received);
    return {};
}

}  // namespace flx::cuda
