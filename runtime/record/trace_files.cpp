#include "runtime/record/trace_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/boot_id.h"
#include "runtime/record/process_files.h"

namespace flx::record {
namespace {

constexpr const char *kPartPrefix = "rank-";

std::string folder_of(const std::string &file) {
    return file + ".parts";
}

std::vector<std::string> files_with(const std::string &folder, const std::string &prefix) {
    std::vector<std::string> paths;
    std::error_code error;
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
        if (entry->path().filename().string().starts_with(prefix))
            paths.push_back(entry->path().string());
    std::sort(paths.begin(), paths.end());
    return paths;
}

/// In /tmp anybody may have made a folder of that name, and put there what a reader would trip over.
Status make_own_folder(const std::string &folder) {
    struct stat info {};
    if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST)
        return fail(Fault::not_written, "the folder {} cannot be made: {}", folder, std::strerror(errno));
    if (lstat(folder.c_str(), &info) != 0)
        return fail(Fault::not_read, "the folder {} cannot be read: {}", folder, std::strerror(errno));
    if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return fail(Fault::not_written, "{} is no folder that this user alone may write to", folder);
    return {};
}

/// Whether it is known that its process writes nothing more.
bool is_over(const TracePart &part) {
    const TraceHead &head = part.head();
    if (part.ended() || part.boot() != boot_id())
        return part.ended();
    return has_own_number_here({head.pid, head.pid_namespace}) ? usage_of(head.pid).started != head.started
                                                               : head.held != 0 && !is_held(part.path());
}

void remove_ended_programs(const std::string &folder) {
    std::vector<TracePart> parts;
    std::set<std::string> running;
    for (const std::string &path : files_with(folder, kPartPrefix))
        if (TracePart part; TracePart::open(path, part).ok()) {
            if (!is_over(part))
                running.insert(part.job());
            parts.push_back(std::move(part));
        }
    for (const TracePart &part : parts)
        if (running.count(part.job()) == 0)
            unlink(part.path().c_str());
}

/// Held while parts are looked at and the trace is made, by one process of all hosts. The kernel lets go of it however
/// that one ends.
class Lock {
  public:
    explicit Lock(const std::string &folder) : path_(folder + "/lock") {
        constexpr int kTries = 100;
        constexpr std::chrono::milliseconds kGap{10};
        fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
        // Who only looks is soon done. Who makes the trace has seen that all have ended, and needs nobody's help.
        for (int i = 0; fd_ >= 0 && !held_ && i < kTries; ++i) {
            held_ = flock(fd_, LOCK_EX | LOCK_NB) == 0;
            if (!held_)
                std::this_thread::sleep_for(kGap);
        }
    }
    ~Lock() {
        if (held_)
            unlink(path_.c_str());
        if (fd_ >= 0)
            close(fd_);
    }
    Lock(const Lock &) = delete;
    Lock &operator=(const Lock &) = delete;
    [[nodiscard]] bool held() const { return held_; }

