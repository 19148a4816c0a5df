#include "runtime/shm/memory/segment.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <limits>
#include <map>
#include <mutex>
#include <string_view>

#include "runtime/base/boot_id.h"
#include "runtime/base/counters.h"

#ifndef MADV_POPULATE_WRITE  // Linux 5.14
#define MADV_POPULATE_WRITE 23
#endif

namespace flx::shm {

struct Segment::Mapping {
    std::byte *base = nullptr;
    size_t bytes = 0;
    ~Mapping() {
        if (base != nullptr)
            munmap(base, bytes);
    }

    /// That of the segment `name`, which ranks share that are threads of this process; the first makes it.
    static Status of(const std::string &name, size_t bytes, std::shared_ptr<Mapping> &result);
    /// Names whose mappings are gone.
    static void forget_expired();

  private:
    struct Known {
        std::mutex mutex;
        std::map<std::string, std::weak_ptr<Mapping>> by_name;
    };
    static Known &known() {
        static Known all;
        return all;
    }
};

namespace {

constexpr std::string_view kPrefix = "/flx-";

struct flock byte_lock(int local_rank) {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = local_rank;
    lock.l_len = 1;
    return lock;
}

Status system_error(const char *what, const std::string &name) {
    return fail(Fault::shm_refused, "{} of shared-memory segment {} failed: {}", what, name, std::strerror(errno));
}

/// Whether no process has a lock on it: whoever makes a segment locks it at once, and holds that longer than its name.
bool is_abandoned(int folder, const char *name) {
    const int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;  // the whole file
    const bool abandoned = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
    close(fd);
    return abandoned;
}

/// Takes away names of this user's whose ranks were killed while they met.
void sweep() {
    constexpr int64_t kOldS = 5;  // far more than is between a name and its lock
    DIR *folder = opendir("/dev/shm");
    if (folder == nullptr)
        return;
    const int fd = dirfd(folder);
    while (const dirent *entry = readdir(folder)) {
        struct stat found {};
        const bool ours = std::strncmp(entry->d_name, kPrefix.data() + 1, kPrefix.size() - 1) == 0 &&
                          fstatat(fd, entry->d_name, &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(found.st_mode) &&
                          found.st_uid == geteuid() && time(nullptr) - found.st_mtime > kOldS &&
                          is_abandoned(fd, entry->d_name);
        if (ours)
            unlinkat(fd, entry->d_name, 0);
    }
    closedir(folder);
}

std::string whole(size_t bytes) {
    return fmt::format("a shared-memory segment of {} bytes", bytes);
}

Status no_room(int fd, const std::string &what, int code) {
    struct statvfs space {};
    fstatvfs(fd, &space);
    return fail(Fault::shm_too_small,
                "no room for {}: {} ({} bytes are free in /dev/shm; for containers --shm-size gives more)", what,
                std::strerror(code), static_cast<size_t>(space.f_bavail) * space.f_frsize);
}

/// Creates the segment under a fresh random name, without memory.
Status create(size_t bytes, std::string &name, OwnDescriptor &owned) {
    sweep();
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return fail(Fault::no_secret, "the system gave no random numbers: getrandom: {}", std::strerror(errno));
    name = fmt::format("{}{:016x}{:016x}", kPrefix, random[0], random[1]);
    owned.take([&] { return shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600); });
    const int fd = owned.get();
    if (fd < 0)
        return system_error("creation", name);
    struct flock lock = byte_lock(0);
    if (fcntl(fd, F_OFD_SETLK, &lock) != 0) {
        Status status = system_error("locking", name);
        owned.close();
        shm_unlink(name.c_str());
        return status;
    }
    // Looked at before ranks begin to take their parts.
    const int code = bytes > Segment::room() ? ENOSPC : ftruncate(fd, static_cast<off_t>(bytes)) != 0 ? errno : 0;
    if (code == 0)
        return {};
    Status status = no_room(fd, whole(bytes), code);
    owned.close();
    shm_unlink(name.c_str());
    return status;
}

/// The kernel takes memory near to the core that asks for it. What errno would be; 0: it has.
int reserve(int fd, const Range &part) {
    int code = part.bytes == 0 ? 0 : EINTR;
    while (code == EINTR)
        code = posix_fallocate(fd, static_cast<off_t>(part.offset), static_cast<off_t>(part.bytes));
    return code;
}

}  // namespace

std::vector<Range> parts_of(int local_rank, int ranks, size_t bytes, std::span<const Area> areas) {
    std::vector<Range> parts;
    size_t done = 0;
    for (const Area &area : areas) {
        const size_t stride = area.late ? 0 : area.stride;
        if (local_rank == 0)  // with its own part, the first
            parts.push_back({done, area.offset + stride - done});
        else
            parts.push_back({area.offset + static_cast<size_t>(local_rank) * area.stride, stride});
        done = area.offset + static_cast<size_t>(ranks) * area.stride;
    }
    if (local_rank == 0)
        parts.push_back({done, bytes - done});
    return parts;
}

Status Segment::Mapping::of(const std::string &name, size_t bytes, std::shared_ptr<Mapping> &result) {
    const std::lock_guard guard(known().mutex);
    std::weak_ptr<Mapping> &shared = known().by_name[name];
    result = shared.lock();
    if (result)
        return {};
    // Through a description of its own: a mapping holds it, and ranks that are threads share the mapping, but each
    // rank's lock must go with the rank.
    const int fd = shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0600);
    void *base = fd < 0 ? MAP_FAILED : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (base == MAP_FAILED)
        return system_error("mapping", name);
    result = std::make_shared<Mapping>();
    result->base = static_cast<std::byte *>(base);
    result->bytes = bytes;
    shared = result;
    Telemetry::count(telemetry().registrations);
    return {};
}

