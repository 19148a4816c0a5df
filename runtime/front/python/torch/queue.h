/// \file queue.h
/// A communicator of FLX and the thread that carries out a process group's operations on it, in the order in which they
/// were begun. The program computes meanwhile, and whoever waits can give up in time. What a program has follow
/// their futures runs in another thread, in that order, so that ranks begin further operations there in one order. It
/// may wait for those, which are completed in threads of their own.
#pragma once

#include <flx.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/front/python/torch/base.h"

namespace flx::torch {

using Milliseconds = std::chrono::milliseconds;

/// Throws where this process is not the one that made the process group, but a forked child of it.
void check_process(pid_t made_by);

class Queue;

/// An operation that was begun.
class FlxWork final : public c10d::Work {
  public:
    /// `result`: the tensors that it gives back; `patience`: how long wait() waits where it is not told.
    FlxWork(int rank, c10d::OpType type, const char *name, const Tensors &inputs, Tensors result, Milliseconds patience,
            std::weak_ptr<Queue> queue);
    /// Its future has these, and not one list of all. Before anybody else knows of it.
    void give_lists(std::vector<Tensors> lists) { lists_ = std::move(lists); }

    bool isCompleted() override;
    /// Raises what went wrong; also where it has not completed in time. Then its memory stays in use. Afterwards its
    /// future is done, too.
    bool wait(Milliseconds timeout = kNoTimeout) override;
    Tensors result() override { return result_; }
    /// Of a message that was received: from whom.
    [[nodiscard]] int sourceRank() const override { return source_; }
    void came_from(int rank) { source_ = rank; }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

    /// By the thread that carried it out. Empty: it went well. What is to be done then, if anything: its future is
    /// completed, and what the program has follow it runs.
    std::function<void()> complete(const std::string &error);
    /// Begun by what follows another operation's future.
    [[nodiscard]] bool follows() const { return follows_; }

  private:
    const char *name_;
    [[nodiscard]] at::IValue value() const { return lists_.empty() ? at::IValue(result_) : at::IValue(lists_); }

    Tensors result_;
    std::vector<Tensors> lists_;
    int source_ = -1;
    Milliseconds patience_;
    std::weak_ptr<Queue> queue_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;  ///< null until somebody asks
    bool late_future_ = false;                        ///< asked for after completion
    const bool follows_;
};

class Queue {
  public:
    using Call = std::function<flx_status_t(flx_comm_t)>;
    /// Makes a communicator, or gives null where `over` is set before it has come to that. Throws.
    using Open = std::function<flx_comm_t(const std::atomic<bool> &over)>;

    /// Takes `comm` over. `patience`: how long it waits at its end.
    Queue(flx_comm_t comm, Milliseconds patience);
    /// The thread makes the communicator when there is something to do.
    Queue(Open open, Milliseconds patience);
    /// Waits for what is under way, and frees the communicator. Where that takes too long, or somebody has waited in
    /// vain before, peers may not answer any more: the thread is left to itself then, with the communicator. A forked
    /// child has no such thread, and leaves all as it is.
    ~Queue();
    Queue(const Queue &) = delete;
    Queue &operator=(const Queue &) = delete;

    /// `call` is carried out by the thread, then `after`, if there is one, where it went well. Both keep the tensors
    /// that they need. Thread-safe.
    void add(c10::intrusive_ptr<FlxWork> work, Call call, std::function<void()> after = {});
    /// `call` is carried out, which completes what it serves by itself. `failed` is told why it did not go well.
    /// Thread-safe.
    using Failed = std::function<void(const std::string &error)>;
    void add_call(Call call, Failed failed);
    /// Completes `work`, in any thread: by what completer() gives, which may live longer than the queue.
    using Complete = std::function<void(FlxWork &work, const std::string &error)>;
    [[nodiscard]] Complete completer() const;
    /// Nothing is added any more. Does not wait.
    void end();
    /// Somebody has waited in vain. Thread-safe.
    void give_up();
    /// This is a forked child of the process that made it.
    [[nodiscard]] bool of_parent() const;

  private:
    struct Task {
        Call call;
        std::function<void()> after;
        Failed ended;  ///< with no error, too
    };
    /// Lives as long as the thread.
    struct State : std::enable_shared_from_this<State> {
        flx_comm_t comm = nullptr;
        Open open;
        std::string broken;  ///< why there is no communicator
        std::mutex mutex;
        std::condition_variable came, went;
        std::deque<Task> tasks;
        std::atomic<bool> over{false};
        bool ended = false;
        bool given_up = false;
        std::deque<std::function<void()>> followers;
        bool following = false;  ///< a thread is at them, or waits for more
        std::condition_variable follower_came;

        void run();
        void carry_out(Task &task);
        std::string outcome(Task &task);
        void complete(FlxWork &work, const std::string &error);
        void follow(std::function<void()> follower, bool at_once);
        /// Until none has come for so long, or none can come any more.
        void run_followers(std::chrono::seconds patience);
    };
    void start();
    void add(Task task);

    std::shared_ptr<State> state_;
    Milliseconds patience_;
    pid_t process_;
    std::unique_ptr<std::thread> thread_;
};

}  // namespace flx::torch
