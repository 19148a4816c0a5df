#include "runtime/record/recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>

#include "runtime/base/log.h"
#include "runtime/record/process_files.h"

namespace flx::record {
namespace {

template <size_t kSize>
void copy_text(std::array<char, kSize> &to, std::string_view from) {
    const size_t bytes = std::min(from.size(), kSize - 1);
    std::memcpy(to.data(), from.data(), bytes);
    to[bytes] = '\0';
}

/// The first of these variables that is set.
const char *first_set(std::initializer_list<const char *> names) {
    for (const char *name : names)
        if (const char *value = std::getenv(name); value != nullptr && *value != '\0')
            return value;
    return "";
}

int32_t number_of(const char *text) {
    int32_t number = -1;
    const auto [end, error] = std::from_chars(text, text + std::strlen(text), number);
    return error == std::errc() && *end == '\0' ? number : -1;
}

/// A job of Slurm's runs several programs, which are its steps.
std::string job_of_launcher() {
    const std::string job = first_set({"PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID"});
    const std::string step = first_set({"SLURM_STEP_ID"});
    return step.empty() || job != first_set({"SLURM_JOB_ID"}) ? job : job + "." + step;
}

std::string command_line() {
    std::ifstream file("/proc/self/cmdline", std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    while (!text.empty() && text.back() == '\0')
        text.pop_back();
    std::replace(text.begin(), text.end(), '\0', ' ');
    return text;
}

int64_t since_1970_ns() {
    timespec time{};
    clock_gettime(CLOCK_REALTIME, &time);
    return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

}  // namespace

Recorder &Recorder::of_process(const Wanted &wanted) {
    static Recorder recorder(wanted);
    if (wanted.threads)
        recorder.threads_.store(true, std::memory_order_relaxed);
    return recorder;
}

Recorder::Recorder(const Wanted &wanted)
    : exact_(!wanted.trace.empty()), tsc_(exact_ && ticks_are_tsc()), pid_(getpid()) {
    if (wanted.record) {
        // Once a host and job, where the launcher says which rank is the first.
        if (number_of(first_set({"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"})) <= 0)
            remove_old_files();
        if (const Status status = make(); !status.ok())
            log().info("calls are not recorded: {}", status.sentence());
        seen_ = file_ != nullptr;
    }
    if (file_ == nullptr && !wanted.trace.empty()) {  // a trace needs what a record has, whether or not others see it
        void *memory = mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        file_ = memory == MAP_FAILED ? nullptr : static_cast<File *>(memory);
    }
    if (file_ == nullptr)
        return;
    describe(wanted.hostname);
    if (wanted.trace.empty())
        return;
    if (const Status status = TraceWriter::open(wanted.trace, *file_, trace_); !status.ok())
        log().warn("there is no trace: {}", status.sentence());
}

/// A child that the program forked is no part of it, and others may still write: the memory stays.
Recorder::~Recorder() {
    if (trace_)
        trace_.release()->finish();
    if (seen_ && getpid() == pid_)
        unlink(path_.c_str());
}

Status Recorder::make() {
    if (!has_room())
        return fail(Fault::shm_too_small, "{} has less than {} bytes in all", kFolder, kLeastFolder);
    path_ = file_of(getuid(), pid_);
    unlink(path_.c_str());  // of an earlier process with this id
    // Nobody writes to it through its name, the user's other processes included.
    const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR);
    if (fd < 0)
        return fail(Fault::not_written, "{} cannot be made: {}", path_, std::strerror(errno));
    // Reserved, as a full /dev/shm would be a signal later.
    if (const int error = posix_fallocate(fd, 0, sizeof(File)); error != 0) {
        ::close(fd);
        unlink(path_.c_str());
        return fail(Fault::shm_too_small, "{} of {} bytes cannot be made: {}", path_, sizeof(File),
                    std::strerror(error));
    }
    void *memory = mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    const int error = errno;
    ::close(fd);
    if (memory == MAP_FAILED) {
        unlink(path_.c_str());
        return fail(Fault::not_written, "{} cannot be mapped: {}", path_, std::strerror(error));
    }
    file_ = static_cast<File *>(memory);
    return {};
}

void Recorder::describe(const std::string &hostname) {
    File &file = *file_;
    file.version = kVersion;
    file.bytes = sizeof(File);
    file.pid = pid_;
    file.ticks_are_tsc = tsc_ ? 1 : 0;
    file.started = usage_of(pid_).started;
    const Moment made = moment(tsc_);
    file.made_ticks = made.ticks;
    file.made_ns = made.ns;
    file.made_since_ns = since_1970_ns();
    file.world_rank = number_of(first_set({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}));
    file.world_size = number_of(first_set({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}));
    copy_text(file.hostname, hostname);
    copy_text(file.job, job_of_launcher());
    copy_text(file.command, command_line());
    file.magic.store(kMagic, std::memory_order_release);
}

uint32_t Recorder::open(const Facts &facts) {
    if (file_ == nullptr)
        return kNowhere;
    // One that was freed long ago is of less use than one that was freed just now.
    static std::atomic<uint32_t> begin{0};
    for (uint32_t tried = 0; tried < kCommunicators; ++tried) {
        const uint32_t place = begin.fetch_add(1, std::memory_order_relaxed) % kCommunicators;
        Communicator &comm = file_->communicators[place];
        auto state = static_cast<uint32_t>(State::unused);
        constexpr auto kTaken = static_cast<uint32_t>(State::taken);
        if (!comm.state.compare_exchange_strong(state, kTaken) &&
            (state != static_cast<uint32_t>(State::freed) || !comm.state.compare_exchange_strong(state, kTaken)))
            continue;
        comm.id = facts.id;
        comm.rank = facts.rank;
        comm.size = facts.size;
        comm.hosts = facts.hosts;
        comm.links = static_cast<uint32_t>(std::min(facts.links.size(), kLinks));
        comm.first_uid = facts.first_uid;
        comm.opened = file_->begun.load(std::memory_order_relaxed);
        comm.calls.store(0, std::memory_order_relaxed);
        comm.wait.stamp.store(0, std::memory_order_relaxed);
        comm.says[0].store('\0', std::memory_order_relaxed);
        for (uint32_t l = 0; l < comm.links; ++l) {
            copy_text(comm.link[l].name, facts.links[l].name);
            comm.link[l].usual.store(facts.links[l].bytes_per_s, std::memory_order_relaxed);
            note_link(place, l, {});
        }
        comm.state.store(static_cast<uint32_t>(State::open), std::memory_order_release);
        if (trace_) {
            trace_->communicator(place, facts.id, facts.rank, facts.size, facts.hosts, facts.first_uid);
            for (uint32_t l = 0; l < comm.links; ++l)
                trace_->link_name(place, l, facts.links[l].name, facts.links[l].bytes_per_s, facts.links[l].latency_s);
        }
        return place;
    }
    return kNowhere;
}

void Recorder::close(uint32_t place) {
    if (place != kNowhere)
        file_->communicators[place].state.store(static_cast<uint32_t>(State::freed), std::memory_order_release);
}

void Recorder::broken(uint32_t place, std::string_view sentence) {
    if (place == kNowhere)
        return;
    Communicator &comm = file_->communicators[place];
    comm.says_stamp.fetch_add(1, std::memory_order_acq_rel);
    const std::string said = shortened(sentence, comm.says.size() - 1);
    for (size_t i = 0; i < said.size(); ++i)
        comm.says[i].store(said[i], std::memory_order_release);
    comm.says[said.size()].store('\0', std::memory_order_release);
    comm.says_stamp.fetch_add(1, std::memory_order_release);
    comm.state.store(static_cast<uint32_t>(State::broken), std::memory_order_release);
}

void Recorder::note_error(Call &call, const Status &status) {
    auto where = std::bit_cast<Where>(call.where.load(std::memory_order_relaxed));
    where.error = static_cast<uint8_t>(status.code());
    call.where.store(std::bit_cast<uint64_t>(where), std::memory_order_relaxed);
}

void Recorder::wait(uint32_t place, uint64_t stamp, const Waiting &waiting) {
    if (place == kNowhere || stamp == 0)
        return;
    Wait &wait = file_->communicators[place].wait;
    wait.since_ns.store(waiting.since_ns, std::memory_order_relaxed);
    wait.peer.store(waiting.peer, std::memory_order_relaxed);
    wait.missing.store(waiting.missing, std::memory_order_relaxed);
    wait.unacknowledged.store(waiting.unacknowledged, std::memory_order_relaxed);
    wait.progress.store(std::bit_cast<uint64_t>(waiting.progress), std::memory_order_relaxed);
    wait.stamp.store(stamp, std::memory_order_release);
}

void Recorder::waits_no_more(uint32_t place) {
    if (place == kNowhere)
        return;
    Wait &wait = file_->communicators[place].wait;
    if (trace_ && wait.stamp.load(std::memory_order_relaxed) != 0)
        trace_->waited(place, wait.since_ns.load(std::memory_order_relaxed), now_ns(),
                       static_cast<int>(wait.peer.load(std::memory_order_relaxed)));
    wait.stamp.store(0, std::memory_order_release);
}

bool Recorder::reports(Report what, int64_t at_ns) {
    if (!seen_)
        return false;
    std::atomic<int64_t> &place = what == Report::asked      ? file_->signalled_ns
                                  : what == Report::answered ? file_->answered_ns
                                                             : file_->reports_ns;
    place.store(at_ns, std::memory_order_release);
    return true;
}

void Recorder::carried(uint32_t place, size_t link, const LinkNow &now) {
    if (place == kNowhere || link >= kLinks)
        return;
    note_link(place, link, now);
    if (trace_)
        trace_->carried(place, link, now.sent, now.share, now.is_on && now.lost_to < 0);
}

void Recorder::clock(uint32_t place, int64_t offset_ns, int64_t error_ns) {
    if (place != kNowhere && trace_)
        trace_->clock(place, offset_ns, error_ns);
}

void Recorder::note_link(uint32_t place, size_t link, const LinkNow &now) {
    Link &line = file_->communicators[place].link[link];
    line.sent.store(now.sent, std::memory_order_relaxed);
    line.share.store(now.share, std::memory_order_relaxed);
    line.is_on.store(now.is_on ? 1 : 0, std::memory_order_relaxed);
    line.lost_to.store(now.lost_to, std::memory_order_relaxed);
    line.now.store(now.bytes_per_s, std::memory_order_relaxed);
    constexpr double kOften = 50;  // 20 ms lie between two notes
    const double usual = line.usual.load(std::memory_order_relaxed);
    if (now.bytes_per_s > usual)
        line.usual.store(usual + (now.bytes_per_s - usual) / kOften, std::memory_order_relaxed);
}

}  // namespace flx::record
