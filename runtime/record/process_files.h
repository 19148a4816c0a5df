/// \file process_files.h
/// Where the files of format.h lie, which processes they are of, and those that nobody needs any more.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace flx::record {

std::string file_of(uid_t user, pid_t process);
/// Opens one for reading. -1 and EINVAL: it is no regular file of the user whose name it has, as anybody may put a
/// file, a link or a pipe there.
int open_record(const std::string &file, struct stat &info);
/// Whether there is so much room in all that files of this kind are made.
bool has_room();
/// Of all processes of the user that left or keep one on this host.
std::vector<std::string> files_of(uid_t user);
/// What the kernel says of a process (proc(5)).
enum class Life : uint8_t { running, sleeping, stopped, dead };
struct Usage {
    uint64_t started = 0;  ///< clock ticks since the system began; 0: there is none
    int64_t cpu_ns = 0;    ///< in steps of a kernel tick
    Life life = Life::dead;
};
Usage usage_of(pid_t process);
/// Removes this user's of processes that are gone for a day, and all but the last 256 of those that are gone.
void remove_old_files();

}  // namespace flx::record
