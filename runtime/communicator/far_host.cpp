#include "runtime/communicator/far_host.h"

#include <algorithm>

#include "runtime/base/log.h"

namespace flx {

/// MPI may be for the program's own thread alone: while another one waits, its traffic is left to it.
class FarCommunicator::QuietBootstrap final : public Bootstrap {
  public:
    explicit QuietBootstrap(std::unique_ptr<Bootstrap> inner) : inner_(std::move(inner)) {}

    [[nodiscard]] int rank() const override { return inner_->rank(); }
    [[nodiscard]] int size() const override { return inner_->size(); }
    Status allgather(const void *mine, size_t bytes, void *all) override { return inner_->allgather(mine, bytes, all); }
    Status barrier() override { return inner_->barrier(); }
    Status meet(const std::function<Status()> &meanwhile) override { return inner_->meet(meanwhile); }
    void progress() override {
        if (!quiet_)
            inner_->progress();
    }
    [[nodiscard]] int ranks_on_host() const override { return inner_->ranks_on_host(); }
    [[nodiscard]] int ranks_of_program() const override { return inner_->ranks_of_program(); }
    Status split(int color, int key, std::unique_ptr<Bootstrap> &result) override {
        return inner_->split(color, key, result);
    }
    Status dup(std::unique_ptr<Bootstrap> &result) override { return inner_->dup(result); }

    /// Not while another thread waits.
    void set_quiet(bool quiet) { quiet_ = quiet; }

  private:
    std::unique_ptr<Bootstrap> inner_;
    bool quiet_ = false;
};

Status FarCommunicator::make(Communicator &parent, std::unique_ptr<Bootstrap> inner, bool same_ranks, Circle &circle) {
    auto bootstrap = std::make_unique<QuietBootstrap>(std::move(inner));
    std::shared_ptr<Process> process;
    Config config = parent.config();
    constexpr std::string_view kOrigin = "what goes between GPUs";
    Status status = parent.process()->beside(process);
    if (status.ok())
        status = config.set("FLX_PROGRESS_THREAD", "off", kOrigin);
    if (status.ok() && !same_ranks)  // rules were not written for a part of the ranks
        status = config.set("FLX_ALGORITHM", config.text("FLX_ALGORITHM"), kOrigin);
    FLX_TRY(agree(*bootstrap, std::move(status)));
    circle.bootstrap = bootstrap.get();
    return Communicator::make(std::move(process), std::move(bootstrap), std::move(config),
                              same_ranks ? &parent : nullptr, circle.comm, Communicator::Gpus::never);
}

Status FarCommunicator::make(Communicator &parent, cuda::Health &health, const cuda::Tiers &tiers,
                             std::unique_ptr<cuda::FarHost> &result) {
    std::unique_ptr<Bootstrap> inner;
    FLX_TRY(parent.bootstrap().dup(inner));
    std::unique_ptr<FarCommunicator> made(new FarCommunicator(health));
    FLX_TRY(make(parent, std::move(inner), true, made->all_));
    if (tiers.near > 1) {
        FLX_TRY(parent.bootstrap().split(tiers.place, tiers.host, inner));
        Status status = make(parent, std::move(inner), false, made->across_);
        FLX_TRY(agree(parent.bootstrap(), std::move(status)));
        std::vector<int> names;
        for (int host = 0; host < tiers.hosts; ++host)
            names.push_back(host * tiers.near + tiers.place);
        made->across_.comm->name_ranks(std::move(names));
    }
    for (Circle *circle : {&made->all_, &made->across_}) {
        if (circle->comm == nullptr)
            continue;
        circle->bootstrap->set_quiet(true);
        circle->waiter.reset(new Waiter(circle->comm->waiter()));  // NOLINT(modernize-make-unique): it cannot be moved
    }
    result = std::move(made);
    return {};
}

FarCommunicator::~FarCommunicator() {
    all_.waiter.reset();  // it looks at the communicator
    across_.waiter.reset();
}

Status FarCommunicator::begin(Circle &circle, const Operation &given, void *&ticket) {
    Call call;
    call.operation = given;
    Pending *pending = nullptr;
    FLX_TRY(circle.comm->issue(call, pending));
    ticket = pending;
    if (pending != nullptr)
        circle.under_way.push_back(pending);
    return {};
}

Status FarCommunicator::begin(const Operation &call, void *&ticket) {
    return begin(all_, call, ticket);
}

Status FarCommunicator::begin_across(const Operation &call, void *&ticket) {
    return begin(across_, call, ticket);
}

Status FarCommunicator::begin(const cuda::Message &message, void *&ticket) {
    Pending *pending = nullptr;
    FLX_TRY(all_.comm->issue_message(message.sends, message.memory, message.bytes, message.peer, pending));
    ticket = pending;
    if (pending != nullptr)
        all_.under_way.push_back(pending);
    return {};
}

FarCommunicator::Circle &FarCommunicator::circle_of(const Pending *pending) {
    const auto &list = across_.under_way;
    return std::find(list.begin(), list.end(), pending) != list.end() ? across_ : all_;
}

Status FarCommunicator::look(void *ticket, bool &done) {
    Pending &pending = *static_cast<Pending *>(ticket);
    Circle &circle = circle_of(&pending);
    bool moved = false;
    done = circle.comm->completed(pending, moved);
    if (moved)
        circle.waiter->moved();
    if (!done)
        return {};
    Status status = pending.status;
    std::erase(circle.under_way, &pending);
    circle.comm->recycle(pending);
    return status;
}

void FarCommunicator::moved() {
    all_.waiter->moved();
    if (across_.waiter != nullptr)
        across_.waiter->moved();
}

/// Where both have something under way they take turns, as a wait of the program's for several communicators does.
Status FarCommunicator::pause() {
    const bool across = !across_.under_way.empty() && (all_.under_way.empty() || ++pauses_ % 2 == 0);
    Circle &circle = across ? across_ : all_;
    circle.comm->pause(*circle.waiter);
    return {};
}

Status FarCommunicator::watch() {
    FLX_TRY(told());
    return health_.look(-1, false);
}

Status FarCommunicator::told() const {
    Status why;
    if (!all_.comm->told_broken(why) && across_.comm != nullptr)
        (void)across_.comm->told_broken(why);
    return why;
}

void FarCommunicator::give_up(const Status &why) {
    all_.comm->give_up(why);
    if (across_.comm != nullptr)
        across_.comm->give_up(why);
}

void FarCommunicator::close() {
    for (Circle *circle : {&across_, &all_}) {
        if (circle->comm == nullptr)
            continue;
        circle->bootstrap->set_quiet(false);
        circle->waiter.reset();
        circle->comm->close();
    }
}

std::vector<std::string> FarCommunicator::report() const {
    std::vector<std::string> lines;
    for (size_t l = 0; l < all_.comm->links().size(); ++l) {
        const LinkSlot &slot = all_.comm->links()[l];
        if (slot.link == nullptr)
            continue;
        uint64_t bytes = all_.comm->counters(static_cast<int>(l)).bytes;
        for (size_t other = 0; across_.comm != nullptr && other < across_.comm->links().size(); ++other)
            if (across_.comm->links()[other].link != nullptr && across_.comm->links()[other].name == slot.name)
                bytes += across_.comm->counters(static_cast<int>(other)).bytes;
        lines.push_back(fmt::format("{:<12} {:<4}  {} bytes sent for GPUs{}{}", slot.name,
                                    slot.why_off.empty() ? "on" : "off", bytes, slot.why_off.empty() ? "" : "  ",
                                    slot.why_off));
    }
    return lines;
}

}  // namespace flx
