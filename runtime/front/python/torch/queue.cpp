#include "runtime/front/python/torch/queue.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace flx::torch {
namespace {

using Future = c10::ivalue::Future;

/// Whether this thread completes futures.
thread_local bool completes_futures = false;

/// False: there are no more threads.
template <typename Run>
bool run_in_thread(const Run &run) {
    try {
        std::thread([run] {
            completes_futures = true;
            run();
        }).detach();
        return true;
    } catch (const std::system_error &) {
        return false;
    }
}

/// What waits for peers that have not answered before.
constexpr Milliseconds kGrace(1000);

void mark(Future &future, const at::IValue &value, const std::exception_ptr &exception) {
    try {
        if (exception)
            future.setError(exception);
        else
            future.markCompleted(value);
    } catch (const std::exception &thrown) {  // of what follows it, or there is no memory
        if (!future.completed())
            future.setErrorIfNeeded(std::make_exception_ptr(std::runtime_error(thrown.what())));
    }
}

}  // namespace

void check_process(pid_t made_by) {
    TORCH_CHECK(getpid() == made_by, "this process group is of process ", made_by, ", and its forked child ", getpid(),
                " has to make one of its own");
}

FlxWork::FlxWork(int rank, c10d::OpType type, const char *name, const Tensors &inputs, Tensors result,
                 Milliseconds patience, std::weak_ptr<Queue> queue)
    : Work(rank, type, name, inputs),
      name_(name),
      result_(std::move(result)),
      patience_(patience),
      queue_(std::move(queue)),
      follows_(completes_futures) {}

bool FlxWork::isCompleted() {
    const std::lock_guard guard(mutex_);
    return completed_ && (!future_ || future_->completed());
}

bool FlxWork::wait(Milliseconds timeout) {
    const Milliseconds patience = timeout == kNoTimeout ? patience_ : timeout;
    std::unique_lock lock(mutex_);
    if (!cv_.wait_for(lock, patience, [this] { return completed_; })) {
        lock.unlock();
        if (const std::shared_ptr<Queue> queue = queue_.lock())
            queue->give_up();
        throw std::runtime_error(std::string(name_) + " has not completed within " + std::to_string(patience.count()) +
                                 " ms, the timeout of this process group; FLX warns of the rank that all wait for");
    }
    const c10::intrusive_ptr<Future> future = future_;
    const std::exception_ptr exception = exception_;
    lock.unlock();
    if (future && !completes_futures)  // which may be the one to do that
        future->wait();
    if (exception)
        std::rethrow_exception(exception);
    return true;
}

c10::intrusive_ptr<Future> FlxWork::getFuture() {
    const std::lock_guard guard(mutex_);
    if (!future_) {
        const c10::TypePtr tensors = c10::ListType::create(c10::TensorType::get());
        future_ = c10::make_intrusive<Future>(lists_.empty() ? tensors : c10::ListType::create(tensors));
        late_future_ = completed_;
        if (completed_)
            mark(*future_, value(), exception_);
    }
    return future_;
}

std::function<void()> FlxWork::complete(const std::string &error) {
    const std::exception_ptr exception = error.empty() ? nullptr : std::make_exception_ptr(std::runtime_error(error));
    finish(exception);
    c10::intrusive_ptr<Future> future;
    {
        const std::lock_guard guard(mutex_);
        if (!late_future_)
            future = future_;
    }
    if (!future)
        return {};
    return [future, value = value(), exception] { mark(*future, value, exception); };
}

Queue::Queue(flx_comm_t comm, Milliseconds patience)
    : state_(std::make_shared<State>()), patience_(patience), process_(getpid()) {
    state_->comm = comm;
    start();
}

Queue::Queue(Open open, Milliseconds patience)
    : state_(std::make_shared<State>()), patience_(patience), process_(getpid()) {
    state_->open = std::move(open);
    start();
}

