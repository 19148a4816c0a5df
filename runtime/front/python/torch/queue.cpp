#include "runtime/front/python/torch/queue.h"

#include <pthread.h>
#include <signal.h>

#include <exception>
#include <stdexcept>
#include <utility>

namespace flx::torch {

FlxWork::FlxWork(int rank, c10d::OpType type, const char *name, const std::vector<at::Tensor> &inputs,
                 std::vector<at::Tensor> result, Milliseconds patience, std::weak_ptr<Queue> queue)
    : Work(rank, type, name, inputs),
      name_(name),
      result_(std::move(result)),
      patience_(patience),
      queue_(std::move(queue)),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

bool FlxWork::wait(Milliseconds timeout) {
    const Milliseconds patience = timeout == kNoTimeout ? patience_ : timeout;
    if (isP2POp(retrieveOpType()))
        if (const std::shared_ptr<Queue> queue = queue_.lock())
            queue->hurry();
    std::unique_lock lock(mutex_);
    if (!cv_.wait_for(lock, patience, [this] { return completed_; }))
        throw std::runtime_error(std::string(name_) + " has not completed within " + std::to_string(patience.count()) +
                                 " ms, the timeout of this process group; FLX warns of the rank that all wait for");
    if (exception_)
        std::rethrow_exception(exception_);
    return true;
}

void FlxWork::complete(const std::string &error) {
    if (error.empty()) {
        finish();
        future_->markCompleted(at::IValue(result_));
    } else {
        const auto exception = std::make_exception_ptr(std::runtime_error(error));
        finish(exception);
        future_->setError(exception);
    }
}

Queue::Queue(flx_comm_t comm) : comm_(comm) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // the program's handlers do not run in it
    thread_ = std::thread([this] { run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Queue::~Queue() {
    {
        const std::lock_guard guard(mutex_);
        over_ = true;
    }
    came_.notify_one();
    thread_.join();
}

void Queue::add(c10::intrusive_ptr<FlxWork> work, Call call, std::function<void()> after) {
    push({std::move(work), std::move(call), std::move(after)});
}

void Queue::add_message(c10::intrusive_ptr<FlxWork> work, Call call) {
    push({std::move(work), std::move(call), {}, true});
}

void Queue::push(Task task) {
    {
        const std::lock_guard guard(mutex_);
        tasks_.push_back(std::move(task));
    }
    came_.notify_one();
}

void Queue::hurry() {
    {
        const std::lock_guard guard(mutex_);
        hurry_ = true;
    }
    came_.notify_one();
}

bool Queue::ready() const {
    return over_ || (!tasks_.empty() && (hurry_ || !tasks_.front().message || !tasks_.back().message));
}

void Queue::run() {
    constexpr auto kFurtherMessages = Milliseconds(1);  // of who asks by isCompleted() or a future
    std::unique_lock lock(mutex_);
    for (;;) {
        came_.wait(lock, [this] { return over_ || !tasks_.empty(); });
        came_.wait_for(lock, kFurtherMessages, [this] { return ready(); });
        if (tasks_.empty())
            break;
        std::vector<Task> begun;
        do {
            begun.push_back(std::move(tasks_.front()));
            tasks_.pop_front();
        } while (begun.back().message && !tasks_.empty() && tasks_.front().message);
        if (begun.front().message)
            hurry_ = false;
        lock.unlock();
        if (begun.front().message)
            carry_out(begun);
        else
            carry_out(begun.front());
        begun.clear();
        lock.lock();
    }
    flx_comm_free(&comm_);
}

void Queue::carry_out(std::vector<Task> &messages) {
    flx_status_t status = flx_group_begin(comm_);
    for (Task &message : messages)
        if (status == FLX_SUCCESS)
            status = message.call(comm_);
    std::string error = status == FLX_SUCCESS ? "" : flx_last_error();
    if (flx_group_end(comm_) != FLX_SUCCESS && error.empty())
        error = flx_last_error();
    for (Task &message : messages) {
        message.call = {};
        message.work->complete(error);
    }
}

void Queue::carry_out(Task &task) {
    std::string error;
    try {
        if (task.call(comm_) != FLX_SUCCESS)
            error = flx_last_error();
        else if (task.after)
            task.after();
    } catch (const std::exception &thrown) {
        error = thrown.what();
    }
    // What it kept may be freed before whoever waits goes on.
    task.call = {};
    task.after = {};
    task.work->complete(error);
}

}  // namespace flx::torch
