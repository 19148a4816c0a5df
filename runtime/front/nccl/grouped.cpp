#include "runtime/front/nccl/grouped.h"

#include <algorithm>
#include <cstring>

namespace flx::nccl {
namespace {

/// Whether block r of one buffer goes to, or comes from, rank r, and every rank has one.
bool covers(const std::array<const char *, kMaxRanks> &blocks, int ranks, size_t bytes) {
    for (int rank = 0; rank < ranks; ++rank)
        if (blocks[rank] == nullptr || blocks[rank] != blocks[0] + rank * bytes)
            return false;
    return true;
}

}  // namespace

KeptConfig::KeptConfig(const ncclCollConfig_t *config) : theirs_(config) {
    constexpr size_t kMost = 4096;  // beyond that it was never initialised
    if (config->size < sizeof *config || config->size > kMost)
        return;
    bytes_.resize(config->size);
    std::memcpy(bytes_.data(), config, config->size);
    if (config->algSelection == nullptr)
        return;
    algorithm_ = config->algSelection;
    const char *const kept = algorithm_.c_str();
    std::memcpy(bytes_.data() + offsetof(ncclCollConfig_t, algSelection), &kept, sizeof kept);
}

const ncclCollConfig_t *KeptConfig::get() const {
    return bytes_.empty() ? theirs_ : reinterpret_cast<const ncclCollConfig_t *>(bytes_.data());
}

Gathered gather(const std::vector<const Deferred *> &calls, int ranks) {
    Gathered found;
    const Deferred &first = *calls.front();
    if (calls.size() == 1 && !is_message(first.request.kind)) {
        found.form = Gathered::Form::single;
        found.why = Reason::none;
        found.whole = first.request;
        return found;
    }
    const bool messages =
        std::all_of(calls.begin(), calls.end(), [](const Deferred *call) { return is_message(call->request.kind); });
    if (!messages || ranks > kMaxRanks || calls.size() != 2 * static_cast<size_t>(ranks))
        return found;
    const size_t bytes = first.request.count * size_of(first.request.type);
    if (bytes == 0)
        return found;
    std::array<const char *, kMaxRanks> from{};
    std::array<const char *, kMaxRanks> to{};
    for (const Deferred *call : calls) {
        const Request &request = call->request;
        const bool sends = request.kind == Kind::send;
        const char *&block = request.root >= 0 && request.root < ranks ? (sends ? from : to)[request.root] : from[0];
        const bool fits = request.root >= 0 && request.root < ranks && block == nullptr &&
                          request.count * size_of(request.type) == bytes && call->stream == first.stream;
        if (!fits)
            return found;
        block = static_cast<const char *>(sends ? request.in : request.out);
    }
    if (!covers(from, ranks, bytes) || !covers(to, ranks, bytes))
        return found;
    const size_t whole = bytes * ranks;
    if (from[0] < to[0] + whole && to[0] < from[0] + whole)
        return found;
    found.form = Gathered::Form::alltoall;
    found.why = Reason::none;
    found.whole = {Kind::alltoall, from[0], const_cast<char *>(to[0]), bytes, ncclUint8, ncclSum, 0};
    return found;
}

}  // namespace flx::nccl
