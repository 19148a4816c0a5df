/// \file communicator.h
/// FLX's communicators and requests as Python has them. Python's lock is free while a call waits; calls on one
/// communicator, from whatever threads, go one after the other.
#pragma once

#include <flx.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/front/python/views.h"

namespace flx::python {

/// Takes Python's lock again. Where the interpreter ends meanwhile, whom it gives the lock no more stays here until the
/// process has ended: to unwind would touch Python's objects.
void lock_python(PyThreadState *state) noexcept;

/// Other threads may run Python meanwhile.
class Unlocked {
  public:
    Unlocked() : state_(PyEval_SaveThread()) {}
    ~Unlocked() { lock_python(state_); }
    Unlocked(const Unlocked &) = delete;
    Unlocked &operator=(const Unlocked &) = delete;

  private:
    PyThreadState *state_;
};

/// An operation under way, and the memory that it reads and writes.
struct Begun {
    flx_request_t request = FLX_REQUEST_NULL;
    std::array<View, 2> views;
};

/// A communicator's handle, with the lock of all calls on it.
struct Handle {
    std::mutex mutex;
    flx_comm_t comm = nullptr;
    int rank = 0;
    int size = 1;
    const pid_t process = getpid();  ///< a forked child may not touch what it shares with its parent's peers
    std::vector<Begun> orphans;      ///< of requests that nobody waits for any more; with Python's lock

    [[nodiscard]] bool of_parent() const { return getpid() != process; }

    /// The status of `call(comm)`, and the sentence where it is no success.
    template <typename Call>
    flx_status_t carry_out(Call &&call, std::string &sentence) {
        std::vector<Begun> begun = std::exchange(orphans, {});
        flx_status_t status = FLX_SUCCESS;
        {
            const Unlocked unlocked;
            const std::lock_guard guard(mutex);
            status = call(comm);
            if (status != FLX_SUCCESS) [[unlikely]]
                sentence = flx_last_error();
            for (Begun &one : begun) {
                int done = 0;
                (void)flx_test(&one.request, &done);
            }
        }
        for (Begun &one : begun)
            if (one.request != FLX_REQUEST_NULL)
                orphans.push_back(std::move(one));
        return status;
    }

    /// What `call(comm)` returns is raised if it is no success.
    template <typename Call>
    void run(Call &&call) {
        refuse_child();
        std::string sentence;
        const flx_status_t status = carry_out(call, sentence);
        if (status != FLX_SUCCESS) [[unlikely]]
            raise(status, sentence.c_str());
    }

    void refuse_child() const {
        if (of_parent()) [[unlikely]]
            refuse("this communicator is of process " + std::to_string(process) + ", and its forked child " +
                   std::to_string(getpid()) + " has to make one of its own");
    }
};

/// An operation under way. It keeps the memory that it reads and writes.
class Request {
  public:
    Request(std::shared_ptr<Handle> handle, flx_request_t request, std::array<View, 2> views)
        : handle_(std::move(handle)), begun_{request, std::move(views)} {}
    Request(const Request &) = delete;
    Request &operator=(const Request &) = delete;
    /// Does not wait: what is under way, the handle keeps.
    ~Request();

    void wait();
    /// Does not wait either for a call of another thread on the communicator: false then.
    bool test();

  private:
    void finish();

    std::shared_ptr<Handle> handle_;
    Begun begun_;
};

class Communicator {
  public:
    /// Takes over.
    explicit Communicator(flx_comm_t comm);
    Communicator(const Communicator &) = delete;
    Communicator &operator=(const Communicator &) = delete;
    ~Communicator();

    [[nodiscard]] Handle &handle() const { return *handle_; }
    [[nodiscard]] const std::shared_ptr<Handle> &shared() const { return handle_; }
    std::unique_ptr<Communicator> dup();
    /// Null: this rank's color is negative.
    std::unique_ptr<Communicator> split(int color, int key);
    void free();
    void abort(const std::string &reason);

  private:
    flx_status_t free_handle();

    std::shared_ptr<Handle> handle_;
};

/// What flx_config_t has, as keyword arguments.
struct Settings {
    std::string partition, links, algorithm;
    flx_config_t config;
    explicit Settings(const py::kwargs &given);
};

std::unique_ptr<Communicator> from_mpi(const py::object &mpi_comm, const py::kwargs &settings);
std::unique_ptr<Communicator> from_store(const py::object &address, int port, int rank, int size,
                                         const py::kwargs &settings);

/// Adds the collectives, blocking and non-blocking.
void add_collectives(py::class_<Communicator> &communicator);

}  // namespace flx::python
