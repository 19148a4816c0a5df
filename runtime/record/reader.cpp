#include "runtime/record/reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/elements/dtype.h"
#include "runtime/record/format.h"
#include "runtime/record/process_files.h"
#include "runtime/record/ticks.h"

namespace flx::record {
namespace {

/// Without what a terminal would take for orders.
template <size_t kSize>
std::string text_of(const std::array<char, kSize> &text) {
    std::string result{text.data(), strnlen(text.data(), kSize)};
    std::replace_if(
        result.begin(), result.end(), [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; }, '?');
    return result;
}

/// The writer's ticks as CLOCK_MONOTONIC: by its two readings at the start, and two of now.
class TicksToNs {
  public:
    explicit TicksToNs(const File &file) : made_ticks_(file.made_ticks), made_ns_(file.made_ns) {
        if (file.ticks_are_tsc == 0 || !ticks_are_tsc())
            return;
        const int64_t ns = now_ns();
        const int64_t now = ticks(true);
        if (now > made_ticks_ && ns > made_ns_)
            ns_per_tick_ = static_cast<double>(ns - made_ns_) / static_cast<double>(now - made_ticks_);
    }
    [[nodiscard]] int64_t operator()(int64_t at) const {
        return at == 0 ? 0 : made_ns_ + static_cast<int64_t>(static_cast<double>(at - made_ticks_) * ns_per_tick_);
    }

