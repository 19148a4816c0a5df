#include "runtime/front/python/torch/messages.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "runtime/front/python/torch/meeting.h"
#include "runtime/front/python/torch/tensors.h"

namespace flx::torch {
namespace {

/// Goes before each message.
struct Head {
    int64_t tag;
    uint64_t bytes;
};
/// Of what a rank sends last.
constexpr int64_t kLeaves = -1;

/// Messages of at most so many bytes do not wait for who receives them.
constexpr size_t kCopiedBytes = size_t{64} << 10;
/// How long the end of a group waits for messages that nobody has waited for.
constexpr Milliseconds kReceiversGrace(1000);
/// How long messages wait for the other rank to begin its first: as long as it takes, since who waits for them gives up
/// in time.
constexpr Milliseconds kWeek = std::chrono::hours(24 * 7);

flx_status_t send_bytes(const void *data, size_t bytes, flx_comm_t comm) {
    return flx_send(data, bytes, FLX_UINT8, 1, comm);
}

flx_status_t receive_bytes(void *data, size_t bytes, flx_comm_t comm) {
    return flx_recv(data, bytes, FLX_UINT8, 0, comm);
}

flx_status_t send_message(const at::Tensor &tensor, int64_t tag, flx_comm_t comm) {
    const Head head{tag, tensor.nbytes()};
    const flx_status_t status = send_bytes(&head, sizeof head, comm);
    return status != FLX_SUCCESS || head.bytes == 0 ? status : send_bytes(tensor.data_ptr(), head.bytes, comm);
}

void check_peer(int peer, int rank, int64_t tag) {
    TORCH_CHECK(peer != rank, "rank ", rank, " cannot send to itself");
    TORCH_CHECK(tag >= 0, "tags are 0 or more, and not ", tag);
}

}  // namespace

/// Of what is wanted, the first with `tag` that nobody else has taken. With the lock.
std::shared_ptr<Wanted> Inbox::take(int64_t tag) {
    for (size_t i = 0; i < wanted_.size(); ++i)
        if (wanted_[i]->tag == tag && wanted_[i]->take()) {
            std::shared_ptr<Wanted> found = std::move(wanted_[i]);
            wanted_.erase(wanted_.begin() + static_cast<ptrdiff_t>(i));
            return found;
        }
    return nullptr;
}

/// Of one that was taken. Others may hold it for long, and are not to hold what it has.
void Inbox::complete(Wanted &wanted, const at::Tensor &bytes, std::string error) {
    const at::Tensor into = std::move(wanted.into);
    const c10::intrusive_ptr<FlxWork> work = std::move(wanted.work);
    work->came_from(from_);
    if (error.empty() && bytes.nbytes() != into.nbytes())
        error = "rank " + std::to_string(from_) + " sent " + std::to_string(bytes.nbytes()) + " bytes with tag " +
                std::to_string(wanted.tag) + ", where " + std::to_string(into.nbytes()) + " are awaited";
    else if (error.empty() && bytes.nbytes() != 0 && bytes.data_ptr() != into.data_ptr())
        std::memcpy(into.data_ptr(), bytes.data_ptr(), bytes.nbytes());
    complete_(*work, error);
}

bool Inbox::want(const std::shared_ptr<Wanted> &wanted) {
    at::Tensor bytes;
    {
        const std::lock_guard guard(mutex_);
        const auto kept =
            std::find_if(kept_.begin(), kept_.end(), [&](const Kept &each) { return each.tag == wanted->tag; });
        if (kept == kept_.end()) {
            forget_taken();
            wanted_.push_back(wanted);
            return !std::exchange(reads_, true);
        }
        if (!wanted->take())
            return false;
        bytes = std::move(kept->bytes);
        kept_.erase(kept);
    }
    complete(*wanted, bytes);
    return false;
}

/// What others have brought. With the lock.
void Inbox::forget_taken() {
    wanted_.erase(std::remove_if(wanted_.begin(), wanted_.end(),
                                 [](const std::shared_ptr<Wanted> &each) { return each->taken.load(); }),
                  wanted_.end());
}

/// Whether anything is wanted that nobody else has taken.
bool Inbox::goes_on() {
    const std::lock_guard guard(mutex_);
    forget_taken();
    reads_ = !wanted_.empty();
    return reads_;
}

flx_status_t Inbox::read(flx_comm_t comm) {
    while (goes_on()) {
        if (!ended_.empty())
            throw std::runtime_error(ended_);
        flx_status_t status = FLX_SUCCESS;
        try {
            status = read_one(comm);
            if (status != FLX_SUCCESS)
                ended_ = flx_last_error();
        } catch (const std::exception &thrown) {  // no memory: what comes next is not known
            ended_ = thrown.what();
        }
    }
    return FLX_SUCCESS;
}

flx_status_t Inbox::read_one(flx_comm_t comm) {
    Head head{};
    if (const flx_status_t status = receive_bytes(&head, sizeof head, comm); status != FLX_SUCCESS)
        return status;
    if (head.tag == kLeaves)
        throw std::runtime_error("rank " + std::to_string(from_) + " has left this process group");
    std::shared_ptr<Wanted> its;
    {
        const std::lock_guard guard(mutex_);
        its = take(head.tag);
    }
    at::Tensor bytes;
    try {
        bytes = its && its->into.nbytes() == head.bytes
                    ? its->into
                    : at::empty({static_cast<int64_t>(head.bytes)}, at::TensorOptions().dtype(at::kByte));
    } catch (const std::exception &thrown) {
        if (its)
            complete(*its, {}, thrown.what());
        throw;
    }
    const flx_status_t status =
        head.bytes != 0 ? receive_bytes(bytes.data_ptr(), head.bytes, comm) : flx_status_t{FLX_SUCCESS};
    if (status != FLX_SUCCESS) {
        if (its)
            complete(*its, {}, flx_last_error());
        return status;
    }
    if (!its) {  // somebody may want it by now
        const std::lock_guard guard(mutex_);
        its = take(head.tag);
        if (!its)
            kept_.push_back({head.tag, bytes});
    }
    if (its)
        complete(*its, bytes);
    return FLX_SUCCESS;
}

void Inbox::fail(const std::string &error) {
    std::deque<std::shared_ptr<Wanted>> all;
    {
        const std::lock_guard guard(mutex_);
        all.swap(wanted_);
        reads_ = false;
    }
    // From whichever rank: those that are left may still send it.
    for (const std::shared_ptr<Wanted> &wanted : all)
        if (--wanted->inboxes == 0 && wanted->take())
            complete(*wanted, {}, error);
}

Messages::Messages(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Milliseconds timeout)
    : store_(std::move(store)), rank_(rank), size_(size), timeout_(timeout), process_(getpid()) {}

Messages::Channel Messages::channel(int peer, bool sends) {
    check_process(process_);
    const std::lock_guard guard(mutex_);
    Channel &channel = channels_[{peer, sends}];
    if (!channel.queue) {
        const std::string at =
            "flx/" + std::to_string(sends ? rank_ : peer) + "-" + std::to_string(sends ? peer : rank_) + "/";
        const auto open = [store = store_, at, sends](const std::atomic<bool> &over) {
            return meet(*store, at, sends ? 0 : 1, 2, {kWeek, sends ? nullptr : &over, true});
        };
        // What has not been sent by the end of the group does not come any more.
        channel.queue = std::make_shared<Queue>(open, sends ? timeout_ : kReceiversGrace);
        if (!sends)
            channel.inbox = std::make_shared<Inbox>(peer, channel.queue->completer());
    }
    return channel;
}

c10::intrusive_ptr<FlxWork> Messages::work(c10d::OpType type, const char *name, const at::Tensor &tensor,
                                           const std::shared_ptr<Queue> &queue) const {
    return c10::make_intrusive<FlxWork>(rank_, type, name, Tensors{tensor}, Tensors{tensor}, timeout_, queue);
}

c10::intrusive_ptr<FlxWork> Messages::send(const at::Tensor &tensor, int to, int64_t tag) {
    check_root(to, size_);
    check_peer(to, rank_, tag);
    const Channel channel = this->channel(to, true);
    auto work = this->work(c10d::OpType::SEND, "flx:send", tensor, channel.queue);
    if (tensor.nbytes() > kCopiedBytes) {
        channel.queue->add(work, [tensor, tag](flx_comm_t comm) { return send_message(tensor, tag, comm); });
        return work;
    }
    channel.queue->add_call([copy = tensor.clone(), tag](flx_comm_t comm) { return send_message(copy, tag, comm); },
                            [](const std::string &) {});  // messages after it fail, too
    work->complete("");
    return work;
}

void Messages::want(const Channel &channel, const std::shared_ptr<Wanted> &wanted) {
    if (channel.inbox->want(wanted))
        channel.queue->add_call([inbox = channel.inbox](flx_comm_t comm) { return inbox->read(comm); },
                                [inbox = channel.inbox](const std::string &error) { inbox->fail(error); });
}

c10::intrusive_ptr<FlxWork> Messages::receive(const at::Tensor &tensor, int from, int64_t tag) {
    check_root(from, size_);
    check_peer(from, rank_, tag);
    const Channel channel = this->channel(from, false);
    auto work = this->work(c10d::OpType::RECV, "flx:recv", tensor, channel.queue);
    want(channel, std::make_shared<Wanted>(tag, tensor, work, 1));
    return work;
}

c10::intrusive_ptr<FlxWork> Messages::receive_from_any(const at::Tensor &tensor, int64_t tag) {
    TORCH_CHECK(size_ > 1, "there is no other rank that could send");
    TORCH_CHECK(tag >= 0, "tags are 0 or more, and not ", tag);
    std::vector<Channel> channels;
    for (int peer = 0; peer < size_; ++peer)
        if (peer != rank_)
            channels.push_back(channel(peer, false));
    auto work = this->work(c10d::OpType::RECVANYSOURCE, "flx:recvAnySource", tensor, channels.front().queue);
    const auto wanted = std::make_shared<Wanted>(tag, tensor, work, size_ - 1);
    for (const Channel &channel : channels)
        if (!wanted->taken)
            want(channel, wanted);
    return work;
}

void Messages::end() {
    const std::lock_guard guard(mutex_);
    // To free a communicator takes both its ranks, which may have made these in other orders: all at once.
    for (const auto &[of, channel] : channels_) {
        if (of.second && !channel.queue->of_parent())
            channel.queue->add_call(
                [](flx_comm_t comm) {
                    const Head head{kLeaves, 0};
                    return send_bytes(&head, sizeof head, comm);
                },
                [](const std::string &) {});
        channel.queue->end();
    }
}

}  // namespace flx::torch
