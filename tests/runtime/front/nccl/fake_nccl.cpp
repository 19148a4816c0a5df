/// An NCCL of threads and plain memory, as libnccl.so.2: notes what it is asked to do, and does it on fake streams.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/front/nccl/exports.h"
#include "tests/runtime/front/nccl/fake_device.h"

struct ncclComm {
    std::string id;
    int rank = 0;
    int ranks = 1;
    int device = 0;
    std::atomic<ncclResult_t> state{ncclSuccess};
    uint64_t sequence = 0;
    int splits = 0;
    std::vector<uint64_t> sent, received;
    std::atomic<bool> aborted{false};
    bool suspended = false;
};

namespace {

struct Task {
    ncclComm *comm;
    cudaStream_t stream;
    fake::Collective what;  ///< kind Send, Recv: the peer is the root
};
struct Group {
    int depth = 0;
    std::vector<Task> tasks;
    std::vector<std::function<void()>> jobs;  ///< communicators to be made
    bool nonblocking = false;
};
Group &group() {
    static thread_local Group mine;
    return mine;
}

size_t element(ncclDataType_t type) {
    constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return kSizes[type];
}

std::string message_name(const ncclComm *comm, int from, int to, uint64_t number) {
    return comm->id + "/" + std::to_string(from) + "-" + std::to_string(to) + "#" + std::to_string(number);
}

/// All tasks of a group on one communicator are one kernel: messages go side by side.
void launch(std::vector<Task> tasks) {
    struct Step {
        Task task;
        std::string name;
    };
    auto steps = std::make_shared<std::vector<Step>>();
    for (Task &task : tasks) {
        ncclComm *comm = task.comm;
        std::string name;
        if (task.what.kind == "Send")
            name = message_name(comm, comm->rank, task.what.root, comm->sent[task.what.root]++);
        else if (task.what.kind == "Recv")
            name = message_name(comm, task.what.root, comm->rank, comm->received[task.what.root]++);
        else
            name = comm->id + "/" + std::to_string(comm->sequence++);
        fake::note("nccl " + task.what.kind + " " + std::to_string(comm->rank));
        steps->push_back({std::move(task), std::move(name)});
    }
    const cudaStream_t stream = steps->front().task.stream;
    fake::enqueue(stream, [steps] {
        for (const Step &step : *steps)
            if (step.task.what.kind == "Send") {
                const auto *from = static_cast<const char *>(step.task.what.in);
                fake::put_letter(step.name, {from, step.task.what.count * element(step.task.what.type)});
            }
        for (Step &step : *steps) {
            if (step.task.what.kind == "Send")
                continue;
            if (step.task.what.kind != "Recv") {
                fake::meet("nccl/" + step.name, step.task.comm->rank, step.task.comm->ranks, &step.task.what,
                           fake::carry_out, &step.task.comm->aborted);
                continue;
            }
            fake::take_letter(step.name, {static_cast<char *>(step.task.what.out),
                                          step.task.what.count * element(step.task.what.type)});
        }
    });
}

/// As after an abort, which frees it. It stays here, so that the test hears of that.
bool gone(ncclComm_t comm) {
    if (comm->aborted)
        fake::note("nccl used after its abort");
    return comm->aborted;
}

ncclResult_t add(Task task) {
    if (task.comm == nullptr || task.what.count > size_t{1} << 40)
        return ncclInvalidArgument;
    if (gone(task.comm))
        return ncclInvalidArgument;
    if (task.comm->state != ncclSuccess || task.comm->suspended)
        return ncclInvalidArgument;
    if (group().depth > 0)
        group().tasks.push_back(std::move(task));
    else
        launch({std::move(task)});
    return ncclSuccess;
}

ncclResult_t collective(const char *kind, const void *in, void *out, size_t count, ncclDataType_t type, int op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
    return add({comm, stream, {kind, in, out, count, type, op, root}});
}

void make(ncclComm *comm, const std::string &id) {
    comm->id = id;
    comm->sent.resize(comm->ranks);
    comm->received.resize(comm->ranks);
    fake::meet("init/" + id, comm->rank, comm->ranks, nullptr, [](const auto &) {});
}

ncclResult_t start(std::function<void()> job, ncclComm *comm, bool nonblocking) {
    const auto whole = [comm, job = std::move(job)] {
        job();
        comm->state = ncclSuccess;
    };
    if (nonblocking) {
        comm->state = ncclInProgress;
        if (group().depth > 0) {
            group().jobs.emplace_back(whole);
            group().nonblocking = true;
        } else {
            std::thread([whole] {
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                whole();
            }).detach();
        }
        return ncclInProgress;
    }
    if (group().depth > 0)
        group().jobs.emplace_back(whole);
    else
        whole();
    return ncclSuccess;
}

thread_local int current_device = 0;

}  // namespace

