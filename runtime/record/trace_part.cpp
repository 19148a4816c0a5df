#include "runtime/record/trace_part.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "runtime/base/boot_id.h"
#include "runtime/record/ticks.h"

namespace flx::record {
namespace {

template <size_t kSize>
std::string text_of(const std::array<char, kSize> &text) {
    return {text.data(), strnlen(text.data(), kSize)};
}

/// By readings of both clocks at the beginning and later on. A process that was killed soon has none that are far
/// apart, but where this kernel ran it they go on.
TracePart::Scale scale_of(const TraceHead &head) {
    constexpr int64_t kFarNs = 100'000'000;
    TracePart::Scale scale{{head.made_ticks, head.made_ns}};
    Moment later{head.last_ticks.load(std::memory_order_relaxed), head.last_ns.load(std::memory_order_relaxed)};
    if (later.ns - head.made_ns < kFarNs && head.ticks_are_tsc != 0 && ticks_are_tsc() &&
        text_of(head.boot) == boot_id())
        later = moment(true);
    if (head.ticks_are_tsc == 0 || later.ticks <= head.made_ticks || later.ns <= head.made_ns)
        return scale;
    scale.apart_ns = later.ns - head.made_ns;
    scale.ns_per_tick = static_cast<double>(scale.apart_ns) / static_cast<double>(later.ticks - head.made_ticks);
    return scale;
}

}  // namespace

Status TracePart::open(const std::string &path, TracePart &part) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return fail(Fault::not_read, "{} cannot be read: {}", path, std::strerror(errno));
    struct stat info {};
    const bool own = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid();
    const bool whole = own && info.st_size >= static_cast<off_t>(kTraceHeadBytes);
    const auto bytes = static_cast<size_t>(info.st_size);
    void *memory = whole ? mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (memory == MAP_FAILED)
        return fail(Fault::not_read, "{} is no part of a trace of this version", path);
    TracePart opened;
    opened.memory_ = static_cast<const std::byte *>(memory);
    opened.bytes_ = bytes;
    opened.path_ = path;
    if (opened.head().magic.load(std::memory_order_acquire) != kTraceMagic || opened.head().version != kTraceVersion)
        return fail(Fault::not_read, "{} is no part of a trace of this version", path);
    opened.scale_ = scale_of(opened.head());
    part = std::move(opened);
    return {};
}

TracePart::~TracePart() {
    if (memory_ != nullptr)
        munmap(const_cast<std::byte *>(memory_), bytes_);
}

TracePart::TracePart(TracePart &&other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_),
      scale_(other.scale_),
      path_(std::move(other.path_)) {}

TracePart &TracePart::operator=(TracePart &&other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    std::swap(scale_, other.scale_);
    std::swap(path_, other.path_);
    return *this;
}

std::span<const Entry> TracePart::entries() const {
    return {reinterpret_cast<const Entry *>(memory_ + kTraceHeadBytes), (bytes_ - kTraceHeadBytes) / sizeof(Entry)};
}

std::string TracePart::hostname() const {
    return text_of(head().hostname);
}

std::string TracePart::job() const {
    return text_of(head().job);
}

std::string TracePart::boot() const {
    return text_of(head().boot);
}

std::string TracePart::command() const {
    return text_of(head().command);
}

int64_t TracePart::ns(int64_t ticks) const {
    return scale_.from.ns + std::llround(static_cast<double>(ticks - scale_.from.ticks) * scale_.ns_per_tick);
}

}  // namespace flx::record
