#include "apps/flx_lab/load_measure.h"

#include <fmt/format.h>

#include <array>

#include "apps/bench/timing.h"
#include "apps/common/clock.h"
#include "apps/common/ranks.h"
#include "apps/flx_lab/copies.h"

namespace flx::bench::lab {
namespace {

using apps::now;

class Measurement final : public LoadMeasurer {
  public:
    Measurement(DeviceCalls &calls, flx_comm_t comm, MPI_Comm mpi_comm, LinkCounters &links,
                std::unique_ptr<Copies> copies)
        : calls_(calls), comm_(comm), mpi_comm_(mpi_comm), links_(links), copies_(std::move(copies)) {}

    UnderLoad measure(const Shape &shape) override {
        calls_.take(shape);
        UnderLoad result;
        result.bytes = shape.bytes;
        const Job &job = calls_.job();
        result.bus_bytes = static_cast<double>(shape.bytes) * bus_factor(job.kind, job.ranks);
        result.wrong = calls_.checked(comm_);
        measure_static(result);
        for (int warm = 0; warm < kLoadCalls; ++warm)
            one_call(comm_);
        for (size_t phase = 0; phase < result.phases.size(); ++phase) {
            if (phase == 1)
                copies_->start();
            if (phase == 2)
                copies_->stop();
            for (int i = 0; i < kLoadCalls; ++i)
                result.phases[phase].push_back(one_call(comm_));
        }
        result.copies = copies_->rate();
        result.wrong += calls_.checked(comm_);
        return result;
    }

  private:
    /// A call by itself, as a program waits for it that needs its result.
    LoadCall one_call(flx_comm_t comm) {
        Carried carried(links_, mpi_comm_);
        LoadCall call;
        call.seconds = calls_.slowest(carried.in([&] {
            MPI_Barrier(mpi_comm_);
            const double begin = now();
            calls_.put(comm);
            calls_.wait();
            return now() - begin;
        }));
        const std::vector<double> shares = carried.shares();
        for (size_t link = 0; link < shares.size(); ++link)
            call.share += links_.names()[link] == "pcie" ? shares[link] : 0;
        return call;
    }

    /// Communicators with shares that stay, each idle and loaded.
    void measure_static(UnderLoad &result) {
        constexpr std::array<double, 9> kShares = {0, .01, .02, .03, .04, .05, .06, .08, .1};
        for (const double forced : kShares) {
            const std::string partition = fmt::format("nvlink:{},pcie:{}", 1 - forced, forced);
            flx_config_t config = FLX_CONFIG_INIT;
            config.partition = partition.c_str();
            flx_comm_t comm = nullptr;
            if (flx_comm_create(mpi_comm_, &config, &comm) != FLX_SUCCESS)
                calls_.fail(flx_last_error());
            if (const std::string why = calls_.admit(comm); !why.empty())
                calls_.fail(why);
            StaticShare &share = result.statics.emplace_back();
            share.forced = forced;
            for (double *seconds : {&share.idle, &share.loaded}) {
                if (seconds == &share.loaded)
                    copies_->start();
                std::vector<double> calls;
                for (int i = 0; i < kStaticCalls + 2; ++i)
                    calls.push_back(one_call(comm).seconds);
                *seconds = summarise({calls.begin() + 2, calls.end()}).median;
            }
            copies_->stop();
            if (flx_comm_free(&comm) != FLX_SUCCESS)
                calls_.fail(flx_last_error());
        }
    }

    DeviceCalls &calls_;
    flx_comm_t comm_;
    MPI_Comm mpi_comm_;
    LinkCounters &links_;
    std::unique_ptr<Copies> copies_;
};

}  // namespace

std::unique_ptr<LoadMeasurer> LoadMeasurer::make(const Options &options, DeviceCalls &calls, flx_comm_t comm,
                                                 MPI_Comm mpi_comm, LinkCounters &links, std::string &why) {
    auto copies = Copies::make(options.queued_copies, why);
    why = apps::agreed(copies ? "" : why);
    return why.empty() ? std::make_unique<Measurement>(calls, comm, mpi_comm, links, std::move(copies)) : nullptr;
}

}  // namespace flx::bench::lab