  private:
    std::string path_;
    int fd_ = -1;
    bool held_ = false;
};

/// Ticks of one host become times by the line of that process whose moments are farthest apart.
void share_scales(std::vector<TracePart> &parts) {
    const auto host = [](const TracePart &part) {  // two may have one name
        return std::tuple(part.hostname(), part.boot(), part.head().ticks_are_tsc);
    };
    std::map<std::tuple<std::string, std::string, uint32_t>, TracePart::Scale> best;
    for (const TracePart &part : parts) {
        TracePart::Scale &scale = best[host(part)];
        if (part.scale().apart_ns >= scale.apart_ns)
            scale = part.scale();
    }
    for (TracePart &part : parts)
        part.set_scale(best.at(host(part)));
}

/// Of one program, by rank: those of `job`, or of the one that began last. A job may have run programs of several
/// sizes, one after the other.
std::vector<TracePart> parts_of(const std::string &file, const std::string *job) {
    std::vector<TracePart> parts;
    for (const std::string &path : files_with(folder_of(file), kPartPrefix))
        if (TracePart part; TracePart::open(path, part).ok() && (job == nullptr || part.job() == *job))
            parts.push_back(std::move(part));
    if (parts.empty())
        return parts;
    const auto began = [](const TracePart &part) { return part.head().made_since_ns; };
    const TracePart &last = *std::max_element(
        parts.begin(), parts.end(), [&](const TracePart &a, const TracePart &b) { return began(a) < began(b); });
    const std::string of_job = last.job();
    const int of_size = last.head().world_size;
    std::erase_if(parts,
                  [&](const TracePart &part) { return part.job() != of_job || part.head().world_size != of_size; });
    std::sort(parts.begin(), parts.end(), [&](const TracePart &a, const TracePart &b) {
        return std::pair(static_cast<uint32_t>(a.head().world_rank), -began(a)) <
               std::pair(static_cast<uint32_t>(b.head().world_rank), -began(b));
    });
    const auto is_earlier = [](const TracePart &a, const TracePart &b) {
        return a.head().world_rank >= 0 && a.head().world_rank == b.head().world_rank;
    };
    parts.erase(std::unique(parts.begin(), parts.end(), is_earlier), parts.end());
    share_scales(parts);
    return parts;
}

Status make_of(const std::string &file, const std::vector<TracePart> &parts, TraceMade &made) {
    const auto running =
        std::count_if(parts.begin(), parts.end(), [](const TracePart &part) { return !is_over(part); });
    if (running != 0)
        made.notes.push_back(fmt::format("{} ranks may still run, so the parts are kept", running));
    const std::string fresh = fmt::format("{}.{}.new", file, getpid());
    unlink(fresh.c_str());
    if (Status status = write_trace(fresh, parts, made); !status.ok()) {
        unlink(fresh.c_str());
        return status;
    }
    if (rename(fresh.c_str(), file.c_str()) != 0) {
        const int error = errno;
        unlink(fresh.c_str());
        return fail(Fault::not_written, "{} cannot be written: {}", file, std::strerror(error));
    }
    for (const TracePart &part : parts)
        if (running == 0)
            unlink(part.path().c_str());
    return {};
}

}  // namespace

Status make_part(const std::string &file, int rank, std::string_view host, const ProcessId &process, std::string &path,
                 int &fd) {
    const std::string folder = folder_of(file);
    std::string prefix = fmt::format("{}{:05}.{}.", kPartPrefix, rank, host);
    std::replace(prefix.begin(), prefix.end(), '/', '_');
    path = fmt::format("{}/{}{}", folder, prefix, number_text(process));
    // The last process of an earlier program may take the folder away meanwhile.
    constexpr int kTries = 10;
    for (int i = 0; i < kTries; ++i) {
        FLX_TRY(make_own_folder(folder));
        for (const std::string &earlier : files_with(folder, prefix))
            if (TracePart part;
                TracePart::open(earlier, part).ok() && (is_over(part) || (earlier == path && part.boot() == boot_id())))
                unlink(earlier.c_str());
        fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
        if (fd >= 0 || errno != ENOENT)
            break;
    }
    return fd >= 0 ? Status() : fail(Fault::not_written, "{} cannot be made: {}", path, std::strerror(errno));
}

void drop_part(const std::string &file, const std::string &path) {
    unlink(path.c_str());
    rmdir(folder_of(file).c_str());
}

Status make_trace(const std::string &file, TraceMade &made) {
    const std::string folder = folder_of(file);
    Status status;
    {
        const Lock lock(folder);
        const std::vector<TracePart> parts = lock.held() ? parts_of(file, nullptr) : std::vector<TracePart>();
        if (!lock.held() && !files_with(folder, kPartPrefix).empty())
            status = fail(Fault::not_read, "another process makes a trace of the parts in {}", folder);
        else if (parts.empty())
            status = fail(Fault::not_read, "there are no parts of a trace in {}", folder);
        else
            status = make_of(file, parts, made);
    }
    rmdir(folder.c_str());  // unless there are others'
    return status;
}

Status finish_trace(const std::string &file, const std::string &job, int size) {
    const std::string folder = folder_of(file);
    if (size <= 0 || files_with(folder, kPartPrefix).size() < static_cast<size_t>(size))
        return {};
    Status status;
    {
        const Lock lock(folder);
        if (!lock.held())
            return {};
        const std::vector<TracePart> parts = parts_of(file, &job);
        if (parts.size() < static_cast<size_t>(size) ||
            !std::all_of(parts.begin(), parts.end(), [](const TracePart &part) { return part.ended(); }))
            return {};
        TraceMade made;
        status = make_of(file, parts, made);
        // What an earlier program left that was ended, of ranks that this one does not have.
        if (status.ok())
            remove_ended_programs(folder);
    }
    rmdir(folder.c_str());
    return status;
}

}  // namespace flx::record