  private:
    int64_t made_ticks_;
    int64_t made_ns_;
    double ns_per_tick_ = 1;
};

/// Nothing while the writer is at it.
std::optional<std::pair<CallSeen, size_t>> call_of(const Call &call, const TicksToNs &ns) {
    const uint64_t stamp = call.stamp.load(std::memory_order_acquire);
    if (stamp == 0)
        return std::nullopt;
    CallSeen seen;
    seen.stamp = stamp;
    seen.entered_ns = ns(call.entered.load(std::memory_order_acquire));
    seen.left_ns = ns(call.left.load(std::memory_order_acquire));
    const auto where = std::bit_cast<Where>(call.where.load(std::memory_order_acquire));
    std::array<uint64_t, sizeof(CallRecord) / sizeof(uint64_t)> words{};
    for (size_t i = 0; i < words.size(); ++i)
        words[i] = call.what[i].load(std::memory_order_acquire);
    if (call.stamp.load(std::memory_order_relaxed) != stamp)
        return std::nullopt;
    seen.what = std::bit_cast<CallRecord>(words);
    const bool on_gpus = where.carrier == Carrier::stream || where.carrier == Carrier::gpu;
    (on_gpus ? seen.on_gpus : seen.number) = where.number;
    seen.carrier = where.carrier;
    seen.way = where.way;
    seen.error = where.error;
    if (!is_known(seen))
        return std::nullopt;
    return std::pair(seen, static_cast<size_t>(where.place));
}

/// Empty while the writer is at it.
std::string says_of(const Communicator &comm) {
    constexpr int kTries = 100;
    for (int i = 0; i < kTries; ++i) {
        const uint32_t before = comm.says_stamp.load(std::memory_order_acquire);
        std::array<char, std::tuple_size_v<decltype(Communicator::says)>> says{};
        for (size_t i = 0; i < says.size(); ++i)
            says[i] = comm.says[i].load(std::memory_order_acquire);
        std::string text = text_of(says);
        if (before % 2 == 0 && comm.says_stamp.load(std::memory_order_relaxed) == before)
            return text;
    }
    return {};
}

CommunicatorSeen communicator_of(const Communicator &comm, State state, std::vector<CallSeen> calls) {
    CommunicatorSeen seen;
    seen.id = comm.id;
    seen.first_uid = comm.first_uid;
    seen.rank = comm.rank;
    seen.size = comm.size;
    seen.hosts = comm.hosts;
    seen.broken = state == State::broken;
    seen.why_broken = seen.broken ? says_of(comm) : "";
    // They are, but for those that began while they were read.
    const auto by_stamp = [](const CallSeen &a, const CallSeen &b) { return a.stamp < b.stamp; };
    if (!std::is_sorted(calls.begin(), calls.end(), by_stamp))
        std::sort(calls.begin(), calls.end(), by_stamp);
    std::erase_if(calls, [&](const CallSeen &call) { return call.stamp <= comm.opened; });
    seen.calls = static_cast<uint32_t>(comm.calls.load(std::memory_order_relaxed));
    for (const CallSeen &call : calls)
        seen.calls = std::max(seen.calls, call.number);
    const uint64_t waits = comm.wait.stamp.load(std::memory_order_acquire);
    const auto waiting = std::find_if(calls.begin(), calls.end(),
                                      [&](const CallSeen &call) { return call.stamp == waits && call.left_ns == 0; });
    if (waits != 0 && waiting != calls.end()) {
        seen.waits_for = static_cast<int>(comm.wait.peer.load(std::memory_order_relaxed));
        seen.waits_since_ns = comm.wait.since_ns.load(std::memory_order_relaxed);
        seen.missing = comm.wait.missing.load(std::memory_order_relaxed);
        seen.unacknowledged = comm.wait.unacknowledged.load(std::memory_order_relaxed);
        seen.progress = std::bit_cast<Progress>(comm.wait.progress.load(std::memory_order_relaxed));
    }
    seen.last = std::move(calls);
    for (size_t l = 0; l < std::min<size_t>(comm.links, kLinks); ++l)
        seen.links.push_back({text_of(comm.link[l].name), comm.link[l].sent.load(std::memory_order_relaxed),
                              comm.link[l].share.load(std::memory_order_relaxed),
                              comm.link[l].is_on.load(std::memory_order_relaxed) != 0,
                              comm.link[l].lost_to.load(std::memory_order_relaxed),
                              comm.link[l].usual.load(std::memory_order_relaxed),
                              comm.link[l].now.load(std::memory_order_relaxed)});
    return seen;
}

}  // namespace

bool is_known(const CallSeen &call) {
    const CallRecord &what = call.what;
    return what.collective <= algorithms::Collective::last && what.kind <= CallKind::split &&
           (what.dtype < kAllDtypes || what.dtype >= CallRecord::kUntold) &&
           (what.op < kAllOps || what.op >= CallRecord::kUntold) && call.way <= Way::staged &&
           call.carrier <= Carrier::gpu;
}

/// Of some of MPI's the size is not known, and 0.
bool is_known(const CommunicatorSeen &comm) {
    constexpr int kMostRanks = 1 << 20;
    return comm.rank >= 0 && comm.size >= 0 && comm.size <= kMostRanks && (comm.size == 0 || comm.rank < comm.size) &&
           comm.progress.part <= Part::between_hosts;
}

std::string name_of_communicator(uint32_t id) {
    if (!is_of_mpi(id))
        return fmt::format("communicator {}", id);
    return id == kMpiIds ? "MPI_COMM_WORLD" : fmt::format("MPI's communicator {}", id - kMpiIds);
}

std::string way_of(Carrier carrier, Way way) {
    switch (carrier) {
        case Carrier::mpi:
            return "served by MPI";
        case Carrier::stream:
            return "enqueued on a stream";
        case Carrier::gpu:
            return "on GPU memory";
        default:
            return name_of(way);
    }
}

std::string describe(uint32_t comm, const CallSeen &call) {
    const std::string where = name_of_communicator(comm);
    if (call.on_gpus != 0)
        return fmt::format("call {} on GPU memory of {}, {}", call.on_gpus, where, to_string(call.what));
    if (call.number == 0)
        return fmt::format("messages {}of {}", call.carrier == Carrier::flx ? "" : "on GPU memory ", where);
    return fmt::format("call {} of {}, {}", call.number, where, to_string(call.what));
}

std::string number_of(const ProcessSeen &process) {
    return process.pid != 0 ? std::to_string(process.pid) : fmt::format("{} in its container", process.id.pid);
}

Latest latest_of(const ProcessSeen &process) {
    Latest latest;
    // What it waits for may be older than what is under way.
    for (const CommunicatorSeen &comm : process.communicators)
        if (comm.waits_for && !comm.last.empty())
            return {&comm.last.back(), &comm};
    for (const CommunicatorSeen &comm : process.communicators)
        for (const CallSeen &call : comm.last) {
            const bool open = call.left_ns == 0;
            const bool is_later = latest.call == nullptr || (open && latest.call->left_ns != 0) ||
                                  (open == (latest.call->left_ns == 0) && call.stamp > latest.call->stamp);
            if (is_later)
                latest = {&call, &comm};
        }
    return latest;
}

namespace {

/// The last `count` calls in the order in which they began, by communicator.
std::array<std::vector<CallSeen>, kCommunicators> last_calls(const File &from, uint64_t begun, size_t count) {
    const TicksToNs ns(from);
    std::array<std::vector<CallSeen>, kCommunicators> calls;
    for (size_t i = kCalls - std::min(count, kCalls); i < kCalls; ++i)
        if (const auto seen = call_of(from.calls[(begun + 1 + i) % kCalls], ns); seen && seen->second < kCommunicators)
            calls[seen->second].push_back(seen->first);
    return calls;
}

void note(const File &from, size_t calls, ProcessSeen &process) {
    process.id = {from.pid, from.pid_namespace};
    process.world_rank = from.world_rank;
    process.world_size = from.world_size;
    process.hostname = text_of(from.hostname);
    process.job = text_of(from.job);
    process.command = text_of(from.command);
    process.signalled_ns = from.signalled_ns.load(std::memory_order_acquire);
    process.answered_ns = from.answered_ns.load(std::memory_order_acquire);
    process.reports_ns = from.reports_ns.load(std::memory_order_acquire);
    const auto count_of = [&](Carrier carrier) {
        return from.by_carrier[static_cast<size_t>(carrier)].load(std::memory_order_acquire);
    };
    process.by_mpi = count_of(Carrier::mpi);
    process.on_gpus = count_of(Carrier::stream) + count_of(Carrier::gpu);
    // After those that are a part of it, which are counted later.
    process.begun = from.begun.load(std::memory_order_relaxed);
    process.seen_ns = now_ns();
    auto last = last_calls(from, process.begun, calls);
    for (size_t place = 0; place < kCommunicators; ++place) {
        const Communicator &comm = from.communicators[place];
        const auto state = static_cast<State>(comm.state.load(std::memory_order_acquire));
        if (state != State::open && state != State::broken)
            continue;
        process.communicators.push_back(communicator_of(comm, state, std::move(last[place])));
        if (!is_known(process.communicators.back()))
            process.communicators.pop_back();
    }
}

}  // namespace

void Reader::Unmap::operator()(const File *file) const {
    munmap(const_cast<File *>(file), sizeof(File));
}

/// Its owner, another user, may cut the file short, which would end whoever has it mapped by a signal. Calls that are
/// written meanwhile have no stamp in the copy.
bool Reader::copy(int fd, void *to) {
    std::vector<std::byte> again(sizeof(File));
    if (pread(fd, to, sizeof(File), 0) != sizeof(File) || pread(fd, again.data(), sizeof(File), 0) != sizeof(File))
        return false;
    for (Call &call : static_cast<File *>(to)->calls) {
        const auto at = reinterpret_cast<std::byte *>(&call) - static_cast<std::byte *>(to);
        if (std::memcmp(static_cast<std::byte *>(to) + at, again.data() + at, sizeof(Call)) != 0)
            call.stamp.store(0, std::memory_order_relaxed);
    }
    return true;
}

Status Reader::map(const std::string &file, Mapped &mapped) {
    struct stat info {};
    const int fd = open_record(file, info);
    if (fd < 0 && errno != EINVAL)
        return fail(Fault::not_read, "{} cannot be read: {}", file, std::strerror(errno));
    const bool whole = fd >= 0 && info.st_size >= static_cast<off_t>(sizeof(File));
    mapped.is_copy = whole && info.st_uid != geteuid();
    void *memory = !whole ? MAP_FAILED
                   : mapped.is_copy
                       ? mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                       : mmap(nullptr, sizeof(File), PROT_READ, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED && mapped.is_copy && !copy(fd, memory)) {
        munmap(memory, sizeof(File));
        memory = MAP_FAILED;
    }
    if (fd >= 0)
        close(fd);
    if (memory == MAP_FAILED)
        return fail(Fault::not_read, "{} is no record of calls of this version", file);
    mapped.inode = info.st_ino;
    mapped.file.reset(static_cast<const File *>(memory));
    const File &from = *mapped.file;
    if (from.magic.load(std::memory_order_acquire) != kMagic || from.version != kVersion || from.bytes != sizeof(File))
        return fail(Fault::not_read, "{} is no record of calls of this version", file);
    return {};
}

/// /proc knows a process by another number where it is in a container, and not at all where this process is in one that
/// it is not in, or where there is no /proc.
void Reader::look_for_life(const std::string &file, uint64_t started, ProcessSeen &process) {
    const auto look_at = [&](pid_t number) {
        const Usage usage = usage_of(number);
        if (usage.started != started || started == 0)
            return false;
        process.pid = number;
        process.life = usage.life;
        process.cpu_ns = usage.cpu_ns;
        return true;
    };
    process.life = Life::dead;
    if (has_own_number_here(process.id)) {
        process.pid = process.id.pid;
        if (look_at(process.id.pid) || usage_of_this_process().started != 0)
            return;
    } else {
        process.pid = 0;
    }
    if (!is_held(file))
        return;
    process.life = Life::hidden;
    for (int round = 0; round < 2; ++round) {
        for (const NumberHere &number : numbers_)
            if (number.may_be(process.id) && look_at(number.here))
                return;
        if (std::exchange(looked_for_numbers_, true))
            return;
        numbers_ = numbers_here();
    }
}

Status Reader::read(const std::string &file, ProcessSeen &process) {
    Mapped mapped;
    FLX_TRY(map(file, mapped));
    process = {};
    note(*mapped.file, kCalls, process);
    Reader().look_for_life(file, mapped.file->started, process);
    return {};
}

std::vector<ProcessSeen> Reader::look(uid_t user, size_t calls, const std::function<bool(const ProcessSeen &)> &which) {
    std::vector<ProcessSeen> all;
    std::map<std::string, Mapped> kept;
    left_out_ = 0;
    looked_for_numbers_ = false;
    for (const std::string &file : files_of(user)) {
        struct stat info {};
        Mapped mapped;
        // A later process may have the number, and so the name.
        if (const auto known = files_.find(file);
            known != files_.end() && stat(file.c_str(), &info) == 0 && info.st_ino == known->second.inode)
            mapped = std::move(known->second);
        else if (const Status status = map(file, mapped); !status.ok()) {
            const bool is_there = faccessat(AT_FDCWD, file.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
            if (is_there && left_out_++ == 0)
                why_ = status;
            continue;
        }
        ProcessSeen process;
        if (which)
            note(*mapped.file, 0, process);
        if (!which || which(process)) {
            process = {};
            note(*mapped.file, calls, process);
            look_for_life(file, mapped.file->started, process);
            all.push_back(std::move(process));
        }
        if (!mapped.is_copy)
            kept[file] = std::move(mapped);
    }
    files_ = std::move(kept);
    return all;
}

std::string Reader::left_out() const {
    return left_out_ == 0   ? std::string()
           : left_out_ == 1 ? why_.sentence()
                            : fmt::format("{} records cannot be read; {}", left_out_, why_.sentence());
}

}  // namespace flx::record
