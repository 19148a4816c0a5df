#include "runtime/base/descriptors.h"

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>
#include <limits>

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

}  // namespace flx
