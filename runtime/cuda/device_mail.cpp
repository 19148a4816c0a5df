/// Messages of a group on CUDA.
#include "device_group.h"
#include "own_messages.h"

namespace flx::cuda {
namespace {

constexpr uint32_t kThreads = 512;

}  // namespace

Status DeviceGroup::open_mailbox(const Config &config) {
    int multiprocessors = 0;
    FLX_TRY_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device_));
    multiprocessors_ = static_cast<uint32_t>(multiprocessors);
    mailbox_layout_ = mailbox_for(config.size("FLX_CUDA_STAGING"), limits_.blocks, ranks_);
    void *memory = nullptr;
    FLX_TRY_CUDA(cudaMalloc(&memory, mailbox_layout_.bytes()));
    mailbox_ = static_cast<char *>(memory);
    FLX_TRY_CUDA(cudaMemsetAsync(mailbox_, 0, MailboxLayout::kHead, stream_));
    FLX_TRY_CUDA(cudaStreamSynchronize(stream_));
    return {};
}

Status DeviceGroup::post(std::span<const Message> messages, CUstream_st *stream) {
    FLX_TRY(watcher_.failure());
    const CurrentDevice current(device_);
    std::vector<OwnMessage> own;
    FLX_TRY(own_messages(messages, rank_, own));
    Mail mail;
    mail.layout = mailbox_layout_;
    mail.job.rank = rank_;
    mail.job.ranks = ranks_;
    for (int rank = 0; rank < ranks_; ++rank)
        mail.job.windows[rank] = mailboxes_.of(rank);
    mail.job.abort = watcher_.abort_word();
    mail.job.stuck = watcher_.stuck_word();
    mail.refused = watcher_.refused_words();
    uint64_t sent = 0;
    for (const Message &message : messages) {
        if (message.peer == rank_ || message.bytes == 0)
            continue;
        if (!mail.add(message))
            return fail(FLX_ERR_UNSUPPORTED, "more than {} messages at once on a GPU; several groups can carry them",
                        Mail::kMost);
        sent += message.sends ? message.bytes : 0;
    }
    FLX_TRY(copy_own(own, stream));
    sent_.fetch_add(sent, std::memory_order_relaxed);
    if (mail.count == 0)
        return {};
    const uint32_t blocks = mail.ways * mail.lanes;
    if (mail.count > FewMail::kMost || blocks > multiprocessors_)
        return launch(mail_kernel(), blocks, kThreads, &mail, stream);
    const FewMail few = few_of(mail);
    return launch(few_mail_kernel(), blocks, kThreads, &few, stream);
}

}  // namespace flx::cuda
