#include "runtime/front/python/communicator.h"

#include <cxxabi.h>
#include <mpi.h>
#include <unistd.h>

namespace flx::python {

void lock_python(PyThreadState *state) noexcept {
    try {
        PyEval_RestoreThread(state);
    } catch (const abi::__forced_unwind &) {
        for (;;)
            pause();
    }
}

Request::~Request() {
    if (begun_.request == FLX_REQUEST_NULL || handle_->of_parent())
        return;
    {
        const Unlocked unlocked;
        const std::unique_lock guard(handle_->mutex, std::try_to_lock);
        int done = 0;
        if (guard)
            (void)flx_test(&begun_.request, &done);
    }
    if (begun_.request != FLX_REQUEST_NULL)
        handle_->orphans.push_back(std::move(begun_));
}

void Request::finish() {
    for (View &view : begun_.views)
        view.drop();
}

void Request::wait() {
    struct Finish {
        Request &request;
        ~Finish() { request.finish(); }
    } const finish{*this};
    handle_->run([&](flx_comm_t) { return flx_wait(&begun_.request); });
}

bool Request::test() {
    handle_->refuse_child();
    int done = 0;
    flx_status_t status = FLX_SUCCESS;
    std::string sentence;
    {
        const Unlocked unlocked;
        const std::unique_lock guard(handle_->mutex, std::try_to_lock);
        if (guard)
            status = flx_test(&begun_.request, &done);
        if (status != FLX_SUCCESS)
            sentence = flx_last_error();
    }
    if (done != 0 || status != FLX_SUCCESS)
        finish();
    if (status != FLX_SUCCESS)
        raise(status, sentence.c_str());
    return done != 0;
}

Communicator::Communicator(flx_comm_t comm) : handle_(std::make_shared<Handle>()) {
    handle_->comm = comm;
    check(flx_comm_rank(comm, &handle_->rank));
    check(flx_comm_size(comm, &handle_->size));
}

/// The last reference went: it is freed with all ranks, as flx_comm_free says.
Communicator::~Communicator() {
    std::string sentence;
    if (!handle_->of_parent())
        (void)handle_->carry_out([this](flx_comm_t) { return free_handle(); }, sentence);
}

void Communicator::free() {
    if (handle_->of_parent())
        handle_->comm = nullptr;
    else
        handle_->run([this](flx_comm_t) { return free_handle(); });
}

flx_status_t Communicator::free_handle() {
    return handle_->comm == nullptr ? FLX_SUCCESS : flx_comm_free(&handle_->comm);
}

void Communicator::abort(const std::string &reason) {
    handle_->run([&](flx_comm_t comm) { return flx_comm_abort(comm, reason.c_str()); });
}

std::unique_ptr<Communicator> Communicator::dup() {
    flx_comm_t made = nullptr;
    handle_->run([&](flx_comm_t comm) { return flx_comm_dup(comm, &made); });
    return std::make_unique<Communicator>(made);
}

std::unique_ptr<Communicator> Communicator::split(int color, int key) {
    flx_comm_t made = nullptr;
    handle_->run([&](flx_comm_t comm) { return flx_comm_split(comm, color, key, &made); });
    return made == nullptr ? nullptr : std::make_unique<Communicator>(made);
}

Settings::Settings(const py::kwargs &given) : config(FLX_CONFIG_INIT) {
    for (const auto &[key, value] : given) {
        const auto name = key.cast<std::string>();
        if (name == "partition")
            config.partition = (partition = value.cast<std::string>()).c_str();
        else if (name == "links")
            config.links = (links = value.cast<std::string>()).c_str();
        else if (name == "algorithm")
            config.algorithm = (algorithm = value.cast<std::string>()).c_str();
        else if (name == "deadline_s")
            config.deadline_s = value.cast<double>();
        else if (name == "check")
            config.check = value.cast<bool>() ? 1 : 0;
        else if (name == "strict")
            config.strict = value.cast<bool>() ? 1 : 0;
        else
            throw py::type_error("unknown argument " + name +
                                 "; partition, links, algorithm, deadline_s, check and strict are known");
    }
}

namespace {

template <typename Make>
std::unique_ptr<Communicator> make(Make &&make_it) {
    flx_comm_t made = nullptr;
    Handle none;
    none.run([&](flx_comm_t) { return make_it(&made); });
    return std::make_unique<Communicator>(made);
}

}  // namespace

std::unique_ptr<Communicator> from_mpi(const py::object &mpi_comm, const py::kwargs &settings) {
    const Settings read(settings);
    const auto address = py::module_::import("mpi4py.MPI").attr("_addressof")(mpi_comm).cast<uintptr_t>();
    MPI_Comm comm = *reinterpret_cast<MPI_Comm *>(address);
    return make([&](flx_comm_t *made) { return flx_comm_create(comm, &read.config, made); });
}

std::unique_ptr<Communicator> from_store(const py::object &address, int port, int rank, int size,
                                         const py::kwargs &settings) {
    const Settings read(settings);
    const std::string name = address.is_none() ? std::string() : address.cast<std::string>();
    return make([&](flx_comm_t *made) {
        return flx_comm_create_from_store(address.is_none() ? nullptr : name.c_str(), port, rank, size, &read.config,
                                          made);
    });
}

}  // namespace flx::python
