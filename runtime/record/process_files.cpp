#include "runtime/record/process_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <sstream>
#include <string_view>
#include <utility>

#include "runtime/record/format.h"

namespace flx::record {
namespace {

constexpr uint64_t kInitialNamespace = 0xEFFFFFFC;  // the kernel's number of it (proc_ns.h)
constexpr uint64_t kNoNamespace = UINT64_MAX;

std::string prefix_of(uid_t user) {
    return fmt::format("{}{}.", kPrefix, user);
}

/// Of a file_of().
ProcessId process_of(const std::string &file) {
    ProcessId process{0, kInitialNamespace};
    const char *const end = file.data() + file.size();
    const char *const dash = std::from_chars(file.data() + file.rfind('.') + 1, end, process.pid).ptr;
    if (dash != end)
        std::from_chars(dash + 1, end, process.pid_namespace);
    return process;
}

/// Empty: it cannot be read.
std::string text_of_file(const std::string &file) {
    std::string text;
    const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
    std::array<char, 4096> part{};
    for (ssize_t bytes = 0; fd >= 0 && (bytes = ::read(fd, part.data(), part.size())) > 0;)
        text.append(part.data(), static_cast<size_t>(bytes));
    if (fd >= 0)
        close(fd);
    return text;
}

/// A process's numbers from the namespace of /proc to its own one (proc(5)). Empty: they are not known.
std::vector<pid_t> numbers_in_status(const std::string &process) {
    constexpr std::string_view kName = "\nNSpid:";
    const std::string text = text_of_file(fmt::format("/proc/{}/status", process));
    std::vector<pid_t> numbers;
    const size_t begin = text.find(kName);
    if (begin == std::string::npos)
        return numbers;
    std::istringstream line(text.substr(begin + kName.size(), text.find('\n', begin + 1) - begin - kName.size()));
    for (pid_t number = 0; line >> number;)
        numbers.push_back(number);
    return numbers;
}

uint64_t namespace_of(const std::string &process) {
    struct stat info {};
    return stat(fmt::format("/proc/{}/ns/pid", process).c_str(), &info) == 0 ? info.st_ino : 0;
}

}  // namespace

ProcessId this_process() {
    return {getpid(), namespace_of("self")};
}

bool is_of_initial_namespace(const ProcessId &process) {
    return process.pid_namespace == 0 || process.pid_namespace == kInitialNamespace;
}

std::string number_text(const ProcessId &process) {
    return is_of_initial_namespace(process) ? std::to_string(process.pid)
                                            : fmt::format("{}-{}", process.pid, process.pid_namespace);
}

/// Where /proc is a container's host's, as some have it, this process too has another number there.
bool has_own_number_here(const ProcessId &process) {
    static const uint64_t of_proc = numbers_in_status("self").size() <= 1 ? this_process().pid_namespace : kNoNamespace;
    return of_proc == process.pid_namespace || of_proc == 0 || process.pid_namespace == 0;
}

std::string file_of(uid_t user, const ProcessId &process) {
    return fmt::format("{}/{}{}", kFolder, prefix_of(user), number_text(process));
}

int open_record(const std::string &file, struct stat &info) {
    const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool is_owners = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                           file.substr(0, file.rfind('.') + 1) == fmt::format("{}/{}", kFolder, prefix_of(info.st_uid));
    if (fd < 0 || is_owners)
        return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

namespace {

/// Of the whole file, of an open description (fcntl(2)).
struct flock whole(short kind) {
    struct flock lock {};
    lock.l_type = kind;
    lock.l_whence = SEEK_SET;
    return lock;
}

}  // namespace

bool hold(int fd) {
    struct flock lock = whole(F_WRLCK);
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

bool is_held(const std::string &file) {
    struct flock lock = whole(F_RDLCK);
    const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool asked = fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0;
    if (fd >= 0)
        close(fd);
    return asked && lock.l_type != F_UNLCK;
}

bool has_room() {
    struct statvfs space {};
    return statvfs(kFolder, &space) == 0 && uint64_t{space.f_blocks} * space.f_frsize >= kLeastFolder;
}

std::vector<std::string> files_of(uid_t user) {
    std::vector<std::string> files;
    const std::string prefix = prefix_of(user);
    const std::unique_ptr<DIR, int (*)(DIR *)> folder(opendir(kFolder), &closedir);
    while (const dirent *entry = folder != nullptr ? readdir(folder.get()) : nullptr)
        if (std::string_view(entry->d_name).starts_with(prefix))
            files.push_back(fmt::format("{}/{}", kFolder, entry->d_name));
    std::sort(files.begin(), files.end());
    return files;
}

namespace {

/// The name of the program, in parentheses, may have anything in it: fields are counted from its end, the third one
/// being the first there.
Usage usage_in(const std::string &stat_file) {
    constexpr size_t kState = 0, kUserTicks = 11, kSystemTicks = 12, kStarted = 19;
    const std::string text = text_of_file(stat_file);
    const size_t end_of_name = text.rfind(')');
    if (end_of_name == std::string::npos)
        return {};
    std::array<std::string_view, kStarted + 1> fields;
    size_t count = 0;
    for (size_t at = end_of_name + 1; count < fields.size() && at < text.size(); ++count) {
        const size_t begin = text.find_first_not_of(' ', at);
        if (begin == std::string::npos)
            break;
        at = std::min(text.find(' ', begin), text.size());
        fields[count] = std::string_view(text).substr(begin, at - begin);
    }
    if (count < fields.size())
        return {};
    const auto number = [&](size_t field) {
        uint64_t value = 0;
        std::from_chars(fields[field].data(), fields[field].data() + fields[field].size(), value);
        return value;
    };
    const int64_t tick_ns = 1'000'000'000 / std::max(sysconf(_SC_CLK_TCK), 1L);
    Usage usage{number(kStarted), static_cast<int64_t>(number(kUserTicks) + number(kSystemTicks)) * tick_ns,
                Life::sleeping};
    const char state = fields[kState].front();
    if (state == 'R')
        usage.life = Life::running;
    else if (state == 'T' || state == 't')
        usage.life = Life::stopped;
    else if (state == 'Z' || state == 'X')
        usage.life = Life::dead;
    return usage;
}

}  // namespace

Usage usage_of(pid_t process) {
    return usage_in(fmt::format("/proc/{}/stat", process));
}

Usage usage_of_this_process() {
    return usage_in("/proc/self/stat");
}

std::vector<NumberHere> numbers_here() {
    std::vector<NumberHere> numbers;
    const std::unique_ptr<DIR, int (*)(DIR *)> folder(opendir("/proc"), &closedir);
    while (const dirent *entry = folder != nullptr ? readdir(folder.get()) : nullptr) {
        const std::string name = entry->d_name;
        if (name.find_first_not_of("0123456789") != std::string::npos)
            continue;
        const uint64_t own_namespace = namespace_of(name);
        if (own_namespace != 0 && has_own_number_here({0, own_namespace}))
            continue;
        if (const std::vector<pid_t> all = numbers_in_status(name); all.size() > 1)
            numbers.push_back({all.front(), {all.back(), own_namespace}});
    }
    return numbers;
}

void remove_old_files() {
    constexpr size_t kMost = 256;
    constexpr time_t kDay = 24 * 3600;
    std::vector<std::pair<time_t, std::string>> left;
    for (const std::string &file : files_of(getuid())) {
        const ProcessId process = process_of(file);
        const bool lives = (has_own_number_here(process) && usage_of(process.pid).started != 0) || is_held(file);
        struct stat info {};
        const int fd = open_record(file, info);
        if (fd < 0)
            continue;
        // Its time is when it was made, until it is found here for the first time after its process ended.
        const bool is_known = (info.st_mode & S_IXUSR) != 0;
        if (lives && is_known)
            fchmod(fd, S_IRUSR);
        else if (!lives && !is_known && futimens(fd, nullptr) == 0)
            fchmod(fd, S_IRUSR | S_IXUSR);
        if (!lives)
            left.emplace_back(is_known ? info.st_mtime : time(nullptr), file);
        close(fd);
    }
    std::sort(left.rbegin(), left.rend());
    for (size_t i = 0; i < left.size(); ++i)
        if (i >= kMost || left[i].first < time(nullptr) - kDay)
            unlink(left[i].second.c_str());
}

}  // namespace flx::record
