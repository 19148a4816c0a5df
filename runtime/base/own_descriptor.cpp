#include "runtime/base/own_descriptor.h"

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

namespace flx {

/// All that there are. A fork waits until nobody changes the list, so that the child finds it whole.
struct OwnDescriptors {
    static inline std::mutex mutex;
    static inline OwnDescriptor *first = nullptr;

    static void watch_forks() {
        static std::once_flag once;
        std::call_once(once, [] {
            pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); },
                           [] {
                               for (OwnDescriptor *each = first; each != nullptr; each = each->next_) {
                                   if (each->fd_ >= 0)
                                       ::close(each->fd_);
                                   each->fd_ = -1;
                               }
                               mutex.unlock();
                           });
        });
    }
};

OwnDescriptor::OwnDescriptor() {
    OwnDescriptors::watch_forks();
    const std::lock_guard lock(OwnDescriptors::mutex);
    next_ = OwnDescriptors::first;
    if (next_ != nullptr)
        next_->previous_ = this;
    OwnDescriptors::first = this;
}

OwnDescriptor::~OwnDescriptor() {
    const std::lock_guard lock(OwnDescriptors::mutex);
    (previous_ != nullptr ? previous_->next_ : OwnDescriptors::first) = next_;
    if (next_ != nullptr)
        next_->previous_ = previous_;
    if (fd_ >= 0)
        ::close(fd_);
}

void OwnDescriptor::take(const std::function<int()> &open) {
    const std::lock_guard lock(OwnDescriptors::mutex);
    const int taken = open();
    const int error = errno;  // of open()
    if (fd_ >= 0)
        ::close(fd_);
    errno = error;
    fd_ = taken;
}

}  // namespace flx
