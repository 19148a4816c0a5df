/// The part of a communicator that has to do with GPUs: when they are opened, and whether its ranks are there.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/counters.h"
#include "runtime/base/log.h"
#include "runtime/communicator/communicator.h"
#include "runtime/communicator/far_host.h"
#include "runtime/communicator/gpu_range.h"
#include "runtime/communicator/recording.h"
#include "runtime/cuda/protocol/plan.h"
#include "runtime/elements/dtype.h"
#include "runtime/link/board.h"
#include "runtime/process/later.h"
#include "runtime/shares/partition.h"

namespace flx {
namespace cuda {

void Group::end(std::unique_ptr<Group> group) {
    if (group == nullptr)
        return;
    group->retire();
    if (group->may_go(false))
        return;
    do_later([rest = std::shared_ptr<Group>(std::move(group))] { return rest->may_go(true); });
}

}  // namespace cuda

namespace {

bool has_kernel(const Operation &operation) {
    return flx::has_kernel(operation.dtype, operation.op);
}

/// Equal for ranks that are threads of one process, whose GPUs reach each other without handles, and for no others. The
/// communicator's process does not tell: such ranks have one each.
uint64_t system_process() {
    static const uint64_t random = [] {
        std::random_device device;
        return uint64_t{device()} << 32 | device();
    }();
    return random ^ static_cast<uint64_t>(getpid());  // a forked one is another
}

CallRecord as_recorded(const Operation &call) {
    CallRecord record;
    record.collective = call.collective;
    record.bytes = call.count * size_of(call.dtype);
    record.dtype = static_cast<uint16_t>(call.dtype);
    record.op = static_cast<uint16_t>(call.op);
    record.root = call.root;
    return record;
}

}  // namespace

class Communicator::DeviceHealth final : public cuda::Health {
  public:
    explicit DeviceHealth(Communicator &comm) : comm_(comm) {}

    Status look(int awaited, bool said) override { return comm_.look_at_ranks(awaited, said); }
    void progress() override { comm_.progress(); }

