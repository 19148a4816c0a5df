/// Messages of a group on CUDA.
#include "runtime/cuda/near/device_group.h"
#include "runtime/cuda/protocol/own_messages.h"

namespace flx::cuda {
namespace {

constexpr uint32_t kThreads = 512;

}  // namespace

/// Memory that was registered, freed and allocated again is another's there.
char *DeviceGroup::seen_by_peer(const Message &message) const {
    if (message.bytes < MailboxLayout::kLeastStraight)
        return nullptr;
    for (const SharedMemory &region : regions_)
        if (region.holds(message.memory, message.bytes) && region.current())
            return region.seen_by(message.peer) + (message.memory - region.base());
    return nullptr;
}

template <class AnyMail>
Status DeviceGroup::post_as(const void *kernel, std::span<const Message> messages, CUstream_st *stream) {
    AnyMail mail;
    mail.layout = room_.mailbox;
    mail.job.rank = rank_;
    mail.job.ranks = ranks_;
    for (int rank = 0; rank < ranks_; ++rank)
        mail.job.windows[rank] = windows_.of(rank) + room_.mailbox_offset();
    mail.job.abort = watcher_.abort_word();
    mail.job.stuck = watcher_.stuck_word();
    mail.job.dead = dead_word();
    mail.refused = watcher_.refused_words();
    for (const Message &message : messages)
        if (travels(message))
            (void)mail.add(message, AnyMail::kOpen && !message.sends ? seen_by_peer(message) : nullptr);
    Status status = launch(kernel, mail.ways * mail.lanes, kThreads, &mail, stream);
    Status noted = note_end(stream, notes_ends_ && captures(stream), false);
    return status.ok() ? std::move(noted) : std::move(status);
}

Status DeviceGroup::post(std::span<const Message> messages, CUstream_st *stream) {
    FLX_TRY(watcher_.failure());
    const CurrentDevice current(device_);
    std::vector<OwnMessage> own;
    FLX_TRY(own_messages(messages, rank_, own));
    uint32_t count = 0;
    uint64_t sent = 0;
    for (const Message &message : messages) {
        count += travels(message) ? 1 : 0;
        sent += travels(message) && message.sends ? message.bytes : 0;
    }
    if (count > ManyMail::kMost)
        return fail(Fault::gpu_group, "{} messages at once on a GPU; {} are served, and several groups can carry more",
                    count, ManyMail::kMost);
    FLX_TRY(copy_own(own, stream));
    sent_.fetch_add(sent, std::memory_order_relaxed);
    if (count == 0)
        return {};
    if (count > Mail::kMost)
        return post_as<ManyMail>(many_mail_kernel(), messages, stream);
    const uint32_t blocks = 2 * (static_cast<uint32_t>(ranks_) - 1) * room_.mailbox.lanes;
    if (count > FewMail::kMost || blocks > multiprocessors_)
        return post_as<Mail>(mail_kernel(), messages, stream);
    return post_as<FewMail>(few_mail_kernel(), messages, stream);
}

}  // namespace flx::cuda
