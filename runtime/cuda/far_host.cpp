#include "far_host.h"

namespace flx {

using algorithms::Collective;

namespace {

Collective collective_of(cuda::Kind kind) {
    switch (kind) {
        case cuda::Kind::allreduce:
            return Collective::allreduce;
        case cuda::Kind::reduce_scatter_block:
            return Collective::reduce_scatter_block;
        case cuda::Kind::allgather:
            return Collective::allgather;
        case cuda::Kind::reduce:
            return Collective::reduce;
        case cuda::Kind::alltoall:
            return Collective::alltoall;
        case cuda::Kind::bcast:
            break;
    }
    return Collective::bcast;
}

}  // namespace

/// MPI may be for the program's own thread alone: while another one waits, its traffic is left to it.
class FarCommunicator::QuietBootstrap final : public Bootstrap {
  public:
    explicit QuietBootstrap(std::unique_ptr<Bootstrap> inner) : inner_(std::move(inner)) {}

    [[nodiscard]] int rank() const override { return inner_->rank(); }
    [[nodiscard]] int size() const override { return inner_->size(); }
    Status allgather(const void *mine, size_t bytes, void *all) override { return inner_->allgather(mine, bytes, all); }
    Status barrier() override { return inner_->barrier(); }
    Status meet(const std::function<void()> &meanwhile) override { return inner_->meet(meanwhile); }
    void progress() override {
        if (!quiet_)
            inner_->progress();
    }
    [[nodiscard]] int ranks_on_host() const override { return inner_->ranks_on_host(); }
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

Status FarCommunicator::make(Communicator &parent, cuda::Health &health, std::unique_ptr<cuda::FarHost> &result) {
    std::unique_ptr<Bootstrap> inner;
    FLX_TRY(parent.bootstrap().dup(inner));
    auto bootstrap = std::make_unique<QuietBootstrap>(std::move(inner));
    std::shared_ptr<Process> process;
    Config config = parent.config();
    Status status = parent.process()->beside(process);
    if (status.ok())
        status = config.set("FLX_PROGRESS_THREAD", "off", "what goes between GPUs");
    FLX_TRY(agree(*bootstrap, std::move(status)));
    std::unique_ptr<FarCommunicator> made(new FarCommunicator(health));
    made->bootstrap_ = bootstrap.get();
    FLX_TRY(
        Communicator::make(std::move(process), std::move(bootstrap), std::move(config), &parent, made->comm_, false));
    made->bootstrap_->set_quiet(true);
    made->waiter_.reset(new Waiter(made->comm_->waiter()));  // NOLINT(modernize-make-unique): it cannot be moved
    result = std::move(made);
    return {};
}

FarCommunicator::~FarCommunicator() {
    waiter_.reset();  // it looks at the communicator
}

Status FarCommunicator::begin(const cuda::Call &given, void *&ticket) {
    Call call;
    Operation &operation = call.operation;
    operation.collective = collective_of(given.kind);
    operation.in = given.in;
    operation.out = given.out;
    operation.count = given.count;
    operation.dtype = given.dtype;
    operation.op = given.op;
    operation.root = given.root;
    Pending *pending = nullptr;
    FLX_TRY(comm_->issue(call, pending));
    ticket = pending;
    return {};
}

Status FarCommunicator::begin(const cuda::Message &message, void *&ticket) {
    Pending *pending = nullptr;
    FLX_TRY(comm_->issue_message(message.sends, message.memory, message.bytes, message.peer, pending));
    ticket = pending;
    return {};
}

Status FarCommunicator::look(void *ticket, bool &done) {
    Pending &pending = *static_cast<Pending *>(ticket);
    bool moved = false;
    done = comm_->completed(pending, moved);
    if (moved)
        waiter_->moved();
    if (!done)
        return {};
    Status status = pending.status;
    comm_->recycle(pending);
    return status;
}

Status FarCommunicator::pause() {
    comm_->pause(*waiter_);
    return {};
}

void FarCommunicator::close() {
    bootstrap_->set_quiet(false);
    waiter_.reset();
    comm_->close();
}

std::vector<std::string> FarCommunicator::report() const {
    std::vector<std::string> lines;
    for (size_t l = 0; l < comm_->links().size(); ++l) {
        const LinkSlot &slot = comm_->links()[l];
        if (slot.link != nullptr)
            lines.push_back(fmt::format("{:<12} {:<4}  {} bytes sent for GPUs{}{}", slot.name,
                                        slot.why_off.empty() ? "on" : "off", comm_->counters(static_cast<int>(l)).bytes,
                                        slot.why_off.empty() ? "" : "  ", slot.why_off));
    }
    return lines;
}

}  // namespace flx
