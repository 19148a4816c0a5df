#include "runtime/front/nccl/posting.h"

#include <algorithm>
#include <array>

#include "runtime/cuda/protocol/own_messages.h"
#include "runtime/front/nccl/communicators.h"

namespace flx::nccl {
namespace {

cuda::Message message_of(const Request &request) {
    const bool sends = request.kind == Kind::send;
    return {sends ? static_cast<char *>(const_cast<void *>(request.in)) : static_cast<char *>(request.out),
            request.count * size_of(request.type), request.root, sends};
}

/// Whether each that is sent is received, with its length.
bool pair_up(const std::vector<const Deferred *> &own, int rank) {
    std::vector<cuda::Message> messages;
    for (const Deferred *call : own)
        messages.push_back(message_of(call->request));
    std::vector<cuda::OwnMessage> pairs;
    return cuda::own_messages(messages, rank, pairs).ok();
}

}  // namespace

Divided divide(const std::vector<const Deferred *> &calls, int rank, Reason collectives,
               const std::function<Reason(const Request &)> &route) {
    Divided divided;
    std::vector<const Deferred *> own;
    for (const Deferred *call : calls) {
        const Request &request = call->request;
        const bool message = is_message(request.kind);
        const bool bytes = request.count != 0 && size_of(request.type) != 0;
        if (message && request.root == rank && bytes) {
            own.push_back(call);
            continue;
        }
        const Reason why = message ? route(request) : collectives;
        if (why == Reason::none)
            divided.posted.push_back(call);
        else
            divided.passed.push_back({call, why});
    }
    if (!divided.posted.empty() && pair_up(own, rank))
        divided.posted.insert(divided.posted.end(), own.begin(), own.end());
    else
        for (const Deferred *call : own)
            divided.passed.push_back({call, Reason::own});
    return divided;
}

std::vector<std::vector<cuda::Message>> rounds_of(const std::vector<cuda::Message> &messages, size_t most) {
    if (messages.size() <= most)
        return {messages};
    const size_t each = std::max<size_t>(1, most / (2 * kMaxRanks));
    std::array<std::array<size_t, kMaxRanks>, 2> seen{};
    std::vector<std::vector<cuda::Message>> rounds;
    for (const cuda::Message &message : messages) {
        const size_t round = seen[message.sends ? 1 : 0][message.peer]++ / each;
        rounds.resize(std::max(rounds.size(), round + 1));
        rounds[round].push_back(message);
    }
    return rounds;
}

Posting::Posting(Communicator &comm, const std::vector<const Deferred *> &calls, cudaStream_t first, bool beside)
    : comm_(comm), runner_(beside ? comm.aside() : first) {
    const auto join = [this](cudaStream_t stream) {
        if (stream != runner_ && std::find(others_.begin(), others_.end(), stream) == others_.end())
            others_.push_back(stream);
    };
    join(first);
    for (const Deferred *call : calls) {
        join(call->stream);
        messages_.push_back(message_of(call->request));
    }
}

Status Posting::begin() {
    for (cudaStream_t stream : others_) {
        FLX_TRY(engine().record(comm_.fork, stream, false));
        FLX_TRY(engine().wait(comm_.fork, runner_, false));
    }
    return {};
}

Status Posting::end() {
    if (!comm_.serves())
        return fail(Fault::comm_ended, "the communicator was aborted or revoked; another one must be made");
    FLX_TRY(comm_.note_capture(runner_));
    for (const auto &round : rounds_of(messages_, cuda::ManyMail::kMost))
        FLX_TRY(comm_.lane->post(round, runner_));
    if (others_.empty())
        return {};
    FLX_TRY(engine().record(comm_.fork, runner_, false));
    for (cudaStream_t stream : others_)
        FLX_TRY(engine().wait(comm_.fork, stream, false));
    return {};
}

}  // namespace flx::nccl