void Segment::Mapping::forget_expired() {
    const std::lock_guard guard(known().mutex);
    std::erase_if(known().by_name, [](const auto &entry) { return entry.second.expired(); });
}

void Segment::map_pages(std::byte *memory, size_t bytes) {
    constexpr size_t kMost = size_t{48} << 20;
    constexpr size_t kPage = 4096;
    const size_t before = static_cast<size_t>(memory - base()) % kPage;
    if (bytes <= kMost)
        madvise(memory - before, before + bytes, MADV_POPULATE_WRITE);  // an older kernel does not know it
}

Status Segment::make(Bootstrap &local, size_t bytes, std::unique_ptr<Segment> &result, std::span<const Area> areas) {
    auto segment = std::unique_ptr<Segment>(new Segment);
    std::string name;
    Status status;
    if (local.rank() == 0)
        status = create(bytes, name, segment->lock_);
    if (!status.ok())
        name.clear();  // so that the others pass this rank's reason on, rather than look for what is not there
    std::vector<std::string> names;
    FLX_TRY(local.allgather_text(name, names));
    const bool created = local.rank() == 0 && status.ok();
    name = names[0];
    if (!name.empty())
        status = segment->enter(local, name, bytes, areas);
    // All have it or have failed; then the name goes, and all learn of each other's failure.
    status = agree(local, std::move(status), " of this host");
    if (created)
        shm_unlink(name.c_str());
    Mapping::forget_expired();
    FLX_TRY(status);
    Telemetry::count(telemetry().allocations);
    result = std::move(segment);
    return {};
}

/// What each rank does while the segment has its name: reserves its parts, maps it, and locks the byte that shows that
/// the rank lives. The first one, which made it, has it open.
Status Segment::enter(const Bootstrap &local, const std::string &name, size_t bytes, std::span<const Area> areas) {
    if (local.rank() != 0)
        lock_.take([&] { return shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0600); });
    if (lock_.get() < 0)
        return system_error("opening", name);
    for (const Range &part : parts_of(local.rank(), local.size(), bytes, areas))
        if (const int code = flx::shm::reserve(lock_.get(), part); code != 0)
            return no_room(lock_.get(), whole(bytes), code);
    FLX_TRY(Mapping::of(name, bytes, mapping_));
    struct flock lock = byte_lock(local.rank());
    if (fcntl(lock_.get(), F_OFD_SETLK, &lock) != 0)
        return system_error("locking", name);
    return {};
}

size_t Segment::room() {
    struct statvfs space {};
    // A /dev/shm without a limit has no blocks.
    if (statvfs("/dev/shm", &space) != 0 || space.f_blocks == 0)
        return std::numeric_limits<size_t>::max();
    return static_cast<size_t>(space.f_bavail) * space.f_frsize;
}

Segment::~Segment() = default;

std::byte *Segment::base() const {
    return mapping_->base;
}
size_t Segment::bytes() const {
    return mapping_->bytes;
}

Status Segment::reserve(std::byte *memory, size_t bytes) {
    const int code =
        bytes > room() / 2 ? ENOSPC : flx::shm::reserve(lock_.get(), {static_cast<size_t>(memory - base()), bytes});
    return code == 0 ? Status() : no_room(lock_.get(), fmt::format("{} further bytes of shared memory", bytes), code);
}

void Segment::give_back(std::byte *memory, size_t bytes) {
    fallocate(lock_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(memory - base()),
              static_cast<off_t>(bytes));
}

bool Segment::alive(int local_rank) const {
    struct flock lock = byte_lock(local_rank);
    if (fcntl(lock_.get(), F_OFD_GETLK, &lock) != 0)
        return true;
    return lock.l_type != F_UNLCK;
}

Status host_identity(std::string &identity) {
    struct stat shm {};
    if (stat("/dev/shm", &shm) != 0)
        return fail(Fault::shm_refused, "/dev/shm cannot be used: {}", std::strerror(errno));
    identity = fmt::format("{}:{}", boot_id(), shm.st_dev);
    return {};
}

}  // namespace flx::shm
