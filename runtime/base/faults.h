/// \file faults.h
/// The one table of what FLX can have to say that something is wrong. Each kind has a number, which users see as a
/// code, FLX-E101, and of which docs/errors.md tells more. The first digit is the flx_status_t that calls return.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "runtime/include/flx.h"

namespace flx {

/// Number, name, title. A number stays with its kind for good: tests/runtime/base/fault_numbers.txt keeps them, those
/// of kinds that have gone, too. docs/errors.md has a section for each, which begins with the title.
#define FLX_FAULTS(FAULT)                                                               \
    /* FLX_ERR_ARGUMENT: this rank's call is wrong */                                   \
    FAULT(101, null_pointer, "A pointer is null")                                       \
    FAULT(102, no_buffer, "A buffer is missing")                                        \
    FAULT(103, count_too_large, "A count is too large")                                 \
    FAULT(104, unknown_dtype, "An element type is not known")                           \
    FAULT(105, unknown_op, "A reduction is not known")                                  \
    FAULT(106, op_not_for_dtype, "A reduction does not go with its elements or call")   \
    FAULT(107, no_such_rank, "A rank does not exist")                                   \
    FAULT(108, buffers_overlap, "Two buffers overlap")                                  \
    FAULT(109, own_counts_differ, "A rank's counts for itself differ")                  \
    FAULT(110, struct_size, "A struct has a size that FLX does not know")               \
    FAULT(111, unknown_collective, "A collective's name is not known")                  \
    FAULT(112, request_not_ready, "A request cannot be started")                        \
    FAULT(113, handle_not_made, "A handle was not made, or was freed")                  \
    FAULT(114, element_size, "An element type has a size that is not allowed")          \
    FAULT(115, wrong_in_group, "A group has a call in it that it cannot have")          \
    FAULT(116, message_to_itself, "A rank's messages to itself do not match")           \
    FAULT(117, call_in_wait, "A call was made from within a wait")                      \
    FAULT(118, mpi_not_running, "MPI does not run")                                     \
    FAULT(119, wrong_mpi_comm, "An MPI communicator cannot be used")                    \
    FAULT(120, not_allocated, "Memory to free is not memory of flx_malloc")             \
    FAULT(121, registration, "Memory is registered already, or not at all")             \
    FAULT(122, not_device_memory, "Memory to register is not all GPU memory")           \
    FAULT(123, memory_differs, "Registered memory differs or has changed")              \
    FAULT(124, not_a_size, "A text is not a size")                                      \
    FAULT(125, wrong_array, "An array of Fortran cannot be used")                       \
    FAULT(126, wrong_inside, "FLX called itself wrongly")                               \
    FAULT(127, wrong_place, "A process has no place among the ranks of a store")        \
    /* FLX_ERR_CONFIG: a knob is wrong */                                               \
    FAULT(201, unknown_knob, "A knob is not known")                                     \
    FAULT(202, knob_value, "A value of a knob is not allowed")                          \
    FAULT(203, knobs_differ, "Knobs differ between ranks")                              \
    FAULT(204, versions_differ, "Ranks run different versions of FLX")                  \
    FAULT(205, algorithm_rule, "A rule of FLX_ALGORITHM cannot be followed")            \
    FAULT(206, rule_file, "A file of rules cannot be read")                             \
    FAULT(207, unknown_link, "A link's name is not known")                              \
    FAULT(208, partition_text, "FLX_PARTITION cannot be read")                          \
    FAULT(209, partition_empty, "FLX_PARTITION leaves a peer without a link")           \
    FAULT(210, rail_selection, "FLX_RAILS cannot be read")                              \
    FAULT(211, too_many_links, "There are too many links")                              \
    FAULT(212, progress_thread_late, "FLX_PROGRESS_THREAD was set too late")            \
    FAULT(213, staging_too_small, "FLX_CUDA_STAGING is too small")                      \
    FAULT(214, schedule_file, "A file with a schedule cannot be followed")              \
    /* FLX_ERR_UNSUPPORTED: this build, these links or these GPUs cannot do it */       \
    FAULT(301, no_gpu, "No GPU can be used")                                            \
    FAULT(302, call_not_on_gpu, "A call does not take GPU memory")                      \
    FAULT(303, type_not_on_gpu, "GPUs do not have a reduction or element type")         \
    FAULT(304, gpu_group, "A group of messages between GPUs cannot be carried out")     \
    FAULT(305, gpus_not_open, "A communicator has not opened its GPUs")                 \
    FAULT(306, not_captured, "A call cannot be captured into a graph")                  \
    FAULT(307, too_many_ranks, "There are too many ranks on a host, or groups of them") \
    FAULT(308, gpu_memory_closed, "Other processes cannot open GPU memory")             \
    FAULT(309, driver_lacks, "The driver of the GPU lacks a function")                  \
    FAULT(310, pinned_too_small, "There is too little pinned memory for GPUs")          \
    FAULT(311, several_hosts, "The library in front of NCCL serves one host")           \
    FAULT(312, no_such_way, "A collective cannot go this way")                          \
    FAULT(313, threads_late, "A communicator of a store came after one of MPI")         \
    /* FLX_ERR_MISMATCH: ranks called with arguments that differ */                     \
    FAULT(401, calls_differ, "Ranks made different calls")                              \
    FAULT(402, bytes_differ, "A rank sends more or less than another one receives")     \
    FAULT(403, calls_cross, "Calls on two communicators cross")                         \
    /* FLX_ERR_LINK: no link to a peer works */                                         \
    FAULT(501, no_link, "No link reaches a rank")                                       \
    FAULT(502, no_common_link, "No one link leads to all ranks of a host")              \
    FAULT(503, rails_lost, "Every rail to a host is lost")                              \
    FAULT(504, rail_not_opened, "A rail cannot be opened")                              \
    FAULT(505, too_many_rails, "There are too many rails")                              \
    FAULT(506, no_such_device, "A network device does not exist")                       \
    FAULT(507, peer_memory_gone, "A peer's memory is gone")                             \
    FAULT(508, no_landing, "A rail cannot write into a peer's memory")                  \
    /* FLX_ERR_PEER: a peer died or stopped */                                          \
    FAULT(601, peer_died, "A rank died")                                                \
    FAULT(602, peer_silent, "A rank does not answer")                                   \
    FAULT(603, aborted, "A rank aborted a communicator")                                \
    FAULT(604, peer_gave_up, "A rank gave up its communicator")                         \
    FAULT(605, peer_late, "A rank did not come")                                        \
    /* FLX_ERR_COMM: the communicator was broken by an earlier error */                 \
    FAULT(701, comm_broken, "A communicator is broken")                                 \
    FAULT(702, comm_ended, "A communicator was freed, aborted or revoked")              \
    FAULT(703, comm_given_up, "Ranks gave up a communicator together")                  \
    /* FLX_ERR_SYSTEM: the system refused something */                                  \
    FAULT(801, no_memory, "There is too little memory")                                 \
    FAULT(802, shm_too_small, "There is too little shared memory")                      \
    FAULT(803, shm_refused, "The system refused shared memory")                         \
    FAULT(804, peer_memory_closed, "A peer's memory cannot be reached")                 \
    FAULT(805, no_descriptor, "There are too many descriptors")                         \
    FAULT(806, no_thread, "A thread cannot be started")                                 \
    FAULT(807, no_socket, "The system refused a socket")                                \
    FAULT(808, no_address, "A peer cannot be asked whether it lives")                   \
    FAULT(809, mpi_refused, "MPI refused a call")                                       \
    FAULT(810, gpu_error, "CUDA refused a call")                                        \
    FAULT(811, nccl_refused, "NCCL refused a call")                                     \
    FAULT(812, ucx_refused, "UCX refused memory")                                       \
    FAULT(813, machine_not_read, "The machine cannot be looked at")                     \
    FAULT(814, no_secret, "There are no random numbers or seals")                       \
    FAULT(815, not_readable, "What another rank sent cannot be read")                   \
    FAULT(816, not_written, "A file cannot be written")                                 \
    FAULT(817, not_read, "A file cannot be read")                                       \
    FAULT(818, too_many_made, "Too many types or reductions are kept")                  \
    FAULT(819, unexpected, "FLX met something unexpected")                              \
    FAULT(820, no_store, "The store in which ranks meet is not found")                  \
    FAULT(821, mpi_part, "FLX's part for MPI cannot be loaded")

/// A kind of error: what users can do something about.
enum class Fault : uint16_t {
#define FLX_FAULT(number, name, title) name = number,
    FLX_FAULTS(FLX_FAULT)
#undef FLX_FAULT
};

struct FaultKind {
    Fault fault;
    std::string_view name;
    std::string_view title;
};

inline constexpr FaultKind kFaults[] = {
#define FLX_FAULT(number, name, title) {Fault::name, #name, title},
    FLX_FAULTS(FLX_FAULT)
#undef FLX_FAULT
};

constexpr uint16_t number_of(Fault fault) {
    return static_cast<uint16_t>(fault);
}

/// What calls return for it.
constexpr flx_status_t status_of(Fault fault) {
    return static_cast<flx_status_t>(number_of(fault) / 100);
}

/// Whether a number that another process gave is one of a kind.
constexpr bool is_fault(uint32_t number) {
    return std::any_of(std::begin(kFaults), std::end(kFaults),
                       [&](const FaultKind &kind) { return number_of(kind.fault) == number; });
}

/// What another process calls by its number; `unexpected` for numbers of other versions of FLX.
constexpr Fault fault_of(uint32_t number) {
    return is_fault(number) ? static_cast<Fault>(number) : Fault::unexpected;
}

}  // namespace flx
