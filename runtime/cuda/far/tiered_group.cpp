#include "runtime/cuda/far/tiered_group.h"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/elements/dtype.h"

namespace flx::cuda {
namespace {

/// More makes fewer pieces, of which each is copied to the host before anything of it goes to another one.
constexpr uint64_t kMostStaging = 32U << 20;
/// FLX_CUDA_STAGING's least, which is left for the ranks of a host.
constexpr uint64_t kLeastWindow = 8U << 20;

}  // namespace

Status Group::make_far(Bootstrap &bootstrap, const Config &config, uint64_t process, const Tiers &tiers,
                       const std::string &why_flat, std::unique_ptr<FarHost> host, Health &health,
                       std::unique_ptr<Group> &result) {
    auto made = std::make_unique<TieredGroup>(bootstrap, process, tiers, std::move(host), health);
    FLX_TRY(made->make(config, why_flat));
    result = std::move(made);
    return {};
}

TieredGroup::TieredGroup(Bootstrap &bootstrap, uint64_t process, const Tiers &tiers, std::unique_ptr<FarHost> host,
                         Health &health)
    : bootstrap_(bootstrap),
      health_(health),
      process_(process),
      tiers_(tiers),
      near_health_(*this),
      far_(bootstrap, std::move(host), health, tiers) {}

/// The near group's word that its kernels shall give up: its streams go on when this returns.
Status TieredGroup::NearHealth::look(int awaited, bool said) {
    const Tiers &tiers = group_.tiers_;
    Status status = group_.far_.failure();
    if (status.ok())
        status =
            group_.health_.look(awaited < 0 || awaited >= tiers.near ? -1 : tiers.host * tiers.near + awaited, said);
    if (!status.ok())
        group_.far_.give_up(status);
    return status;
}

Status TieredGroup::make(const Config &config, const std::string &why_flat) {
    FLX_TRY(far_.make(config));
    why_flat_ = why_flat;
    if (!why_flat_.empty())
        return {};
    FLX_TRY(bootstrap_.split(tiers_.host, tiers_.place, host_));
    const Status status = agree(bootstrap_, make_near(config));
    if (!status.ok()) {
        why_flat_ = status.words();
        free_near();
        return {};
    }
    FLX_TRY(find_shared_gpus());
    least_bytes_ = config.text("FLX_CUDA_TIERS") == "on" ? 0 : least_for_tiers(shared_);
    return {};
}

/// Collective.
Status TieredGroup::find_shared_gpus() {
    cudaDeviceProp properties{};
    FLX_TRY(agree(bootstrap_, check(cudaGetDeviceProperties(&properties, device_), "cudaGetDeviceProperties")));
    std::vector<cudaUUID_t> all(static_cast<size_t>(tiers_.ranks()));
    FLX_TRY(bootstrap_.allgather(&properties.uuid, sizeof properties.uuid, all.data()));
    std::set<std::string> different;
    for (const cudaUUID_t &uuid : all)
        different.emplace(uuid.bytes, sizeof uuid.bytes);
    shared_ = different.size() != all.size();
    return {};
}

/// Collective among the ranks of this host.
Status TieredGroup::make_near(const Config &config) {
    Config own = config;
    const uint64_t budget = config.size("FLX_CUDA_STAGING");
    staging_bytes_ = std::min(kMostStaging, budget / 8);
    Status status = [&]() -> Status {
        if (staging_bytes_ < least_tier_staging(tiers_) || budget - staging_bytes_ < kLeastWindow)
            return fail(Fault::staging_too_small,
                        "FLX_CUDA_STAGING is {} bytes, too little for two tiers of {} ranks; it must be larger, or "
                        "FLX_CUDA_TIERS off",
                        budget, tiers_.ranks());
        // A share over PCIe would take what goes to other hosts.
        FLX_TRY(own.set("FLX_CUDA_PINNED", "0", "what goes between hosts"));
        FLX_TRY(own.set("FLX_PARTITION", "", "what goes between hosts"));
        FLX_TRY(own.set("FLX_CUDA_STAGING", fmt::format("{}", budget - staging_bytes_), "what goes between hosts"));
        FLX_TRY_CUDA(cudaGetDevice(&device_));
        void *memory = nullptr;
        FLX_TRY_CUDA(cudaMalloc(&memory, staging_bytes_));
        staging_ = static_cast<char *>(memory);
        return {};
    }();
    FLX_TRY(agree(*host_, std::move(status)));
    near_ = std::make_unique<DeviceGroup>(*host_, process_, near_health_);
    return near_->make(own);
}

/// Streams are let go on both ways before either is waited for.
TieredGroup::~TieredGroup() {
    if (near_ != nullptr && far_.busy())
        far_.give_up(fail(Fault::comm_ended, "the communicator was freed while GPUs used it"));
    free_near();
}

void TieredGroup::abandon() {
    if (near_ != nullptr)
        near_->abandon();
    if (far_.busy())
        far_.give_up(fail(Fault::comm_ended, "the communicator was given up while GPUs used it"));
}

void TieredGroup::free_near() {
    if (near_ != nullptr) {
        near_->retire();
        (void)near_->settle().ok();
        Group::end(std::move(near_));
    }
    if (staging_ == nullptr)
        return;
    const CurrentDevice current(device_);
    cudaFree(std::exchange(staging_, nullptr));
}

void TieredGroup::close() {
    far_.drain();
    if (near_ != nullptr && failure().ok())
        near_->close();
    else
        free_near();  // its watcher looks at the far way
    far_.close();
}

Status TieredGroup::failure() const {
    FLX_TRY(far_.failure());
    if (near_ != nullptr && near_->failed())
        return fail(Fault::comm_given_up, "GPUs of this host gave up, as a rank of it had an error before");
    return {};
}

bool TieredGroup::failed() const {
    return !failure().ok();
}

bool TieredGroup::in_tiers(const Operation &call) const {
    return near_ != nullptr && call.count != 0 && call.collective != Collective::alltoall &&
           call.count * size_of(call.dtype) >= least_bytes_;
}

const algorithms::Composition &TieredGroup::stages_of(const Operation &call) {
    const std::pair key(call.collective, call.root);
    const auto kept = stages_.find(key);
    return kept != stages_.end() ? kept->second
                                 : stages_.emplace(key, tier_stages(call.collective, call.root, tiers_)).first->second;
}

Status TieredGroup::put(const TierStep &step, CUstream_st *stream) {
    switch (step.where) {
        case TierStep::Where::near:
            return near_->enqueue(step.call, stream, {});
        case TierStep::Where::across:
            return far_.enqueue_across(step.call, step.apart, stream);
        case TierStep::Where::pack:
            break;
    }
    const CurrentDevice current(device_);
    return check(cudaMemcpy2DAsync(step.to, step.bytes, step.from, step.pitch, step.bytes, step.rows,
                                   cudaMemcpyDeviceToDevice, stream),
                 "a copy of blocks");
}

Status TieredGroup::enqueue(const Operation &call, CUstream_st *stream, std::span<const Showing> /*shown*/) {
    FLX_TRY(failure());
    if (!in_tiers(call))
        return far_.enqueue(call, stream);
    FLX_TRY(far_.ready(stream));
    FLX_TRY(far_.compare(signature_of(call)));
    tier_steps(call, stages_of(call), tiers_, staging_, staging_bytes_, steps_);
    for (const TierStep &step : steps_)
        FLX_TRY(put(step, stream));
    return {};
}

Status TieredGroup::run(const Operation &call) {
    FLX_TRY(enqueue(call, far_.stream(), {}));
    return finish();
}

Status TieredGroup::post(std::span<const Message> messages, CUstream_st *stream) {
    FLX_TRY(failure());
    return far_.post(messages, stream);
}

Status TieredGroup::finish() {
    FLX_TRY(far_.finish());
    return failure();
}

const char *TieredGroup::way(const Operation &call) const {
    return call.count == 0 ? "nothing" : in_tiers(call) ? "tiers" : "rails";
}

Status TieredGroup::add_memory(void *memory, size_t bytes) {
    FLX_TRY(far_.add_memory(memory, bytes));
    if (near_ == nullptr)
        return {};
    const Status near = near_->add_memory(memory, bytes);
    Status all = agree(bootstrap_, near);
    if (all.ok())
        return {};
    if (near.ok())
        (void)near_->remove_memory(memory).ok();  // of ranks that all have it
    (void)far_.remove_memory(memory).ok();
    return all;
}

Status TieredGroup::remove_memory(void *memory) {
    FLX_TRY(far_.remove_memory(memory));
    return near_ == nullptr ? Status() : near_->remove_memory(memory);
}

std::vector<GpuLink> TieredGroup::links() const {
    std::vector<GpuLink> links = far_.links();
    if (near_ != nullptr)
        links[0] = near_->links()[0];
    else
        links[0].why_off = fmt::format("ranks are on several hosts; {}", why_flat_);
    return links;
}

std::vector<std::string> TieredGroup::report() const {
    if (near_ == nullptr)
        return far_.report(fmt::format("GPUs of one host do not use NVLink for it: {}", why_flat_), links());
    std::string sizes;
    if (least_bytes_ != 0)
        sizes = fmt::format(" from {} MiB on{}", least_bytes_ >> 20,
                            shared_ ? " (ranks share GPUs, where their kernels take turns)" : "");
    std::vector<std::string> lines = far_.report(
        fmt::format("in two tiers{}, all but alltoall and messages: NVLink among the {} ranks of a host, the above "
                    "among the {} hosts; {:.1f} MiB of staging",
                    sizes, tiers_.near, tiers_.hosts, staging_bytes_ / 1048576.0),
        links());
    const std::vector<std::string> near = near_->report();
    for (size_t line = 1; line < near.size(); ++line)  // the first names the device
        if (!near[line].starts_with(kNvlink) && !near[line].starts_with(kPcie))
            lines.push_back("within the host: " + near[line]);
    return lines;
}

}  // namespace flx::cuda
