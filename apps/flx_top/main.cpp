/// What programs that use FLX do on this host: reads what their processes keep of their calls
/// (runtime/record/format.h).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "apps/flx_top/hosts.h"
#include "apps/flx_top/options.h"
#include "apps/flx_top/reports.h"
#include "apps/flx_top/screen.h"
#include "apps/flx_top/view.h"
#include "runtime/record/reader.h"

namespace {

using flx::record::ProcessSeen;
using flx::top::Form;
using flx::top::View;

/// At this host, or at those that are named.
class Looking {
  public:
    explicit Looking(const flx::top::Options &options) : user_(options.user) {
        if (!options.hosts.empty())
            hosts_ = std::make_unique<flx::top::Hosts>(options.hosts, options.reach, options.user);
    }
    std::vector<ProcessSeen> look(size_t calls = flx::record::kCalls) {
        return hosts_ != nullptr ? hosts_->look() : reader_.look(user_, calls);
    }
    [[nodiscard]] std::vector<std::string> silent() const {
        return hosts_ != nullptr ? hosts_->silent() : std::vector<std::string>();
    }
    [[nodiscard]] std::string left_out() const { return reader_.left_out(); }
    [[nodiscard]] bool is_here() const { return hosts_ == nullptr; }

  private:
    uid_t user_;
    flx::record::Reader reader_;
    std::unique_ptr<flx::top::Hosts> hosts_;
};

int print_once(const flx::top::Options &options) {
    constexpr std::chrono::milliseconds kBetween{150};
    constexpr size_t kWidth = 160;
    Looking looking(options);
    const std::vector<ProcessSeen> before = looking.look();
    if (!before.empty())
        std::this_thread::sleep_for(kBetween);
    const std::vector<ProcessSeen> now = looking.look();
    for (const std::string &sentence : looking.silent())
        fmt::print(stderr, "flx_top: {}\n", sentence);
    const int code = looking.silent().empty() ? 0 : 1;
    View view = flx::top::view_of(now, before, options.patience_s, options.explain);
    view.left_out = looking.left_out();
    std::string text;
    if (options.form == Form::json)
        text = json_of(view, now);
    else if (options.form == Form::prometheus)
        text = prometheus_of(view, now);
    else
        for (const std::string &line : lines_of(view, kWidth, options.explain))
            text += line + "\n";
    if (options.to.empty())
        return std::fputs(text.c_str(), stdout) < 0 ? 1 : code;
    if (const flx::Status status = flx::top::replace(options.to, text); !status.ok()) {
        fmt::print(stderr, "flx_top: {}\n", status.sentence());
        return 1;
    }
    return code;
}

}  // namespace

int main(int argc, char **argv) {
    flx::top::Options options;
    int code = 0;
    if (!flx::top::parse(argc, argv, options, code))
        return code;
    if (options.answer)
        return flx::top::answer(options.user);
    if (options.form != Form::screen)
        return print_once(options);
    Looking looking(options);
    std::vector<ProcessSeen> before;
    const auto look = [&](size_t calls, bool explain) {
        std::vector<ProcessSeen> now = looking.look(calls);
        View view = flx::top::view_of(now, before, options.patience_s, explain);
        view.left_out = looking.left_out();
        return std::pair(std::move(now), std::move(view));
    };
    const auto lines = [&](size_t width, bool explain) {
        auto [now, view] = look(flx::top::kFewCalls, explain);
        // Somebody waits: what does not match may be calls ago.
        const bool waits = std::any_of(view.findings.begin(), view.findings.end(),
                                       [](const auto &finding) { return finding.waiting != 0; });
        if (waits && looking.is_here())
            std::tie(now, view) = look(flx::record::kCalls, explain);
        before = std::move(now);
        std::vector<std::string> lines = lines_of(view, width, explain);
        const std::vector<std::string> silent = looking.silent();
        lines.insert(lines.begin(), silent.begin(), silent.end());
        return lines;
    };
    if (!flx::top::show(options.interval_s, options.explain, lines)) {
        fmt::print(stderr, "flx_top: there is no terminal here; --once, --json and --prometheus need none\n");
        return 1;
    }
    return 0;
}
