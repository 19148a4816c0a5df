/// \file program.h
/// What a program called, by the trace that FLX wrote of it, and what these calls take on a machine.
#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "apps/flx_simulate/cells.h"

namespace flx::simulate {

/// Equal calls on one communicator, as the rank of it that comes first in the trace made them: all of its ranks made
/// them together.
struct CallKind {
    algorithms::Collective collective = algorithms::Collective::allreduce;
    size_t bytes = 0;   ///< of the whole vector
    bool waits = true;  ///< a call that blocks
    bool operator==(const CallKind &) const = default;
    bool operator<(const CallKind &other) const {
        return std::tie(collective, bytes, waits) < std::tie(other.collective, other.bytes, other.waits);
    }
};
struct CallSum {
    uint64_t calls = 0;
    double traced_us = 0;  ///< of blocking ones, on that rank
};

struct ProgramCommunicator {
    int size = 1;
    std::vector<int64_t> members;  ///< ranks of the program that are in the trace, ascending
    std::map<CallKind, CallSum> calls;
};

struct Program {
    int64_t ranks = 0;
    std::vector<ProgramCommunicator> communicators;
    std::map<std::string, uint64_t> left_out;  ///< calls that no prediction is made of, by why
    std::vector<std::string> notes;            ///< sentences on what is not in the trace
};

/// Reads a trace. A sentence: what is wrong; empty: nothing. `name`: what sentences call the file.
std::string read_program(std::istream &stream, const std::string &name, Program &program);

/// Equal calls of a program on a machine.
struct ProgramRow {
    CallKind kind;  ///< as in the trace
    int ranks = 0;  ///< of the communicator, on the machine
    int hosts = 0;  ///< likewise
    CallSum sum;
    Cell cell;  ///< on the machine: its bytes are those of all its ranks' blocks
};
struct ProgramTimes {
    std::vector<ProgramRow> rows;              ///< what takes most of the time first
    std::map<std::string, uint64_t> left_out;  ///< the program's, and what has no prediction on this machine
    uint64_t calls = 0;                        ///< that rows have
    double ns = 0;                             ///< of these, by what FLX chooses
    double best_ns = 0;                        ///< by the best candidates
};

/// What its calls are on a machine, and what they take. Each rank makes the same calls with the same arguments: a
/// vector stays as long as it is, and so does a rank's block of what has blocks. A communicator of all ranks is one of
/// all of the machine's. Where the machine has as many ranks as the program, parts of them are where these ranks are;
/// else their calls are left out. `done`: as run_rows() has it.
ProgramTimes run_program(const Machine &machine, const Program &program,
                         const std::function<void(size_t, size_t)> &done);

/// A line for each row, the totals, and what was left out.
std::string program_text(const Machine &machine, const Program &program, const ProgramTimes &times);
/// The same as docs/simulation.md describes it.
std::string program_json(const Machine &machine, const Program &program, const ProgramTimes &times);

}  // namespace flx::simulate
