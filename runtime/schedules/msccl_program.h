/// \file msccl_program.h
/// Private to the room: an algorithm of MSCCL as its XML has it, and what it makes of it. The XML is that of
/// github.com/Azure/msccl-tools (Cowan and others: MSCCLang, ASPLOS 2023): each GPU has thread blocks, which run their
/// steps one after the other; a thread block sends to one GPU and receives from one, over a channel, in order. Chunks
/// are numbered in the buffers `i`, `o` and `s`.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "algorithms/written.h"
#include "runtime/base/status.h"

namespace flx::schedules {

/// What a step does; `_send` passes the result on, and `recv_reduce_send` keeps none of it.
enum class MscclKind : uint8_t {
    nop,
    send,
    recv,
    copy,
    reduce,
    recv_reduce_copy,
    recv_copy_send,
    recv_reduce_send,
    recv_reduce_copy_send
};

struct MscclChunk {
    char buffer = 'i';
    int index = 0;
    friend bool operator==(const MscclChunk &, const MscclChunk &) = default;
    friend bool operator<(const MscclChunk &a, const MscclChunk &b) {
        return std::tie(a.buffer, a.index) < std::tie(b.buffer, b.index);
    }
};

struct MscclStep {
    MscclKind kind = MscclKind::nop;
    MscclChunk from{};
    MscclChunk to{};
    int count = 1;        ///< of chunks that follow each other, on either side
    int wait_block = -1;  ///< of the same GPU; -1: none
    int wait_step = -1;
    std::string where{};  ///< `gpu 0, tb 1, step 2 (rrc)`
};

struct MscclBlock {
    int send = -1;  ///< the GPU that it sends to; -1: none
    int recv = -1;
    int channel = 0;
    std::vector<MscclStep> steps;
};

struct MscclProgram {
    algorithms::Collective collective = algorithms::Collective::allreduce;
    bool in_place = true;
    int chunks = 0;  ///< of the whole vector
    std::vector<std::vector<MscclBlock>> gpus;

    [[nodiscard]] int size() const { return static_cast<int>(gpus.size()); }
};

/// Runs it with chunks that have a name each, which says what blocks messages carry and in which order a GPU's steps
/// can be carried out; and makes steps that wait for what they read and write, and for nothing else.
/// Fault::schedule_file names the step that cannot run, or that FLX has nothing for.
Status schedules_of(const MscclProgram &program, std::vector<algorithms::Schedule> &result);

}  // namespace flx::schedules
