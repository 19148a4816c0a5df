#include "runtime/base/descriptors.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/resource.h>
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
                               for (OwnDescriptor *each = first_; each != nullptr; each = each->next_) {
                                   if (each->fd_ >= 0)
                                       ::close(each->fd_);
                                   each->fd_ = -1;
                               }
                               mutex_.unlock();
                           });
        });
    }
};

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
    if (fd_ >= 0)
        ::close(fd_);
}

void OwnDescriptor::take(const std::function<int()> &open) {
    const std::lock_guard lock(OwnDescriptors::mutex_);
    const int taken = open();
    const int error = errno;  // of open()
    if (fd_ >= 0)
        ::close(fd_);
    errno = error;
    fd_ = taken;
}

}  // namespace flx