/// As cudaSetDevice.
extern "C" __attribute__((visibility("default"))) void fake_set_device(int device) {
    current_device = device;
}

FLX_EXPORT ncclResult_t ncclGetVersion(int *version) {
    const char *text = std::getenv("FLX_TEST_NCCL_VERSION");
    *version = text == nullptr ? 22809 : std::atoi(text);
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    std::random_device random;
    for (char &byte : id->internal)
        byte = static_cast<char>(random());
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                               ncclConfig_t *config) {
    if (rank < 0 || rank >= nranks)
        return ncclInvalidArgument;
    auto *made = new ncclComm;
    made->rank = rank;
    made->ranks = nranks;
    made->device = current_device;
    *comm = made;
    const std::string name(id.internal, sizeof id.internal);
    return start([made, name] { make(made, name); }, made, config != nullptr && config->blocking == 0);
}
FLX_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank) {
    return ncclCommInitRankConfig(comm, nranks, id, rank,
                                  nullptr);  // by a name that leads through the library in front
}
FLX_EXPORT ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist) {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    ncclGroupStart();
    for (int rank = 0; rank < ndev; ++rank) {
        current_device = devlist != nullptr ? devlist[rank] : rank;
        ncclCommInitRank(comm + rank, ndev, id, rank);
    }
    return ncclGroupEnd();
}
FLX_EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                                      ncclConfig_t * /*config*/) {
    struct Wish {
        int color, key;
    };
    auto *made = new ncclComm;
    made->device = comm->device;
    *newcomm = color < 0 ? nullptr : made;
    const std::string id = comm->id + "/split" + std::to_string(comm->splits++);
    return start(
        [=] {
            auto wishes = std::make_shared<std::vector<Wish>>();
            Wish mine{color, key};
            static std::mutex mutex;
            static std::map<std::string, std::vector<Wish>> gathered;
            fake::meet(id, comm->rank, comm->ranks, &mine, [&](const std::vector<void *> &all) {
                const std::lock_guard guard(mutex);
                for (void *one : all)
                    gathered[id].push_back(*static_cast<Wish *>(one));
            });
            {
                const std::lock_guard guard(mutex);
                *wishes = gathered[id];
            }
            if (color < 0)
                return;
            made->ranks = 0;
            for (int rank = 0; rank < comm->ranks; ++rank) {
                const Wish &wish = (*wishes)[rank];
                if (wish.color != color)
                    continue;
                ++made->ranks;
                made->rank += std::pair(wish.key, rank) < std::pair(key, comm->rank) ? 1 : 0;
            }
            make(made, id + "." + std::to_string(color));
        },
        made, false);
}
FLX_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    fake::note("nccl destroy " + std::to_string(comm->rank));
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
    fake::note("nccl abort " + std::to_string(comm->rank));
    comm->aborted = true;
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t /*comm*/) {
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    if (gone(comm))
        return ncclInvalidArgument;
    *error = comm->state;
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
    *count = comm->ranks;
    return gone(comm) ? ncclInvalidArgument : ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
    *rank = comm->rank;
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
    *device = comm->device;
    return ncclSuccess;
}
FLX_EXPORT const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclSuccess ? "no error" : "an error";
}
FLX_EXPORT const char *ncclGetLastError(ncclComm_t /*comm*/) {
    return "the fake NCCL's last error";
}
FLX_EXPORT ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void * /*scalar*/, ncclDataType_t /*datatype*/,
                                                 ncclScalarResidence_t /*residence*/, ncclComm_t /*comm*/) {
    *op = static_cast<ncclRedOp_t>(0x7ffffff0);  // far from all that have names, as NCCL's are
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                      ncclComm_t comm, cudaStream_t stream) {
    return collective("AllReduce", in, out, count, type, op, 0, comm, stream);
}
FLX_EXPORT ncclResult_t ncclAllReduceConfig(const void *in, void *out, size_t count, ncclDataType_t type,
                                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                            const ncclCollConfig_t *config) {
    if (config != nullptr)
        fake::note("chose " + std::string(config->algSelection));
    return collective("AllReduce", in, out, count, type, op, 0, comm, stream);
}
FLX_EXPORT ncclResult_t ncclSignal(int peer, int /*sigIdx*/, int /*ctx*/, unsigned int /*flags*/, ncclComm_t comm,
                                   cudaStream_t stream) {
    const int rank = comm->rank;
    fake::enqueue(stream,
                  [peer, rank] { fake::note("signal from " + std::to_string(rank) + " to " + std::to_string(peer)); });
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclCommSuspend(ncclComm_t comm, int /*flags*/) {
    comm->suspended = true;
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclCommResume(ncclComm_t comm) {
    comm->suspended = false;
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                   int root, ncclComm_t comm, cudaStream_t stream) {
    return collective("Reduce", in, out, count, type, op, root, comm, stream);
}
FLX_EXPORT ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                          ncclComm_t comm, cudaStream_t stream) {
    return collective("ReduceScatter", in, out, count * comm->ranks, type, op, 0, comm, stream);
}
FLX_EXPORT ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root,
                                      ncclComm_t comm, cudaStream_t stream) {
    return collective("Broadcast", in, out, count, type, 0, root, comm, stream);
}
FLX_EXPORT ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                                  cudaStream_t stream) {
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
FLX_EXPORT ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm,
                                      cudaStream_t stream) {
    return collective("AllGather", in, out, count * comm->ranks, type, 0, 0, comm, stream);
}
FLX_EXPORT ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                 cudaStream_t stream) {
    return collective("Send", in, nullptr, count, type, 0, peer, comm, stream);
}
FLX_EXPORT ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                 cudaStream_t stream) {
    return collective("Recv", nullptr, out, count, type, 0, peer, comm, stream);
}
FLX_EXPORT ncclResult_t ncclGroupStart() {
    ++group().depth;
    return ncclSuccess;
}
FLX_EXPORT ncclResult_t ncclGroupEnd() {
    if (group().depth == 0)
        return ncclInvalidUsage;
    if (--group().depth > 0)
        return ncclSuccess;
    Group ending = std::exchange(group(), {});
    while (!ending.tasks.empty()) {
        std::vector<Task> same, rest;
        for (Task &task : ending.tasks)
            (task.comm == ending.tasks.front().comm ? same : rest).push_back(task);
        launch(std::move(same));
        ending.tasks = std::move(rest);
    }
    std::vector<std::thread> threads;
    for (const auto &job : ending.jobs)
        threads.emplace_back(job);
    for (std::thread &thread : threads) {
        if (ending.nonblocking)
            thread.detach();
        else
            thread.join();
    }
    return ending.nonblocking ? ncclInProgress : ncclSuccess;
}
/// By names that lead through the library in front, as NCCL's own calls may.
FLX_EXPORT ncclResult_t ncclAlltoAll(const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm,
                                     cudaStream_t stream) {
    ncclGroupStart();
    for (int peer = 0; peer < comm->ranks; ++peer) {
        ncclSend(static_cast<const char *>(in) + peer * count * element(type), count, type, peer, comm, stream);
        ncclRecv(static_cast<char *>(out) + peer * count * element(type), count, type, peer, comm, stream);
    }
    return ncclGroupEnd();
}
