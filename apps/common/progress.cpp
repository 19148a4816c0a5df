#include "apps/common/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace flx::apps {
namespace {

constexpr std::size_t kWidth = 32;
constexpr auto kRedraw = std::chrono::milliseconds(100);

bool launcher_stderr_is_terminal() {
    if (std::getenv("OMPI_COMM_WORLD_RANK") == nullptr && std::getenv("PMI_RANK") == nullptr) {
        return false;
    }
    std::array<char, 64> target{};
    const std::string link = fmt::format("/proc/{}/fd/2", getppid());
    const ssize_t length = readlink(link.c_str(), target.data(), target.size());
    const std::string_view name(target.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
    return name.starts_with("/dev/pts/") || name.starts_with("/dev/tty") || name.starts_with("/dev/console");
}

}  // namespace

bool stderr_is_watched() {
    return isatty(STDERR_FILENO) == 1 || launcher_stderr_is_terminal();
}

Progress::Progress(std::string label, std::size_t total, bool shown)
    : label_(std::move(label)),
      total_(std::max<std::size_t>(total, 1)),
      active_(shown && stderr_is_watched()),
      start_(Clock::now()) {}

void Progress::update(std::size_t done) {
    const auto now = Clock::now();
    if (!active_ || (drawn_ && now - last_ < kRedraw)) {
        return;
    }
    const std::size_t part = std::min(done, total_);
    const std::size_t filled = part * kWidth / total_;
    std::string bar(filled, '=');
    bar += filled < kWidth ? ">" : "";
    bar.resize(kWidth, ' ');
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - start_).count();
    fmt::print(stderr, "\r{} [{}] {:3} %  {}:{:02}\x1b[K", label_, bar, part * 100 / total_, seconds / 60,
               seconds % 60);
    std::fflush(stderr);
    drawn_ = true;
    last_ = now;
}

void Progress::clear() {
    if (drawn_) {
        fmt::print(stderr, "\r\x1b[K");
        std::fflush(stderr);
        drawn_ = false;
    }
}

void Progress::finish() {
    clear();
    active_ = false;
}

}  // namespace flx::apps
