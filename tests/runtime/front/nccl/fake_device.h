/// \file fake_device.h
/// GPUs without a GPU: a stream is a thread that carries out what was put on it in order, device memory is memory, and
/// ranks are threads of one process, whose operations wait for each other as kernels do.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/front/nccl/abi.h"

namespace fake {

cudaStream_t make_stream();
void free_stream(cudaStream_t stream);
void enqueue(cudaStream_t stream, std::function<void()> body);
/// Waits for a few seconds. False: something on the stream waits for ever.
bool synchronize(cudaStream_t stream);
/// Waits until fewer than `most` are queued on the stream, as a launch does where the GPU's queue is full.
void await_room(cudaStream_t stream, size_t most);

/// As CUDA's: what is recorded last counts, and waiting for one that never was does nothing.
struct Event;
Event *make_event();
void record(Event *event, cudaStream_t stream);
void wait(Event *event, cudaStream_t stream);
bool ended(Event *event);

/// All `ranks` parties of `key` come with `mine`; the last one does `body` with what all brought, in order of rank.
/// Then all go on. False after a few seconds, or once `*stop` is true.
bool meet(const std::string &key, int rank, int ranks, void *mine,
          const std::function<void(const std::vector<void *> &)> &body, const std::atomic<bool> *stop = nullptr);

/// Messages by name: put there for whoever takes it, which waits for a while and notes a length that is another.
void put_letter(const std::string &name, std::span<const char> bytes);
void take_letter(const std::string &name, std::span<char> bytes);

/// How many lanes of FLX there are in this process.
std::atomic<int> &lanes();

/// A line that says what was done, for the test.
void note(const std::string &line);
std::vector<std::string> take_notes();

/// An operation on memory, of NCCL's kinds by name, on what all ranks brought.
struct Collective {
    std::string kind;
    const void *in = nullptr;
    void *out = nullptr;
    size_t count = 0;  ///< of the whole vector
    ncclDataType_t type = ncclInt32;
    int op = ncclSum;
    int root = 0;
    bool operator==(const Collective &other) const {
        return kind == other.kind && count == other.count && type == other.type && op == other.op && root == other.root;
    }
};
/// Notes `mismatch` if they are not the same.
void carry_out(const std::vector<void *> &collectives);

}  // namespace fake
