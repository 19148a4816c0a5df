/// \file hosts.h
/// Looks at the processes of several hosts, at each through a command that starts flx_top there and is asked for a look
/// whenever one is wanted. One thread at a time.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/record/reader.h"

namespace flx::top {

/// So many of each process's last calls are looked at where nobody waits, and told to another host: what is shown is
/// mostly the last one.
inline constexpr size_t kFewCalls = 64;

/// A host as --hosts may name it: what a shell takes for nothing else.
bool is_host(const std::string &name);

class Hosts {
  public:
    /// `reach`: a command for a shell, in which {} stands for the host and to which flx_top is appended. `user` is the
    /// id of whose processes are looked at, there as here. Starts the commands and waits for nothing.
    Hosts(const std::vector<std::string> &hosts, const std::string &reach, uid_t user);
    ~Hosts();
    Hosts(const Hosts &) = delete;
    Hosts &operator=(const Hosts &) = delete;

    /// What all hosts say, which have ten seconds together. One that does not answer by then
    /// is left out for half a minute, and then reached anew.
    std::vector<record::ProcessSeen> look();
    /// Sentences about those that said nothing in the last look.
    [[nodiscard]] const std::vector<std::string> &silent() const { return silent_; }

  private:
    struct Host;
    std::vector<std::unique_ptr<Host>> hosts_;
    std::vector<std::string> silent_;
};

/// On the other host: prints a look for each line that is read, until there are no more. The program's exit code.
int answer(uid_t user);

}  // namespace flx::top