void Queue::start() {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // the program's handlers do not run in it
    thread_ = std::make_unique<std::thread>([state = state_] { state->run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Queue::~Queue() {
    if (of_parent()) {
        (void)thread_.release();
        return;
    }
    end();
    if (thread_->get_id() == std::this_thread::get_id()) {
        thread_->detach();
        return;
    }
    std::unique_lock lock(state_->mutex);
    const Milliseconds patience = state_->given_up ? std::min(kGrace, patience_) : patience_;
    const bool ended = state_->went.wait_for(lock, patience, [this] { return state_->ended; });
    lock.unlock();
    if (ended)
        thread_->join();
    else
        thread_->detach();
}

void Queue::add(c10::intrusive_ptr<FlxWork> work, Call call, std::function<void()> after) {
    add({std::move(call), std::move(after),
         [work = std::move(work), state = state_.get()](const std::string &error) { state->complete(*work, error); }});
}

void Queue::add_call(Call call, Failed failed) {
    add({std::move(call), {}, [failed = std::move(failed)](const std::string &error) {
             if (!error.empty())
                 failed(error);
         }});
}

Queue::Complete Queue::completer() const {
    return [state = state_](FlxWork &work, const std::string &error) { state->complete(work, error); };
}

void Queue::add(Task task) {
    check_process(process_);
    {
        const std::lock_guard guard(state_->mutex);
        state_->tasks.push_back(std::move(task));
    }
    state_->came.notify_one();
}

void Queue::end() {
    if (of_parent())
        return;
    {
        const std::lock_guard guard(state_->mutex);
        state_->over = true;
    }
    state_->came.notify_one();
}

bool Queue::of_parent() const {
    return getpid() != process_;
}

void Queue::give_up() {
    const std::lock_guard guard(state_->mutex);
    state_->given_up = true;
}

void Queue::State::run() {
    const at::AutoDispatchBelowADInplaceOrView unseen;  // the program's no_grad() does not reach this thread
    std::unique_lock lock(mutex);
    for (;;) {
        came.wait(lock, [this] { return over || !tasks.empty(); });
        if (tasks.empty())
            break;
        {
            Task task = std::move(tasks.front());
            tasks.pop_front();
            lock.unlock();
            carry_out(task);
        }
        lock.lock();
    }
    lock.unlock();
    if (comm != nullptr)
        flx_comm_free(&comm);
    open = nullptr;  // a thread of followers may be the last that holds this, and is to hold no store
    lock.lock();
    ended = true;
    went.notify_all();
    follower_came.notify_all();
}

std::string Queue::State::outcome(Task &task) {
    if (comm == nullptr && broken.empty()) {
        try {
            comm = open(over);
            if (comm == nullptr)
                broken = "the process group has ended, and its peers did not come";
        } catch (const std::exception &thrown) {
            broken = thrown.what();
        }
    }
    if (comm == nullptr)
        return broken;
    try {
        if (task.call(comm) != FLX_SUCCESS)
            return flx_last_error();
        if (task.after)
            task.after();
    } catch (const std::exception &thrown) {
        return thrown.what();
    }
    return "";
}

void Queue::State::carry_out(Task &task) {
    const std::string error = outcome(task);
    // What it kept may be freed before whoever waits goes on.
    task.call = {};
    task.after = {};
    task.ended(error);
}

void Queue::State::complete(FlxWork &work, const std::string &error) {
    if (std::function<void()> follower = work.complete(error))
        follow(std::move(follower), work.follows());
}

void Queue::State::follow(std::function<void()> follower, bool at_once) {
    if (at_once) {
        if (!run_in_thread(follower))
            follower();
        return;
    }
    {
        const std::lock_guard guard(mutex);
        followers.push_back(std::move(follower));
        if (following) {
            follower_came.notify_one();
            return;
        }
        following = true;
    }
    static constexpr std::chrono::seconds kPatience(5);  // to start a thread takes ten times as long as to wake one
    if (!run_in_thread([state = shared_from_this()] { state->run_followers(kPatience); }))
        run_followers(std::chrono::seconds(0));
}

void Queue::State::run_followers(std::chrono::seconds patience) {
    std::unique_lock lock(mutex);
    const auto is_due = [this] { return !followers.empty() || ended; };
    while (follower_came.wait_for(lock, patience, is_due) && !followers.empty()) {
        {
            const std::function<void()> follower = std::move(followers.front());
            followers.pop_front();
            lock.unlock();
            follower();
        }
        lock.lock();
    }
    following = false;
}

}  // namespace flx::torch
