#include "rails.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "rail_link.h"

namespace flx::ucx {

namespace {

class RailsOverUcx final : public Rails {
  public:
    RailsOverUcx(uint64_t uid, const RailOptions &options) : uid_(uid), options_(options) {}

    void add(std::span<const RailSpec> specs) override {
        for (const RailSpec &spec : specs) {
            const auto known = [&](const RailSpec &other) {
                return other.name == spec.name && other.device == spec.device && other.tls == spec.tls;
            };
            if (std::any_of(tried_.begin(), tried_.end(), known))
                continue;
            tried_.push_back(spec);
            const int index = count_.load(std::memory_order_relaxed);
            auto rail = std::make_shared<Rail>(spec, uid_, options_);
            Status status = rail->open();
            if (status.ok() && index == kMaxRails)
                status = fail(FLX_ERR_LINK, "a process has at most {} rails", kMaxRails);
            if (!status.ok()) {
                const std::lock_guard guard(left_out_mutex_);
                left_out_.emplace_back(spec.name, status.sentence());
                continue;
            }
            rails_[index] = std::move(rail);
            count_.store(index + 1, std::memory_order_release);
        }
    }

    [[nodiscard]] int count() const override { return count_.load(std::memory_order_acquire); }
    [[nodiscard]] const RailSpec &spec(int rail) const override { return rails_[rail]->spec(); }

    [[nodiscard]] std::vector<std::pair<std::string, std::string>> problems() const override {
        std::unique_lock guard(left_out_mutex_);
        auto list = left_out_;
        guard.unlock();
        for (const auto &rail : rails()) {
            auto lock = rail->lock();
            if (!rail->problem().empty())
                list.emplace_back(rail->spec().name, rail->problem());
        }
        return list;
    }

    [[nodiscard]] std::string address(int rail) const override { return rails_[rail]->address(); }

    Status connect(int rail, int process, uint64_t peer_uid, const std::string &address) override {
        auto lock = rails_[rail]->lock();
        return rails_[rail]->connect(process, peer_uid, address);
    }

    std::unique_ptr<Link> link(int rail, uint32_t comm_id, std::vector<int> processes) override {
        return std::make_unique<RailLink>(rails_[rail], comm_id, processes);
    }

    bool progress() override {
        bool moved = false;
        for (const auto &rail : rails()) {
            auto lock = rail->lock();
            if (rail->busy())
                moved |= rail->progress();
        }
        return moved;
    }

    [[nodiscard]] bool flushed() const override {
        for (const auto &rail : rails()) {
            auto lock = rail->lock();
            if (!rail->flushed())
                return false;
        }
        return true;
    }

  private:
    static constexpr int kMaxRails = 64;

    [[nodiscard]] std::span<const std::shared_ptr<Rail>> rails() const { return {rails_.data(), size_t(count())}; }

    const uint64_t uid_;
    const RailOptions options_;
    // Written beyond count_ only, so that other threads may walk over the others.
    std::array<std::shared_ptr<Rail>, kMaxRails> rails_;
    std::atomic<int> count_{0};
    std::vector<RailSpec> tried_;
    mutable std::mutex left_out_mutex_;
    std::vector<std::pair<std::string, std::string>> left_out_;
};

}  // namespace

std::unique_ptr<Rails> Rails::open(std::span<const RailSpec> specs, uint64_t uid, const RailOptions &options) {
    auto rails = std::make_unique<RailsOverUcx>(uid, options);
    rails->add(specs);
    return rails;
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
