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
constexpr std::chrono::seconds kAgain{30};  ///< a host that was silent is asked again after this
constexpr size_t kMostBytes = 256 << 20;
constexpr size_t kComplaint = 200;

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

/// `reach` with the host in place of {}. What ssh is given is read by a shell there once more.
std::string command_for(const std::string &host, std::string reach, uid_t user) {
    const std::string path = quoted(own_path());
    const bool twice = reach.starts_with("ssh ");
    for (size_t at = reach.find("{}"); at != std::string::npos; at = reach.find("{}", at + host.size()))
        reach.replace(at, 2, host);
    return fmt::format("{} {} --answer --user {}", reach, twice ? quoted(path) : path, user);
}

}  // namespace

bool is_host(const std::string &name) {
    return !name.empty() && name.front() != '-' && std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || std::strchr("._-:@", c) != nullptr;
    });
}

struct Hosts::Host {
    std::string name;
    std::string command;
    pid_t pid = -1;
    int asks = -1;
    int says = -1;
    int complains = -1;
    std::string read;       ///< and no line yet
    std::string complaint;  ///< the end of what the command said beside its answers
    Status failed;          ///< why it is not asked any more
    Clock::time_point failed_at;

    Host(std::string host, std::string its_command) : name(std::move(host)), command(std::move(its_command)) {
        begin();
    }
    ~Host() { end(); }
    Host(const Host &) = delete;
    Host &operator=(const Host &) = delete;

    void begin();
    Status ask();
    Status hear(Clock::time_point until, std::vector<record::ProcessSeen> &processes);
    void fails(const Status &why);
    void listen();
    void end();
};

/// Starts the command. What it says beside its answers must not come onto a screen.
void Hosts::Host::begin() {
    std::array<std::array<int, 2>, 3> pipes{{{-1, -1}, {-1, -1}, {-1, -1}}};
    auto &[to, from, beside] = pipes;
    for (auto &both : pipes)
        if (pipe2(both.data(), O_CLOEXEC) != 0) {
            for (const auto &made : pipes)
                for (const int end : made)
                    if (end >= 0)
                        close(end);
            return;
        }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, beside[1], STDERR_FILENO);
    std::array<char *, 4> words{const_cast<char *>("sh"), const_cast<char *>("-c"), const_cast<char *>(command.c_str()),
                                nullptr};
    if (posix_spawn(&pid, "/bin/sh", &actions, nullptr, words.data(), environ) != 0)
        pid = -1;
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    close(beside[1]);
    asks = to[1];
    says = from[0];
    complains = beside[0];
    fcntl(complains, F_SETFL, O_NONBLOCK);
}

Status Hosts::Host::ask() {
    if (!failed.ok() && Clock::now() - failed_at >= kAgain) {
        failed = {};
        read.clear();
        complaint.clear();
        begin();
    }
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

/// Reads what the command says beside its answers, or it would wait at some time until somebody does.
void Hosts::Host::listen() {
    std::array<char, 4096> bytes{};
    for (ssize_t got = 0; (got = ::read(complains, bytes.data(), bytes.size())) > 0;)
        complaint.append(bytes.data(), static_cast<size_t>(got));
    if (complaint.size() > bytes.size())
        complaint.erase(0, complaint.size() - bytes.size());
}

void Hosts::Host::fails(const Status &why) {
    if (failed.ok() || complains >= 0) {
        failed_at = Clock::now();
        end();  // an answer that is late is to an earlier question
        // Its last line, which says what is wrong.
        const size_t last = complaint.find_last_not_of(" \r\n");
        const std::string said = last == std::string::npos ? "" : complaint.substr(0, last + 1);
        const std::string line = said.substr(said.find_last_of("\r\n") + 1).substr(0, kComplaint);
        failed = line.empty() ? why : fail(Fault::not_read, "{} ({})", why.words(), line);
    }
}

void Hosts::Host::end() {
    if (complains >= 0)
        listen();
    for (const int open : {asks, says, complains})
        if (open >= 0)
            close(open);
    asks = says = complains = -1;
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
        Host &host = *hosts_[i];
        const Status status = asked[i].ok() ? host.hear(until, processes) : asked[i];
        if (status.ok()) {
            host.listen();
        } else {
            host.fails(status);
            silent_.push_back(fmt::format("Host {} says nothing: {}.", host.name, host.failed.words()));
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
