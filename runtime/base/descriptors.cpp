#include "runtime/base/descriptors.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <mutex>

namespace flx {
namespace {

size_t count_open() {
    DIR *folder = opendir("/proc/self/fd");
    if (folder == nullptr)
        return 0;
    size_t count = 0;
    while (const dirent *entry = readdir(folder))
        count += entry->d_name[0] != '.' ? 1 : 0;
    closedir(folder);
    return count - 1;  // the folder's own
}

size_t count_of(rlim_t limit) {
    return limit == RLIM_INFINITY ? std::numeric_limits<size_t>::max() : static_cast<size_t>(limit);
}

/// What it is open for; 0: nothing.
uint64_t file_of(int fd) {
    constexpr unsigned kInodeBits = 44;
    struct stat info {};
    return fd >= 0 && fstat(fd, &info) == 0 ? (uint64_t{info.st_dev} << kInodeBits) ^ info.st_ino : 0;
}

}  // namespace

Descriptors descriptors(size_t wanted) {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return {0, std::numeric_limits<size_t>::max()};
    Descriptors mine{count_open(), count_of(limit.rlim_cur)};
    if (mine.spare() >= wanted || limit.rlim_cur == limit.rlim_max)
        return mine;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0)
        mine.allowed = count_of(limit.rlim_cur);
    return mine;
}

/// All that there are. A fork waits until nobody changes the list, so that the child finds it whole.
struct OwnDescriptors {
    static inline std::mutex mutex_;
    static inline OwnDescriptor *first_ = nullptr;

    static void watch_forks() {
        static std::once_flag once;
        std::call_once(once, [] {
            pthread_atfork([] { mutex_.lock(); }, [] { mutex_.unlock(); },
                           [] {
                               for (OwnDescriptor *each = first_; each != nullptr; each = each->next_)
                                   each->close_now();
                               mutex_.unlock();
                           });
        });
    }
};

void OwnDescriptor::close_now() {
    if (fd_ >= 0 && file_of(fd_) == file_)
        ::close(fd_);
    fd_ = -1;
}

OwnDescriptor::OwnDescriptor() {
    OwnDescriptors::watch_forks();
    const std::lock_guard lock(OwnDescriptors::mutex_);
    next_ = OwnDescriptors::first_;
    if (next_ != nullptr)
        next_->previous_ = this;
    OwnDescriptors::first_ = this;
}

OwnDescriptor::~OwnDescriptor() {
    const std::lock_guard lock(OwnDescriptors::mutex_);
    (previous_ != nullptr ? previous_->next_ : OwnDescriptors::first_) = next_;
    if (next_ != nullptr)
        next_->previous_ = previous_;
    close_now();
}

void OwnDescriptor::take(const std::function<int()> &open) {
    const std::lock_guard lock(OwnDescriptors::mutex_);
    const int taken = open();
    const int error = errno;  // of open()
    close_now();
    fd_ = taken;
    file_ = file_of(taken);
    errno = error;
}

}  // namespace flx
