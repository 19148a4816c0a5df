#include "runtime/record/trace_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <system_error>

#include "runtime/base/boot_id.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/record/record_file.h"
#include "runtime/record/ticks.h"
#include "runtime/record/trace_files.h"

namespace flx::record {
namespace {

uint64_t pair_of(uint32_t low, uint32_t high) {
    return low | uint64_t{high} << 32U;
}

/// Takes room on the disk; an errno, or 0. Profilers' signals come at any time.
int reserve(int fd, off_t at, size_t bytes) {
    int error = 0;
    do
        error = posix_fallocate(fd, at, static_cast<off_t>(bytes));
    while (error == EINTR);
    return error;
}

/// Whether other hosts cannot see the file.
bool is_local(int fd) {
    constexpr std::array<uint64_t, 5> kLocal = {0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630};
    struct statfs info {};
    return fstatfs(fd, &info) == 0 &&
           std::find(kLocal.begin(), kLocal.end(), static_cast<uint64_t>(info.f_type)) != kLocal.end();
}

}  // namespace

Status TraceWriter::open(const std::string &file, const File &process, std::unique_ptr<TraceWriter> &result) {
    std::unique_ptr<TraceWriter> writer(new TraceWriter);
    std::error_code error;
    writer->file_ = std::filesystem::absolute(file, error).string();
    if (error)
        return fail(Fault::not_written, "where {} is cannot be told: {}", file, error.message());
    writer->pid_ = getpid();
    writer->tsc_ = process.ticks_are_tsc != 0;
    const ProcessId id{process.pid, process.pid_namespace};
    FLX_TRY(make_part(writer->file_, process.world_rank, process.hostname.data(), id, writer->path_, writer->fd_));
    int problem = reserve(writer->fd_, 0, kTraceHeadBytes);
    void *memory =
        problem == 0 ? mmap(nullptr, kTraceHeadBytes, PROT_READ | PROT_WRITE, MAP_SHARED, writer->fd_, 0) : MAP_FAILED;
    if (memory == MAP_FAILED) {
        problem = problem == 0 ? errno : problem;
        drop_part(writer->file_, writer->path_);
        return fail(Fault::not_written, "{} cannot be written: {}", writer->path_, std::strerror(problem));
    }
    TraceHead &head = *(writer->head_ = static_cast<TraceHead *>(memory));
    head.version = kTraceVersion;
    head.pid = process.pid;
    head.pid_namespace = process.pid_namespace;
    // File systems of several hosts may have no such locks. Only other containers ask.
    head.held = is_of_initial_namespace(id) || !hold(writer->fd_) ? 0 : 1;
    head.started = process.started;
    head.world_rank = process.world_rank;
    head.world_size = process.world_size;
    head.ticks_are_tsc = process.ticks_are_tsc;
    head.made_ticks = process.made_ticks;
    head.made_ns = process.made_ns;
    head.made_since_ns = process.made_since_ns;
    head.hostname = process.hostname;
    const std::string boot = boot_id();
    std::copy_n(boot.begin(), std::min(boot.size(), head.boot.size() - 1), head.boot.begin());
    head.job = process.job;
    head.command = process.command;
    writer->note_time();
    head.magic.store(kTraceMagic, std::memory_order_release);
    result = std::move(writer);
    return {};
}

/// A child that the program forked has a copy of this, and the part is its parent's.
void TraceWriter::finish() {
    if (head_ == nullptr || getpid() != pid_ || head_->ended.load(std::memory_order_relaxed) != 0)
        return;
    note_time();
    try {
        flush();
        head_->ended.store(1, std::memory_order_release);
        flush();
        if (const Status status = finish_trace(file_, head_->job.data(), head_->world_size); !status.ok())
            log().warn("the trace is in parts: {}", status.sentence());
    } catch (const std::exception &error) {
        log().warn("the trace is in parts: {}", error.what());
    }
}

/// Another host, which may make the trace, is to see all entries before it sees that they are all.
void TraceWriter::flush() const {
    if (is_local(fd_))
        return;
    for (const std::atomic<Entry *> &chunk : chunks_)
        if (Entry *entries = chunk.load(std::memory_order_relaxed); entries != nullptr)
            msync(entries, kChunkBytes, MS_SYNC);
    msync(head_, kTraceHeadBytes, MS_SYNC);
}

TraceWriter::~TraceWriter() {
    finish();
    for (const std::atomic<Entry *> &chunk : chunks_)
        if (Entry *entries = chunk.load(std::memory_order_relaxed); entries != nullptr)
            munmap(entries, kChunkBytes);
    if (head_ != nullptr)
        munmap(head_, kTraceHeadBytes);
    if (fd_ >= 0)
        close(fd_);
}

/// Ticks are told as nanoseconds by two readings of both, the farther apart the better.
void TraceWriter::note_time() {
    const std::unique_lock lock(time_mutex_, std::try_to_lock);
    if (!lock)
        return;
    const Moment now = moment(tsc_);
    head_->last_ticks.store(now.ticks, std::memory_order_relaxed);
    head_->last_ns.store(now.ns, std::memory_order_relaxed);
}

Entry *TraceWriter::take() {
    const size_t index = next_.fetch_add(1, std::memory_order_relaxed);
    const size_t chunk = index / kChunk;
    Entry *entries = chunk < kMostChunks ? chunks_[chunk].load(std::memory_order_acquire) : nullptr;
    if (entries == nullptr) [[unlikely]]
        entries = map_chunk(chunk);
    return entries == nullptr ? nullptr : entries + index % kChunk;
}

/// Room on the disk is taken first: a full one would end the program by a signal otherwise.
Entry *TraceWriter::map_chunk(size_t chunk) {
    const std::lock_guard lock(mutex_);
    if (chunk < kMostChunks) {
        if (Entry *entries = chunks_[chunk].load(std::memory_order_acquire); entries != nullptr)
            return entries;
    }
    if (full_)
        return nullptr;
    const auto offset = static_cast<off_t>(kTraceHeadBytes + chunk * kChunkBytes);
    int error = chunk < kMostChunks ? reserve(fd_, offset, kChunkBytes) : EFBIG;
    void *memory =
        error == 0 ? mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, offset) : MAP_FAILED;
    if (memory == MAP_FAILED) {
        error = error == 0 ? errno : error;
        full_ = true;
        log().warn("{} ends here: {}", path_, std::strerror(error));
        return nullptr;
    }
    note_time();
    auto *entries = static_cast<Entry *>(memory);
    chunks_[chunk].store(entries, std::memory_order_release);
    return entries;
}

