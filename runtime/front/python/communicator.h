/// \file communicator.h
/// FLX's communicators and requests as Python has them. Python's lock is free while a call waits; calls on one
/// communicator, from whatever threads, go one after the other.
#pragma once

#include <flx.h>
#include <pybind11/pybind11.h>

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/front/python/views.h"

namespace flx::python {

/// Other threads may run Python meanwhile.
class Unlocked {
  public:
    Unlocked() : state_(PyEval_SaveThread()) {}
    ~Unlocked() { PyEval_RestoreThread(state_); }
    Unlocked(const Unlocked &) = delete;
    Unlocked &operator=(const Unlocked &) = delete;

  private:
    PyThreadState *state_;
};

/// A communicator's handle, with the lock of all calls on it.
struct Handle {
    std::mutex mutex;
    flx_comm_t comm = nullptr;
    int rank = 0;
    int size = 1;

    /// What `call(comm)` returns is raised if it is no success.
    template <typename Call>
    void run(Call &&call) {
        flx_status_t status = FLX_SUCCESS;
        std::string sentence;
        {
            const Unlocked unlocked;
            const std::lock_guard guard(mutex);
            status = call(comm);
            if (status != FLX_SUCCESS) [[unlikely]]
                sentence = flx_last_error();
        }
        if (status != FLX_SUCCESS) [[unlikely]]
            raise(status, sentence.c_str());
    }
};

/// An operation under way. It keeps the memory that it reads and writes.
class Request {
  public:
    Request(std::shared_ptr<Handle> handle, flx_request_t request, std::array<View, 2> views)
        : handle_(std::move(handle)), request_(request), views_(std::move(views)) {}
    Request(const Request &) = delete;
    Request &operator=(const Request &) = delete;
    /// Waits: FLX may write into memory that goes otherwise.
    ~Request();

    void wait();
    bool test();

  private:
    void finish();

    std::shared_ptr<Handle> handle_;
    flx_request_t request_;
    std::array<View, 2> views_;
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
