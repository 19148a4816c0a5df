/// \file engine.h
/// What this library needs of FLX's collectives on GPUs and of CUDA, as an interface: engine_cuda.cpp is the real one,
/// engine_absent.cpp says why there is none, and tests have one that needs no GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/config.h"
#include "runtime/base/status.h"
#include "runtime/cuda/memory/graph_use.h"
#include "runtime/cuda/memory/shown_memory.h"
#include "runtime/cuda/protocol/mailbox.h"
#include "runtime/front/nccl/routing.h"
#include "runtime/link/bootstrap.h"

namespace flx::nccl {

/// FLX's side of one rank of a communicator. One thread at a time, but for what says otherwise.
class Lane {
  public:
    Lane() = default;
    Lane(const Lane &) = delete;
    Lane &operator=(const Lane &) = delete;
    /// When all that it put on streams has ended. Waits for nothing: what peers may still use is freed later.
    virtual ~Lane() = default;
    /// Gives up what runs and what is queued, so that nothing on this GPU waits for a peer any more. From any thread,
    /// at any time: it takes no lock that a call may hold, and waits for nothing.
    virtual void abort() = 0;
    /// What is put on the stream next is part of a graph, which may be replayed until it is gone.
    virtual Status note_capture(cudaStream_t /*stream*/) { return {}; }
    /// Returns when it is on the stream; waits for no peer. `shown`: where all ranks' outputs are, open everywhere; or
    /// empty.
    virtual Status enqueue(const Operation &operation, cudaStream_t stream, std::span<const cuda::Showing> shown) = 0;
    /// Likewise: messages to and from other ranks, and to itself, all under way at once. At most cuda::ManyMail::kMost.
    virtual Status post(std::span<const cuda::Message> messages, cudaStream_t stream) = 0;
    /// As cuda::Group's, of calls' outputs.
    virtual Status expect_shown() = 0;
    virtual void show(const Operation &operation, bool frozen, cuda::Showing &mine) = 0;
    virtual Status open_shown(std::span<const cuda::Showing> all) = 0;
    virtual void settle_shown(std::span<const cuda::Showing> all, bool opened) = 0;
    virtual void close_shown() = 0;
    /// As cuda::Group's.
    [[nodiscard]] virtual bool is_small() const { return false; }
    [[nodiscard]] virtual bool slows(const Operation & /*operation*/, bool /*shown*/) const { return false; }
    [[nodiscard]] virtual bool slows_message(uint64_t /*bytes*/) const { return false; }
    [[nodiscard]] virtual bool writes_outputs(const Operation & /*operation*/) const { return true; }
    /// Why its peers can no longer be reached, if so.
    virtual Status failure() = 0;
    /// Collective: no rank frees what a peer still uses.
    virtual void close() = 0;
};

/// CUDA's events, which order streams. Null handles are allowed and do nothing.
using Event = void *;

class Engine {
  public:
    Engine() = default;
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;
    virtual ~Engine() = default;

    /// Empty: it can serve.
    [[nodiscard]] virtual std::string why_none() = 0;
    /// Collective. `device`: CUDA's number of this rank's GPU.
    virtual Status make(std::unique_ptr<Bootstrap> bootstrap, const Config &config, int device,
                        std::unique_ptr<Lane> &result) = 0;

    virtual Status make_event(int device, Event &event) = 0;
    virtual void free_event(Event event) = 0;
    /// One that waits for no other stream.
    virtual Status make_stream(int device, cudaStream_t &stream) = 0;
    virtual void free_stream(int device, cudaStream_t stream) = 0;
    /// `external`: as a node of the graph that the stream captures.
    virtual Status record(Event event, cudaStream_t stream, bool external) = 0;
    virtual Status wait(Event event, cudaStream_t stream, bool external) = 0;
    /// Whether all is done that came before where it was recorded last. Waits for nothing. Null, or never recorded:
    /// yes.
    virtual bool ended(Event event) = 0;
    struct Stream {
        uint64_t name = 0;     ///< no other stream ever has it
        uint64_t capture = 0;  ///< names the capture under way; 0: none
    };
    virtual Status look_at(cudaStream_t stream, Stream &found) = 0;
    /// The graph that the stream captures has what `use` stands for.
    virtual Status note_capture(cuda::GraphUse & /*use*/, cudaStream_t /*stream*/) { return {}; }
    /// Whether what is on the stream, which is not being captured, is not all done.
    virtual bool has_work(cudaStream_t stream) = 0;

    /// For measuring on `device`: two buffers of so many bytes each, and a stream. Nothing made: an error.
    struct Bench {
        void *in = nullptr;
        void *out = nullptr;
        size_t bytes = 0;
        cudaStream_t stream = nullptr;
    };
    virtual Status open_bench(int device, size_t bytes, Bench &bench) = 0;
    virtual void close_bench(int device, Bench &bench) = 0;
    /// Microseconds on the stream of one of `turns` calls, after `warm` of them.
    virtual Status time(const Bench &bench, int device, int warm, int turns, const std::function<Status()> &call,
                        double &us) = 0;
    /// How long a rank waits for peers that come with the same at once: longer than ranks of a training step are apart,
    /// as a rule. Who runs ahead of its GPU loses nothing by it.
    virtual int64_t patience_ns() { return 2'000'000; }
    /// Whether NCCL adds 8-bit floats on that device: it refuses before Hopper.
    virtual bool adds_float8(int /*device*/) { return true; }
    /// Runs `body` with `device` current.
    virtual void on_device(int device, const std::function<void()> &body) = 0;
    /// The calling thread's from now on. For threads of FLX's own: going back, as on_device() does, would open the
    /// GPU that CUDA names first, which this process may not use at all.
    virtual void stay_on(int device) = 0;
};

/// The process's one.
Engine &engine();

}  // namespace flx::nccl
