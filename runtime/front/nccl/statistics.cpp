#include "runtime/front/nccl/statistics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/base/text.h"

namespace flx::nccl {
namespace {

std::mutex texts;

}  // namespace

void Statistics::count_communicator(int rank, Reason why, const std::string &sentence) {
    communicators_[static_cast<size_t>(why)].fetch_add(1, std::memory_order_relaxed);
    if (rank == 0)
        first_.store(true, std::memory_order_relaxed);
    const std::lock_guard guard(texts);
    if (sentences_[static_cast<size_t>(why)].empty())
        sentences_[static_cast<size_t>(why)] = sentence;
}

void Statistics::keep(int ranks, std::vector<Decision> decisions) {
    const std::lock_guard guard(texts);
    if (!decisions.empty())
        decisions_[ranks] = std::move(decisions);
}

void Statistics::print_at_exit() {
    const char *wanted = std::getenv("FLX_STATS");
    if (wanted == nullptr || std::strcmp(wanted, "1") != 0)
        return;
    static std::once_flag once;
    std::call_once(once, [] {
        std::atexit([] {
            if (!statistics().first_.load(std::memory_order_relaxed))
                return;
            const std::string text = statistics().text();
            std::fputs(text.c_str(), stderr);
            std::fflush(stderr);
        });
    });
}

std::string Statistics::text() const {
    std::string text = fmt::format("flx_nccl: calls of process {}, which has a rank 0\n", getpid());
    text += fmt::format("  {:<16} {:>10} {:>12} {:>10} {:>12}  why passed on\n", "", "served", "", "passed on", "");
    for (size_t kind = 0; kind < kKinds; ++kind) {
        const auto &cells = cells_[kind];
        uint64_t calls = 0;
        uint64_t bytes = 0;
        std::vector<std::string> why;
        for (size_t reason = 1; reason < kReasons; ++reason) {
            calls += cells[reason].calls;
            bytes += cells[reason].bytes;
            if (cells[reason].calls != 0)
                why.push_back(fmt::format("{} {}", cells[reason].calls.load(), text_of(static_cast<Reason>(reason))));
        }
        if (cells[0].calls + calls != 0)
            text += fmt::format("  {:<16} {:>10} {:>12} {:>10} {:>12}  {}\n", name_of(static_cast<Kind>(kind)),
                                cells[0].calls.load(), short_bytes(cells[0].bytes), calls, short_bytes(bytes),
                                fmt::join(why, ", "));
    }
    if (met_ != 0)
        text += fmt::format("  {} of the served ones wrote straight into their peers' outputs\n", met_.load());
    const std::lock_guard guard(texts);
    for (size_t reason = 0; reason < kReasons; ++reason)
        if (communicators_[reason] != 0)
            text +=
                fmt::format("  {} communicators{}{}{}{}\n", communicators_[reason].load(),
                            reason == 0 ? " that FLX serves" : " left to NCCL: ", text_of(static_cast<Reason>(reason)),
                            sentences_[reason].empty() ? "" : ": ", sentences_[reason]);
    for (const auto &[ranks, decisions] : decisions_) {
        text += fmt::format("  as was measured for the last communicator of {} ranks:\n", ranks);
        for (const Decision &decision : decisions)
            text += fmt::format("    {}: {} ({})\n", decision.about, decision.decided, decision.from);
    }
    return text;
}

Statistics &statistics() {
    static auto *const all = new Statistics;
    return *all;
}

}  // namespace flx::nccl