  private:
    Communicator &comm_;
};

record::Carrier Communicator::carrier_of(bool blocking) {
    return blocking ? record::Carrier::gpu : record::Carrier::stream;
}

CallRecord Communicator::record_of(const DeviceMail &mail) {
    size_t bytes = 0;
    for (const cuda::Message &message : mail.messages)
        bytes += message.bytes;
    return Recording::messages(CallKind::grouped, bytes, mail.messages.size() == 1 ? mail.messages.front().peer : -1);
}

/// Reads only what does not change, or is made for several threads.
Status Communicator::look_at_ranks(int awaited, bool said) {
    Status why;
    if (told_broken(why))
        return why;
    for (int peer = 0; peer < layout_.size; ++peer)
        if (peer != layout_.rank && layout_.members[peer].host == layout_.host && memory_.segment &&
            !memory_.segment->alive(layout_.members[peer].local))
            return fail(Fault::peer_died, "{} died while GPUs of its communicator were in use", layout_.describe(peer));
    if (awaited >= layout_.size || awaited == layout_.rank)
        awaited = -1;
    const auto late_ns = static_cast<int64_t>(knobs_.late_warning_s * 1e9);
    const int64_t now = now_ns();
    const bool late = said && devices_.late.became_late(awaited, now, late_ns);
    if (awaited < 0)
        return {};
    // A kernel of this rank waits: its peer may compute, but its process answers, unless it was stopped.
    const PeerReport report = ask(awaited);
    if (static_cast<double>(report.silent_ns) > knobs_.deadline_s * 1e9)
        return silent(awaited, report, "a collective on GPUs");
    if (late) {
        log().warn("a collective on GPUs waits for {} since {:.0f} s: it runs, but is late", layout_.describe(awaited),
                   static_cast<double>(now - devices_.late.began_ns(awaited)) / 1e9);
        process_->reporter().report(fmt::format("{} is late", layout_.describe(awaited)));
    }
    return {};
}

/// Empty: `tiers` are what they are. Equal on all ranks.
std::string Communicator::why_no_tiers(cuda::Tiers &tiers) const {
    if (knobs_.all.text("FLX_CUDA_TIERS") == "off")
        return "FLX_CUDA_TIERS is off";
    if (knobs_.all.integer("FLX_STRICT") != 0)
        return "FLX_STRICT is 1: sums are added in rank order";
    std::vector<int> hosts;
    for (const Member &member : layout_.members)
        hosts.push_back(member.host);
    return cuda::find_tiers(hosts, layout_.rank, tiers);
}

/// Collective.
Status Communicator::open_devices() {
    if (devices_.health == nullptr)
        devices_.health = std::make_unique<DeviceHealth>(*this);
    if (layout_.hosts != 1) {
        Status status;
        if (!cuda::why_none().empty())
            status = fail(Fault::no_gpu, "no GPU can be used: {}", cuda::why_none());
        FLX_TRY(agree(*bootstrap_, std::move(status)));
        cuda::Tiers tiers;
        const std::string why_flat = why_no_tiers(tiers);
        std::unique_ptr<cuda::FarHost> host;
        FLX_TRY(FarCommunicator::make(*this, *devices_.health, tiers, host));
        return cuda::Group::make_far(*bootstrap_, knobs_.all, system_process(), tiers, why_flat, std::move(host),
                                     *devices_.health, devices_.group);
    }
    return cuda::Group::make(*bootstrap_, knobs_.all, system_process(), *devices_.health, devices_.group);
}

/// Collective, when a communicator is made: not later, if it can be now, since a first call may be in a capture.
Status Communicator::open_devices_in_use() {
    if (layout_.size == 1 || (layout_.hosts == 1 && layout_.size > cuda::kMaxRanks))
        return {};
    const bool pins = layout_.hosts == 1 || knobs_.all.size("FLX_CUDA_PINNED") != 0;
    const uint8_t mine = devices_.opens == Gpus::if_in_use && cuda::in_use() && pins ? 1 : 0;
    std::vector<uint8_t> all(layout_.size);
    FLX_TRY(bootstrap_->allgather(&mine, sizeof mine, all.data()));
    if (std::any_of(all.begin(), all.end(), [](uint8_t used) { return used == 0; }))
        return {};
    // The program may not want collectives on its GPUs: a call that does will try again and say why it cannot.
    if (const Status status = open_devices(); !status.ok())
        log().info("no collectives on GPUs: {}", status.sentence());
    return {};
}

/// FLX_PARTITION without the links between GPUs, which are no business of host memory.
std::string Communicator::forced_shares() const {
    const std::array<std::string, 2> gpu_links{cuda::kNvlink, cuda::kPcie};
    return split_partition(knobs_.all.text("FLX_PARTITION"), gpu_links).rest;
}

void Communicator::close_devices() {
    if (devices_.group != nullptr)
        devices_.group->close();
    cuda::Group::end(std::move(devices_.group));
}

/// Where not, any address may be given as output.
bool Communicator::writes_output(const Call &call) const {
    using algorithms::Collective;
    if (call.operation.collective == Collective::alltoallv)
        return std::any_of(call.blocks.counts, call.blocks.counts + layout_.size,
                           [](size_t each) { return each != 0; });
    return call.operation.collective != Collective::exscan || layout_.rank != 0;
}

Communicator::Place Communicator::place_of(const Call &call) const {
    using algorithms::Collective;
    const Operation &operation = call.operation;
    // A call without elements may come with any address on any rank, and all ranks must go the same way.
    if (operation.count == 0 && call.blocks.counts == nullptr && call.own == 0)
        return Place::host;
    const bool messages = operation.collective == Collective::alltoallv && !call.in_place;
    const bool has_output = operation.out != nullptr && operation.out != FLX_IN_PLACE && writes_output(call);
    const bool served = cuda::serves(operation.collective) && (!reduces(operation.collective) || has_kernel(operation));
    const bool on_gpu = cuda::on_device(has_output ? operation.out : operation.in);
    if (!on_gpu && (served || messages || !has_output || !cuda::on_device(operation.in)))
        return Place::host;
    if (too_many_for_gpus())
        return Place::mirrored;
    if (messages)
        return Place::mail;
    return served ? Place::gpus : Place::mirrored;
}

/// Elements that are only moved may be of types that GPUs do not know.
Operation Communicator::on_gpus(const Call &call) {
    Operation result = call.operation;
    if (!has_kernel(result)) {
        result.count = result.bytes();
        result.dtype = FLX_UINT8;
    }
    return result;
}

Status Communicator::run_mirrored(Call call) {
    const auto lock = guard();
    return whole(call.operation.collective, [&]() -> Status {
        FLX_TRY(can_run_on_device(algorithms::name_of(call.operation.collective), false));
        const Mirror mirror(call, layout_.size, layout_.rank, devices_.mirrors);
        FLX_TRY(settle_device(mirror.load()));
        FLX_TRY(run(call));
        return mirror.store();
    });
}

Status Communicator::make_mirror(Call &call, bool begun, std::unique_ptr<Mirror> &mirror) {
    const auto lock = guard();
    const auto make = [&]() -> Status {
        mirror = std::make_unique<Mirror>(call, layout_.size, layout_.rank, devices_.mirrors);
        return {};
    };
    return begun ? whole(call.operation.collective, make) : make();
}

Status Communicator::begin_mirrored(const Call &call, const Mirror &mirror, Pending *&result) {
    FLX_TRY(can_run_on_device(algorithms::name_of(call.operation.collective), false));
    FLX_TRY(settle_device(mirror.load()));
    return issue(call, result);
}

Status Communicator::can_use_devices() const {
    FLX_TRY(usable());
    if (!cuda::why_none().empty())
        return fail(Fault::no_gpu, "no GPU can be used: {}", cuda::why_none());
    return {};
}

Status Communicator::can_run_on_device(std::string_view what, bool queued) const {
    FLX_TRY(can_use_devices());
    if (group_.messages != nullptr)
        return fail(Fault::gpu_group, "{} was called on GPU memory in a group; on GPUs only messages can be in one",
                    what);
    return queued ? check_none_under_way(what) : Status();
}

/// They are on a stream of FLX's own, behind which a message would wait, and beside which a stream of the program's
/// goes.
Status Communicator::check_none_under_way(std::string_view what) const {
    if (devices_.under_way == 0)
        return {};
    return fail(
        Fault::call_not_on_gpu,
        "{} on GPU memory while non-blocking collectives on GPU memory are under way ({}); messages and calls on "
        "streams can be made when flx_wait or flx_test has completed these",
        what, devices_.under_way);
}

Status Communicator::begin_on_device(const Operation &call, cuda::Mark &end) {
    end.take_off();
    FLX_TRY(can_run_on_device(name_of(call.collective), false));
    if (layout_.size == 1 || call.count == 0) {
        FLX_TRY(run_on_device(call, nullptr, true));
    } else {
        if (devices_.group == nullptr)
            FLX_TRY(open_devices());
        FLX_TRY(put_recorded(call, devices_.group->stream(), false, {}));
        if (Status status = end.put(devices_.group->stream(), devices_.group->device()); !status.ok()) {
            (void)devices_.group->finish();  // the caller's buffers are the caller's again
            return settle_device(std::move(status));
        }
    }
    ++devices_.under_way;
    return {};
}

bool Communicator::ended_on_device(const cuda::Mark &end, Status &status, bool &moved) {
    constexpr uint32_t kLooksPerProgress = 16;
    bool passed = true;
    status = end.look(passed);
    if (!passed) {
        const auto lock = guard();
        (void)poke(nullptr, moved);  // an error is the status of what is under way
        if (!moved && !entry_.inside && ++entry_.looks % kLooksPerProgress == 0) {
            progress();
            sched_yield();
        }
        return false;
    }
    if (status.ok() && devices_.group != nullptr && devices_.group->failed())
        status = devices_.group->finish();
    status = settle_device(std::move(status));
    return true;
}

Status Communicator::run_on_device(const Operation &call, CUstream_st *stream, bool blocking,
                                   std::span<const cuda::Showing> shown) {
    FLX_TRY(can_run_on_device(name_of(call.collective), !blocking));
    return put_recorded(call, stream, blocking, shown);
}

Status Communicator::put_recorded(const Operation &call, CUstream_st *stream, bool blocking,
                                  std::span<const cuda::Showing> shown) {
    if (call.count == 0 && layout_.size > 1)  // it asks whether the GPUs still work, perhaps again and again
        return put_on_device(call, stream, blocking, shown);
    Telemetry::count(telemetry().operations);
    if (layout_.size == 1)
        return cuda::copy_alone(call, stream, blocking);
    const CallRecord record = as_recorded(call);
    const GpuRange range(name_of(call.collective), record.bytes);
    Recording recording(*this, record, ++recorded_.gpu_calls, Way::exchanged, carrier_of(blocking));
    return recording.end(put_on_device(call, stream, blocking, shown));
}

Status Communicator::put_on_device(const Operation &call, CUstream_st *stream, bool blocking,
                                   std::span<const cuda::Showing> shown) {
    if (devices_.group == nullptr && !blocking && layout_.hosts != 1 && cuda::captures(stream))
        return fail(Fault::not_captured,
                    "a first collective on GPU memory between hosts cannot be called while a graph "
                    "is captured, nor can others be captured");
    if (devices_.group == nullptr)
        FLX_TRY(open_devices());
    return settle_device(blocking ? devices_.group->run(call) : devices_.group->enqueue(call, stream, shown));
}

/// Puts it on its stream.
Status Communicator::begin_mail(const DeviceMail &mail) {
    if (mail.messages.empty())
        return {};
    Telemetry::count(telemetry().operations);
    const GpuRange range("messages", [&] { return record_of(mail).bytes; });
    Status status;
    if (layout_.size == 1) {
        std::vector<cuda::OwnMessage> own;
        FLX_TRY(cuda::own_messages(mail.messages, layout_.rank, own));
        status = cuda::copy_own(own, mail.stream);
    } else {
        status = devices_.group->post(mail.messages, mail.blocking ? devices_.group->stream() : mail.stream);
    }
    return settle_device(std::move(status));
}

Status Communicator::end_mail(const DeviceMail &mail) {
    if (mail.messages.empty() || !mail.blocking)
        return {};
    return settle_device(layout_.size == 1 ? cuda::await(mail.stream) : devices_.group->finish());
}

/// After a peer is gone, or a message was not what its receiver expects, nothing meets any more.
Status Communicator::settle_device(Status status) {
    const bool broken = status.code() == FLX_ERR_PEER || status.code() == FLX_ERR_SYSTEM ||
                        (status.code() == FLX_ERR_MISMATCH && devices_.group != nullptr && devices_.group->failed());
    if (broken)
        give_up(status);  // what is under way on host memory will not end either
    return status;
}

Status Communicator::post_on_device(std::span<const cuda::Message> messages, CUstream_st *stream, bool blocking,
                                    bool all_call) {
    FLX_TRY(can_use_devices());
    // An alltoallv that blocks has its place in the order of the collectives, and is on the same stream.
    if (!all_call || !blocking || group_.messages != nullptr)
        FLX_TRY(check_none_under_way("a message"));
    if (layout_.size > 1 && devices_.group == nullptr && all_call)
        FLX_TRY(open_devices());
    if (layout_.size > 1 && devices_.group == nullptr)
        return fail(Fault::gpus_not_open,
                    "this communicator has not opened its GPUs; it does where CUDA is in use on all ranks when it is "
                    "made, and in the first collective on GPU memory");
    if (group_.messages == nullptr) {
        const DeviceMail mail{{messages.begin(), messages.end()}, stream, blocking};
        Recording recording(*this, record_of(mail), 0, Way::exchanged, carrier_of(blocking));
        Status status = begin_mail(mail);
        return recording.end(status.ok() ? end_mail(mail) : std::move(status));
    }
    DeviceMail &mail = group_.mail;
    if (!mail.messages.empty() && (mail.stream != stream || mail.blocking != blocking))
        return fail(Fault::gpu_group, "a group has messages between GPUs on several streams; one stream is served");
    mail.stream = stream;
    mail.blocking = blocking;
    mail.messages.insert(mail.messages.end(), messages.begin(), messages.end());
    return {};
}

Status Communicator::device_way(const std::string &collective, size_t bytes, const void *recvbuf,
                                const char *&name) const {
    const std::optional<algorithms::Collective> which = algorithms::parse_collective(collective);
    if (!which || *which == algorithms::Collective::send_recv)
        return fail(Fault::unknown_collective,
                    "collective \"{}\" is not known on GPU memory; docs/concepts.md names those that are", collective);
    const bool messages = *which == algorithms::Collective::alltoallv && !too_many_for_gpus();
    name = messages ? "messages" : "host memory";
    if (messages || too_many_for_gpus() || !cuda::serves(*which))
        return {};
    if (layout_.size > 1 && devices_.group == nullptr)
        return fail(Fault::gpus_not_open,
                    "no collective on GPU memory was called yet, which opens the GPUs of a communicator");
    const Operation call{.collective = *which, .out = const_cast<void *>(recvbuf), .count = bytes, .dtype = FLX_UINT8};
    name = layout_.size == 1 ? "copy" : devices_.group->way(call);
    return {};
}

Status Communicator::register_memory(void *memory, size_t bytes) {
    FLX_TRY(usable());
    if (layout_.size == 1)
        return {};
    if (devices_.group == nullptr)
        FLX_TRY(open_devices());
    if (memory == nullptr || bytes == 0)
        return agree(*bootstrap_, fail(Fault::not_device_memory,
                                       "memory to register is {}; device memory of at least a byte is "
                                       "needed",
                                       memory == nullptr ? "null" : "empty"));
    return devices_.group->add_memory(memory, bytes);
}

Status Communicator::deregister_memory(void *memory) {
    FLX_TRY(usable());
    if (layout_.size == 1)
        return {};
    if (devices_.group == nullptr)
        return fail(Fault::registration, "no memory of this communicator is registered, so none can be deregistered");
    return devices_.group->remove_memory(memory);
}

}  // namespace flx
