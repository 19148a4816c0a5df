#include "ucx_glue/rails.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "runtime/base/clock.h"
#include "ucx_glue/rail_link.h"
#include "ucx_glue/rail_wiring.h"

namespace flx::ucx {

namespace {

class RailsOverUcx final : public Rails {
  public:
    RailsOverUcx(uint64_t uid, const RailOptions &options)
        : uid_(uid), options_(options), gate_(options.threads), failover_(uid, options) {}
    ~RailsOverUcx() override {
        const std::lock_guard guard(gate_);
        failover_.close();
        for (int index = count(); index > 0; --index)
            lines_[index - 1].reset();
    }

    void add(std::span<const RailSpec> specs) override {
        for (const RailSpec &spec : specs) {
            const auto known = [&](const RailSpec &other) {
                return other.name == spec.name && other.device == spec.device && other.tls == spec.tls;
            };
            if (std::any_of(tried_.begin(), tried_.end(), known))
                continue;
            tried_.push_back(spec);
            const int index = count_.load(std::memory_order_relaxed);
            auto line = std::make_shared<Line>(spec, index, uid_, options_, gate_, failover_);
            Status status = line->open();
            if (status.ok() && index == kMaxRails)
                status = fail(Fault::too_many_rails, "a process has at most {} rails; FLX_RAILS says which", kMaxRails);
            const std::lock_guard guard(gate_);
            if (!status.ok()) {
                left_out_.emplace_back(spec.name, status.words());
                continue;
            }
            failover_.add(*line);
            lines_[index] = std::move(line);
            count_.store(index + 1, std::memory_order_release);
        }
    }

    [[nodiscard]] int count() const override { return count_.load(std::memory_order_acquire); }
    [[nodiscard]] const RailSpec &spec(int rail) const override { return lines_[rail]->spec(); }

    [[nodiscard]] std::vector<std::pair<std::string, std::string>> problems() const override {
        const std::lock_guard guard(gate_);
        auto list = left_out_;
        for (const auto &line : lines())
            if (const std::string problem = line->problem(); !problem.empty())
                list.emplace_back(line->spec().name, problem);
        return list;
    }

    [[nodiscard]] std::string address(int rail) const override {
        const std::lock_guard guard(gate_);
        return lines_[rail]->address();
    }

    Status connect(int rail, int process, uint64_t peer_uid, const std::string &address) override {
        const std::lock_guard guard(gate_);
        return lines_[rail]->connect(process, peer_uid, address);
    }

    [[nodiscard]] bool knows(int rail, int process) const {
        const std::lock_guard guard(gate_);
        return lines_[rail]->target(process) != nullptr;
    }

    [[nodiscard]] size_t connections_to_make() const {
        const std::lock_guard guard(gate_);
        size_t count = 0;
        for (const auto &line : lines())
            for (const auto &target : line->targets())
                if (target != nullptr && line->spec().tls == "tcp" && target->peer->endpoint == nullptr)
                    count += kConnections;
        return count;
    }

    void name(int process, const std::string &text) override {
        const std::lock_guard guard(gate_);
        failover_.name(process, text);
    }

    std::unique_ptr<Link> link(int rail, uint32_t comm_id, std::vector<int> processes, double deadline_s) override {
        return std::make_unique<RailLink>(lines_[rail], comm_id, processes, deadline_s);
    }

    bool progress() override {
        const std::lock_guard guard(gate_);
        bool moved = false;
        const bool all = failover_.restless() || is_time_for_all();
        for (const auto &line : lines())
            if (all || line->busy())
                moved |= line->progress(true);
        failover_.turn();
        return moved;
    }

    /// Lines on which this process expects nothing have something now and then: a peer that is ahead has sent it, and
    /// takes the line for lost where nobody reads it for long.
    bool is_time_for_all() {
        constexpr int64_t kGapNs = 10 * kMs;
        const int64_t now = now_ns();
        if (now - read_all_ns_ < kGapNs)
            return false;
        read_all_ns_ = now;
        return true;
    }