void TraceWriter::enter(uint64_t stamp, int64_t now_ticks, uint64_t where, const std::array<uint64_t, 4> &what) {
    Entry *entry = take();
    Slot &slot = calls_[stamp % kOpen];
    slot.entry.store(entry, std::memory_order_relaxed);
    slot.stamp.store(stamp, std::memory_order_relaxed);
    if (entry == nullptr) {
        head_->lost.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    entry->begin.store(now_ticks, std::memory_order_relaxed);
    entry->where.store(where, std::memory_order_relaxed);
    for (size_t i = 0; i < what.size(); ++i)
        entry->data[i].store(what[i], std::memory_order_relaxed);
    entry->kind.store(static_cast<uint64_t>(EntryKind::call), std::memory_order_release);
}

void TraceWriter::leave(uint64_t stamp, int64_t now_ticks, uint8_t error) {
    const Slot &slot = calls_[stamp % kOpen];
    Entry *entry = slot.entry.load(std::memory_order_relaxed);
    if (entry == nullptr || slot.stamp.load(std::memory_order_relaxed) != stamp)
        return;
    if (error != 0) {
        auto where = std::bit_cast<Where>(entry->where.load(std::memory_order_relaxed));
        where.error = error;
        entry->where.store(std::bit_cast<uint64_t>(where), std::memory_order_relaxed);
    }
    entry->end.store(now_ticks, std::memory_order_release);
}

void TraceWriter::take_back(uint64_t stamp) {
    const Slot &slot = calls_[stamp % kOpen];
    Entry *entry = slot.entry.load(std::memory_order_relaxed);
    if (entry != nullptr && slot.stamp.load(std::memory_order_relaxed) == stamp)
        entry->kind.store(static_cast<uint64_t>(EntryKind::none), std::memory_order_release);
}

void TraceWriter::write(EntryKind kind, int64_t begin, int64_t end, const Where &where,
                        const std::array<uint64_t, 4> &data) {
    Entry *entry = take();
    if (entry == nullptr)
        return;
    note_time();
    entry->begin.store(begin, std::memory_order_relaxed);
    entry->end.store(end, std::memory_order_relaxed);
    entry->where.store(std::bit_cast<uint64_t>(where), std::memory_order_relaxed);
    for (size_t i = 0; i < data.size(); ++i)
        entry->data[i].store(data[i], std::memory_order_relaxed);
    entry->kind.store(static_cast<uint64_t>(kind), std::memory_order_release);
}

void TraceWriter::communicator(uint32_t place, uint32_t id, int rank, int size, int hosts, uint64_t first_uid) {
    Where where;
    where.place = static_cast<uint8_t>(place);
    // A program that was told its place by nobody has it in its first communicator.
    if (head_->world_rank < 0 && size > 0) {
        head_->world_rank = rank;
        head_->world_size = size;
        copy_text(head_->job, fmt::format("of communicator {:x}", first_uid));
    }
    write(EntryKind::communicator, now_ns(), 0, where,
          {pair_of(id, static_cast<uint32_t>(rank)), pair_of(static_cast<uint32_t>(size), static_cast<uint32_t>(hosts)),
           first_uid, 0});
    seen_[place] = {};
}

void TraceWriter::link_name(uint32_t place, size_t link, std::string_view name, double bytes_per_s, double latency_s) {
    Where where;
    where.number = static_cast<uint32_t>(link);
    where.place = static_cast<uint8_t>(place);
    std::array<char, 32> text{};
    std::copy_n(name.begin(), std::min(name.size(), text.size()), text.begin());
    write(EntryKind::link_name, std::bit_cast<int64_t>(bytes_per_s), std::bit_cast<int64_t>(latency_s), where,
          std::bit_cast<std::array<uint64_t, 4>>(text));
}

void TraceWriter::waited(uint32_t place, int64_t since_ns, int64_t until_ns, int peer) {
    Where where;
    where.place = static_cast<uint8_t>(place);
    write(EntryKind::wait, since_ns, until_ns, where, {static_cast<uint64_t>(static_cast<int64_t>(peer)), 0, 0, 0});
}

void TraceWriter::carried(uint32_t place, size_t link, uint64_t sent, double share, bool is_on) {
    Seen &seen = seen_[place][link];
    const int64_t now = now_ns();
    const uint64_t more = sent >= seen.sent ? sent - seen.sent : 0;
    if (seen.at_ns != 0 && (more != 0 || is_on != seen.is_on)) {
        Where where;
        where.place = static_cast<uint8_t>(place);
        write(EntryKind::link, seen.at_ns, now, where, {link, more, std::bit_cast<uint64_t>(share), is_on ? 1U : 0U});
    }
    seen = {sent, now, is_on};
}

void TraceWriter::phase(uint32_t place, uint64_t number, const PhaseDone &done) {
    Where where;
    where.number = static_cast<uint32_t>(number);
    where.place = static_cast<uint8_t>(place);
    write(EntryKind::phase, done.began_ns, done.ended_ns, where,
          {pair_of(done.phase, done.phases), static_cast<uint64_t>(done.part), done.bytes, 0});
}

void TraceWriter::clock(uint32_t place, int64_t offset_ns, int64_t error_ns) {
    Where where;
    where.place = static_cast<uint8_t>(place);
    write(EntryKind::clock, now_ns(), 0, where,
          {static_cast<uint64_t>(offset_ns), static_cast<uint64_t>(error_ns), 0, 0});
}

}  // namespace flx::record
