/// \file messages.h
/// Messages of a process group. They do not wait for collectives, nor for messages of other ranks: what a rank sends to
/// another one has a communicator of its own and, on both ranks, a thread. Before each message goes what it is, so that
/// the receiver finds the one with the tag that it wants, and keeps what came before that one for later.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "runtime/front/python/torch/queue.h"

namespace flx::torch {

/// A message that somebody wants, of one rank or of any.
struct Wanted {
    const int64_t tag;
    at::Tensor into;                   ///< of whoever takes it
    c10::intrusive_ptr<FlxWork> work;  ///< likewise
    std::atomic<int> inboxes;          ///< from which it may still come
    std::atomic<bool> taken{false};

    Wanted(int64_t tag, at::Tensor into, c10::intrusive_ptr<FlxWork> work, int inboxes)
        : tag(tag), into(std::move(into)), work(std::move(work)), inboxes(inboxes) {}
    /// True once: for whoever brings the message, or the error.
    bool take() { return !taken.exchange(true); }
};

/// What one rank sends to this one. Threads of the program want messages, and the thread of the channel's queue reads
/// them while there are any that are wanted. It may be waiting for one when that is not wanted any more, as another
/// rank has sent it: it waits on then.
class Inbox {
  public:
    Inbox(int from, Queue::Complete complete) : from_(from), complete_(std::move(complete)) {}

    /// The message is here already, or somebody reads; true: nobody does, and read() has to be called.
    [[nodiscard]] bool want(const std::shared_ptr<Wanted> &wanted);
    /// Receives messages until none is wanted.
    flx_status_t read(flx_comm_t comm);
    /// Nothing will be read: what is wanted does not come.
    void fail(const std::string &error);

  private:
    struct Kept {
        int64_t tag;
        at::Tensor bytes;
    };
    void forget_taken();
    [[nodiscard]] bool goes_on();
    [[nodiscard]] std::shared_ptr<Wanted> take(int64_t tag);
    flx_status_t read_one(flx_comm_t comm);
    void complete(Wanted &wanted, const at::Tensor &bytes, std::string error = "");

    const int from_;
    const Queue::Complete complete_;
    std::mutex mutex_;
    std::deque<std::shared_ptr<Wanted>> wanted_;
    std::deque<Kept> kept_;
    bool reads_ = false;
    std::string ended_;  ///< why nothing comes any more; of the thread that reads
};

/// Of one rank. Thread-safe.
class Messages {
  public:
    /// `timeout`: of waits for messages; a group's end waits as long for what is being sent.
    Messages(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Milliseconds timeout);

    /// Small messages are copied, and complete at once.
    c10::intrusive_ptr<FlxWork> send(const at::Tensor &tensor, int to, int64_t tag);
    c10::intrusive_ptr<FlxWork> receive(const at::Tensor &tensor, int from, int64_t tag);
    /// From whoever sends first. What others send with this tag afterwards waits for the next.
    c10::intrusive_ptr<FlxWork> receive_from_any(const at::Tensor &tensor, int64_t tag);
    /// Nothing is sent or received any more. Does not wait.
    void end();

  private:
    /// From one rank to another.
    struct Channel {
        std::shared_ptr<Queue> queue;
        std::shared_ptr<Inbox> inbox;  ///< null where this rank sends
    };
    [[nodiscard]] Channel channel(int peer, bool sends);
    [[nodiscard]] c10::intrusive_ptr<FlxWork> work(c10d::OpType type, const char *name, const at::Tensor &tensor,
                                                   const std::shared_ptr<Queue> &queue) const;
    static void want(const Channel &channel, const std::shared_ptr<Wanted> &wanted);

    c10::intrusive_ptr<c10d::Store> store_;
    const int rank_;
    const int size_;
    const Milliseconds timeout_;
    const pid_t process_;
    std::mutex mutex_;
    std::map<std::pair<int, bool>, Channel> channels_;  ///< by peer, and whether this rank sends
};

}  // namespace flx::torch
