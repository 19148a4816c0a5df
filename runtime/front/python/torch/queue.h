/// \file queue.h
/// A communicator of FLX and the thread that carries out a process group's operations on it, in the order in which they
/// were begun. The program computes meanwhile, and whoever waits can give up in time.
#pragma once

#include <flx.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

namespace flx::torch {

using Milliseconds = std::chrono::milliseconds;

class Queue;

/// An operation that was begun.
class FlxWork final : public c10d::Work {
  public:
    /// `result`: the tensors that it gives back; `patience`: how long wait() waits where it is not told.
    FlxWork(int rank, c10d::OpType type, const char *name, const std::vector<at::Tensor> &inputs,
            std::vector<at::Tensor> result, Milliseconds patience, std::weak_ptr<Queue> queue);

    /// Raises what went wrong; also where it has not completed in time. Then its memory stays in use.
    bool wait(Milliseconds timeout = kNoTimeout) override;
    std::vector<at::Tensor> result() override { return result_; }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
    [[nodiscard]] const char *name() const { return name_; }

    /// By the thread that carried it out. Empty: it went well.
    void complete(const std::string &error);

  private:
    const char *name_;
    std::vector<at::Tensor> result_;
    Milliseconds patience_;
    std::weak_ptr<Queue> queue_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class Queue {
  public:
    using Call = std::function<flx_status_t(flx_comm_t)>;

    /// Takes `comm` over.
    explicit Queue(flx_comm_t comm);
    /// Waits for what is under way, and frees the communicator.
    ~Queue();
    Queue(const Queue &) = delete;
    Queue &operator=(const Queue &) = delete;

    /// `call` is carried out by the thread, then `after`, if there is one, where it went well. Both keep the tensors
    /// that they need. Thread-safe.
    void add(c10::intrusive_ptr<FlxWork> work, Call call, std::function<void()> after = {});
    /// The same of a message, which goes together with those that are begun after it and before anybody waits: ranks
    /// may send to each other and receive then.
    void add_message(c10::intrusive_ptr<FlxWork> work, Call call);
    /// Somebody waits for a message. Thread-safe.
    void hurry();

  private:
    struct Task {
        c10::intrusive_ptr<FlxWork> work;
        Call call;
        std::function<void()> after;
        bool message = false;
    };
    void push(Task task);
    void run();
    /// Whether the first task may begin. With the lock.
    [[nodiscard]] bool ready() const;
    void carry_out(Task &task);
    void carry_out(std::vector<Task> &messages);

    flx_comm_t comm_;
    std::mutex mutex_;
    std::condition_variable came_;
    std::deque<Task> tasks_;
    bool over_ = false;
    bool hurry_ = false;  ///< messages
    std::thread thread_;
};

}  // namespace flx::torch