    bool doze(int64_t most_ns) override {
        // Nobody is inside a worker while this sleeps; what another thread takes meanwhile only ends the sleep.
        thread_local std::vector<int> events;
        thread_local std::vector<pollfd> polled;
        {
            const std::lock_guard guard(gate_);
            events.clear();
            bool idle = true;
            for (const auto &line : lines()) {
                if (!line->tells())
                    return false;
                idle = line->arm(events) && idle;
            }
            if (!idle)
                most_ns = 0;
        }
        polled.clear();
        for (const int event : events)
            polled.push_back({event, POLLIN, 0});
        constexpr int64_t kSecond = 1'000'000'000;
        const timespec time{most_ns / kSecond, most_ns % kSecond};
        if (most_ns > 0)
            ppoll(polled.data(), polled.size(), &time, nullptr);
        const std::lock_guard guard(gate_);
        for (const auto &line : lines())
            line->progress(false);
        return true;
    }

    [[nodiscard]] bool flushed() const override {
        const std::lock_guard guard(gate_);
        return failover_.relay().flushed() &&
               std::all_of(lines().begin(), lines().end(), [](const auto &line) { return line->flushed(); });
    }

    [[nodiscard]] bool settled() const override {
        const std::lock_guard guard(gate_);
        return failover_.relay().flushed() &&
               std::all_of(lines().begin(), lines().end(), [](const auto &line) { return line->settled(); });
    }

    void enter() override { gate_.enter(); }
    void leave() override { gate_.leave(); }

    [[nodiscard]] bool restless() override {
        const std::lock_guard guard(gate_);
        return is_restless();
    }

    int guard() override {
        if (!gate_.enter_as_guard())
            return kGuardNapMs;
        for (const auto &line : lines())
            line->progress(true);
        failover_.guard_turn();
        const int nap_ms = failover_.relay().hurried() ? 1 : is_restless() ? kGuardNapMs : 0;
        gate_.leave_as_guard();
        return nap_ms;
    }

    [[nodiscard]] FailoverCounters failover_counters() override {
        const std::lock_guard guard(gate_);
        return failover_.counters();
    }

    void drop_arrivals(int rail, bool drop) override {
        const std::lock_guard guard(gate_);
        lines_[rail]->drop_arrivals(drop);
    }

  private:
    static constexpr int kMaxRails = 64;
    static constexpr int kGuardNapMs = 50;

    [[nodiscard]] std::span<const std::shared_ptr<Line>> lines() const { return {lines_.data(), size_t(count())}; }
    [[nodiscard]] bool is_restless() const {
        return failover_.restless() || std::any_of(lines().begin(), lines().end(), [](const auto &line) {
                   return line->unacknowledged() || !line->flushed();
               });
    }

    const uint64_t uid_;
    const RailOptions options_;
    mutable Gate gate_;
    Failover failover_;
    int64_t read_all_ns_ = 0;
    // Written beyond count_ only, so that other threads may walk over the others.
    std::array<std::shared_ptr<Line>, kMaxRails> lines_;
    std::atomic<int> count_{0};
    std::vector<RailSpec> tried_;
    std::vector<std::pair<std::string, std::string>> left_out_;
};

}  // namespace

std::unique_ptr<Rails> Rails::open(std::span<const RailSpec> specs, uint64_t uid, const RailOptions &options) {
    auto rails = std::make_unique<RailsOverUcx>(uid, options);
    rails->add(specs);
    return rails;
}

size_t connections_to_make(const Rails &rails) {
    return static_cast<const RailsOverUcx &>(rails).connections_to_make();
}

bool knows(const Rails &rails, int rail, int process) {
    return static_cast<const RailsOverUcx &>(rails).knows(rail, process);
}

void part(Link &link, int peer) {
    static_cast<RailLink &>(link).part(peer);
}

std::string version() {
    const char *text = ucp_get_version_string();
    ucp_context_attr_t attributes{};
    attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
    bool cuda = false;
    // Memory types are those of a context; one that sees this process alone is the cheapest to ask.
    Context probe;
    if (probe.open({"self", "memory", "self", false}, {}).ok() &&
        ucp_context_query(probe.context, &attributes) == UCS_OK)
        cuda = (attributes.memory_types >> UCS_MEMORY_TYPE_CUDA & 1) != 0;
    return fmt::format("UCX {} ({} CUDA memory)", text, cuda ? "with" : "without");
}

}  // namespace flx::ucx
