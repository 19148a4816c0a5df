/// \file process_files.h
/// Where the files of format.h lie, which processes they are of, and those that nobody needs any more.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace flx::record {

/// Containers have numbers of their own for their processes, and may share /dev/shm.
struct ProcessId {
    pid_t pid = 0;
    uint64_t pid_namespace = 0;  ///< in which it has that number (pid_namespaces(7)); 0: not known

    auto operator<=>(const ProcessId &) const = default;  // NOLINT(modernize-use-nullptr)
};
ProcessId this_process();
/// Of the initial namespace `4711`, of others `12-4026532281`.
std::string number_text(const ProcessId &process);
bool is_of_initial_namespace(const ProcessId &process);
/// Whether /proc has that process under its own number: it is in no other container than this process.
bool has_own_number_here(const ProcessId &process);
/// A process that has another number in its own namespace than in /proc here.
struct NumberHere {
    pid_t here = 0;
    ProcessId own;  ///< its namespace may not be known, which takes rights that its other facts do not take

    [[nodiscard]] bool may_be(const ProcessId &process) const {
        return own.pid == process.pid && (own.pid_namespace == process.pid_namespace || own.pid_namespace == 0);
    }
};
/// All that this process may look at.
std::vector<NumberHere> numbers_here();

std::string file_of(uid_t user, const ProcessId &process);
/// Opens one for reading. -1 and EINVAL: it is no regular file of the user whose name it has, as anybody may put a
/// file, a link or a pipe there.
int open_record(const std::string &file, struct stat &info);
/// Locks an open file of this process, until it ends or closes it. False: the system has no such locks.
bool hold(int fd);
/// Whether a process holds it.
bool is_held(const std::string &file);
/// Whether there is so much room in all that files of this kind are made.
bool has_room();
/// Of all processes of the user that left or keep one on this host.
std::vector<std::string> files_of(uid_t user);
/// What the kernel says of a process (proc(5)).
/// `hidden`: it lives in a namespace into which this process does not see.
enum class Life : uint8_t { running, sleeping, stopped, dead, hidden };
struct Usage {
    uint64_t started = 0;  ///< clock ticks since the system began; 0: there is none
    int64_t cpu_ns = 0;    ///< in steps of a kernel tick
    Life life = Life::dead;
};
Usage usage_of(pid_t process);
Usage usage_of_this_process();
/// Removes this user's of processes that are gone for a day, and all but the last 256 of those that are gone.
void remove_old_files();

}  // namespace flx::record
