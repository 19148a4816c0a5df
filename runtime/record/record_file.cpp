#include "runtime/record/record_file.h"

#include <fcntl.h>
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
#include <initializer_list>
#include <iterator>
#include <sstream>

#include "runtime/record/ticks.h"

namespace flx::record {
namespace {

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

struct Place {
    int32_t rank = -1;
    int32_t size = -1;
};

/// Launchers of PyTorch, and people, say it to programs without MPI by RANK and WORLD_SIZE. Such processes may all be
/// in one task of Slurm's.
Place place_in_program() {
    const char *const by_mpi = first_set({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"});
    const Place told{number_of(first_set({"RANK"})), number_of(first_set({"WORLD_SIZE"}))};
    if (*by_mpi == '\0' && told.rank >= 0 && told.rank < told.size)
        return told;
    return {number_of(*by_mpi != '\0' ? by_mpi : first_set({"SLURM_PROCID"})),
            number_of(first_set({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}))};
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

/// Whether this process has the file in its memory: an earlier one with the same id, or what ran in this one before
/// `exec`, left it otherwise.
bool is_mapped_here(const std::string &path) {
    struct stat file {};
    if (stat(path.c_str(), &file) != 0)
        return false;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        std::istringstream words(line);
        std::string range, access, offset, device;
        ino_t inode = 0;
        // Names may lead through links, and numbers of devices are written in two ways: the file's number and folder
        // do.
        if (words >> range >> access >> offset >> device >> inode && inode == file.st_ino &&
            line.find(kPrefix) != std::string::npos)
            return true;
    }
    return false;
}

int64_t since_1970_ns() {
    timespec time{};
    clock_gettime(CLOCK_REALTIME, &time);
    return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

}  // namespace

void RecordFile::remove() {
    if (seen() && getpid() == process_.pid) {
        unlink(path_.c_str());
        held_.close();
    }
    path_.clear();
}

Status RecordFile::make(const Wanted &wanted) {
    process_ = this_process();
    Status status;
    if (wanted.record) {
        // Once a host and job, where the launcher says which rank is the first.
        if (number_of(first_set({"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_RANK", "SLURM_LOCALID"})) <= 0)
            remove_old_files();
        status = make_shown();
    }
    if (file_ == nullptr && wanted.exact) {
        void *memory = mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        file_ = memory == MAP_FAILED ? nullptr : static_cast<File *>(memory);
    }
    if (file_ != nullptr)
        describe(wanted);
    return status;
}

Status RecordFile::make_shown() {
    if (!has_room())
        return fail(Fault::shm_too_small, "{} has less than {} bytes in all", kFolder, kLeastFolder);
    const std::string path = file_of(getuid(), process_);
    if (is_mapped_here(path))
        return fail(Fault::not_written, "{} is kept by another copy of FLX in this process, which is the one seen",
                    path);
    // Without /proc nobody knows its namespace.
    if (is_held(path))
        return fail(Fault::not_written, "{} is kept by a process of another container", path);
    unlink(path.c_str());  // of an earlier process with this id
    // Nobody writes to it through its name, the user's other processes included.
    held_.take([&] {
        const int made = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR);
        const int error = errno;
        if (made >= 0)
            hold(made);  // where it cannot, other containers take this process for dead
        errno = error;
        return made;
    });
    const int fd = held_.get();
    if (fd < 0)
        return fail(Fault::not_written, "{} cannot be made: {}", path, std::strerror(errno));
    // Reserved, as a full /dev/shm would be a signal later.
    if (const int error = posix_fallocate(fd, 0, sizeof(File)); error != 0) {
        held_.close();
        unlink(path.c_str());
        return fail(Fault::shm_too_small, "{} of {} bytes cannot be made: {}", path, sizeof(File),
                    std::strerror(error));
    }
    void *memory = mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        const int error = errno;
        held_.close();
        unlink(path.c_str());
        return fail(Fault::not_written, "{} cannot be mapped: {}", path, std::strerror(error));
    }
    file_ = static_cast<File *>(memory);
    path_ = path;
    return {};
}

void RecordFile::describe(const Wanted &wanted) {
    File &file = *file_;
    const bool tsc = wanted.exact && ticks_are_tsc();
    file.version = kVersion;
    file.bytes = sizeof(File);
    file.pid = process_.pid;
    file.ticks_are_tsc = tsc ? 1 : 0;
    file.pid_namespace = process_.pid_namespace;
    file.started = usage_of_this_process().started;
    const Moment made = moment(tsc);
    file.made_ticks = made.ticks;
    file.made_ns = made.ns;
    file.made_since_ns = since_1970_ns();
    const Place place = place_in_program();
    file.world_rank = place.rank;
    file.world_size = place.size;
    copy_text(file.hostname, wanted.hostname);
    const std::string job = job_of_launcher();
    copy_text(file.job, job.empty() ? wanted.job : job);
    copy_text(file.command, command_line());
    file.magic.store(kMagic, std::memory_order_release);
}

uint32_t take_place(File &file, const CommunicatorFacts &facts) {
    // One that was freed long ago is of less use than one that was freed just now.
    static std::atomic<uint32_t> begin{0};
    for (uint32_t tried = 0; tried < kCommunicators; ++tried) {
        const uint32_t place = begin.fetch_add(1, std::memory_order_relaxed) % kCommunicators;
        Communicator &comm = file.communicators[place];
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
        comm.opened = file.begun.load(std::memory_order_relaxed);
        comm.calls.store(0, std::memory_order_relaxed);
        comm.wait.stamp.store(0, std::memory_order_relaxed);
        comm.says[0].store('\0', std::memory_order_relaxed);
        return place;
    }
    return kNowhere;
}

}  // namespace flx::record
