#include "apps/flx_top/hosts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <thread>
#include <utility>

#include "apps/flx_top/looks.h"

namespace flx::top {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{10};
constexpr std::chrono::milliseconds kLeast{500};
constexpr size_t kMostBytes = 256 << 20;

std::string own_path() {
    std::error_code error;
    const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
    return error ? "flx_top" : path.string();
}

std::string quoted(const std::string &text) {
    std::string result = "'";
    for (const char c : text)
        result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return result + "'";
}

/// `reach` with the host in place of {}.
std::string command_for(const std::string &host, std::string reach, uid_t user) {
    for (size_t at = reach.find("{}"); at != std::string::npos; at = reach.find("{}", at + host.size()))
        reach.replace(at, 2, host);
    return fmt::format("{} {} --answer --user {}", reach, quoted(own_path()), user);
}

}  // namespace

bool is_host(const std::string &name) {
    return !name.empty() && name.front() != '-' && std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || std::strchr("._-:@", c) != nullptr;
    });
}

struct Hosts::Host {
    std::string name;
    pid_t pid = -1;
    int asks = -1;
    int says = -1;
    std::string read;  ///< and no line yet
    Status failed;     ///< why it is not asked any more

    Host(std::string host, const std::string &command);
    ~Host() { end(); }
    Host(const Host &) = delete;
    Host &operator=(const Host &) = delete;

    Status ask();
    Status hear(Clock::time_point until, std::vector<record::ProcessSeen> &processes);
    void end();
};

Hosts::Host::Host(std::string host, const std::string &command) : name(std::move(host)) {
    std::array<int, 2> to{-1, -1};
    std::array<int, 2> from{-1, -1};
    if (pipe2(to.data(), O_CLOEXEC) != 0)
        return;
    if (pipe2(from.data(), O_CLOEXEC) != 0) {
        close(to[0]);
        close(to[1]);
        return;
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    std::array<char *, 4> words{const_cast<char *>("sh"), const_cast<char *>("-c"), const_cast<char *>(command.c_str()),
                                nullptr};
    if (posix_spawn(&pid, "/bin/sh", &actions, nullptr, words.data(), environ) != 0)
        pid = -1;
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    asks = to[1];
    says = from[0];
}

Status Hosts::Host::ask() {
    if (failed.ok() && (pid < 0 || write(asks, "\n", 1) != 1))
        failed = fail(Fault::not_read, "the command that leads there has ended");
    return failed;
}

Status Hosts::Host::hear(Clock::time_point until, std::vector<record::ProcessSeen> &processes) {
    size_t end = 0;
    while ((end = read.find('\n')) == std::string::npos) {
        // What others took of the time is not this one's: what it has said by now is read.
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
        pollfd readable{says, POLLIN, 0};
        if (poll(&readable, 1, static_cast<int>(std::max<int64_t>(left, kLeast.count()))) == 0)
            return fail(Fault::not_read, "it did not answer within {} s", kPatience.count());
        if (read.size() > kMostBytes)
            return fail(Fault::not_read, "what it says has no end");
        std::array<char, 65536> bytes{};
        const ssize_t got = ::read(says, bytes.data(), bytes.size());
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return fail(Fault::not_read, "the command that leads there has ended");
        read.append(bytes.data(), static_cast<size_t>(got));
    }
    const std::string line = read.substr(0, end);
    read.erase(0, end + 1);
    return read_line(line, processes);
}

void Hosts::Host::end() {
    if (asks >= 0)
        close(asks);
    if (says >= 0)
        close(says);
    asks = says = -1;
    // A command that is not this user's, or does not end, is left alone.
    constexpr int kTries = 50;
    constexpr std::chrono::milliseconds kBetween{10};
    for (const int signal : {SIGTERM, SIGKILL}) {
        if (pid > 0)
            kill(pid, signal);
        for (int i = 0; pid > 0 && i < kTries; ++i)
            if (waitpid(pid, nullptr, WNOHANG) != 0)
                pid = -1;
            else
                std::this_thread::sleep_for(kBetween);
    }
    pid = -1;
}

Hosts::Hosts(const std::vector<std::string> &hosts, const std::string &reach, uid_t user) {
    std::signal(SIGPIPE, SIG_IGN);  // a command that ends is told of
    for (const std::string &host : hosts)
        hosts_.push_back(std::make_unique<Host>(host, command_for(host, reach, user)));
}

Hosts::~Hosts() = default;

std::vector<record::ProcessSeen> Hosts::look() {
    std::vector<record::ProcessSeen> all;
    std::vector<Status> asked;
    silent_.clear();
    for (const std::unique_ptr<Host> &host : hosts_)
        asked.push_back(host->ask());
    const Clock::time_point until = Clock::now() + kPatience;
    for (size_t i = 0; i < hosts_.size(); ++i) {
        std::vector<record::ProcessSeen> processes;
        const Status status = asked[i].ok() ? hosts_[i]->hear(until, processes) : asked[i];
        if (!status.ok()) {
            silent_.push_back(fmt::format("Host {} says nothing: {}.", hosts_[i]->name, status.words()));
            hosts_[i]->failed = status;
            hosts_[i]->end();  // an answer that is late is to an earlier question
        }
        std::move(processes.begin(), processes.end(), std::back_inserter(all));
    }
    return all;
}

int answer(uid_t user) {
    record::Reader reader;
    std::string line;
    while (std::getline(std::cin, line)) {
        const std::string look = line_of(reader.look(user, kFewCalls)) + "\n";
        if (std::fputs(look.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
            return 1;
    }
    return 0;
}

}  // namespace flx::top
