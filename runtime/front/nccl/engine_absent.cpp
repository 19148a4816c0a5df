// FLX without CUDA: every call goes to NCCL.
#include "runtime/front/nccl/engine.h"

namespace flx::nccl {
namespace {

class Absent final : public Engine {
  public:
    std::string why_none() override { return "FLX was built without CUDA"; }
    Status make(std::unique_ptr<Bootstrap> /*bootstrap*/, const Config & /*config*/, int /*device*/,
                std::unique_ptr<Lane> & /*result*/) override {
        return none();
    }
    Status make_event(int /*device*/, Event & /*event*/) override { return none(); }
    void free_event(Event /*event*/) override {}
    Status make_stream(int /*device*/, cudaStream_t & /*stream*/) override { return none(); }
    void free_stream(int /*device*/, cudaStream_t /*stream*/) override {}
    Status record(Event /*event*/, cudaStream_t /*stream*/, bool /*external*/) override { return none(); }
    Status wait(Event /*event*/, cudaStream_t /*stream*/, bool /*external*/) override { return none(); }
    bool ended(Event /*event*/) override { return true; }
    Status look_at(cudaStream_t /*stream*/, Stream & /*found*/) override { return none(); }
    bool has_work(cudaStream_t /*stream*/) override { return false; }
    Status open_bench(int /*device*/, size_t /*bytes*/, Bench & /*bench*/) override { return none(); }
    void close_bench(int /*device*/, Bench & /*bench*/) override {}
    Status time(const Bench & /*bench*/, int /*device*/, int /*warm*/, int /*turns*/,
                const std::function<Status()> & /*call*/, double & /*us*/) override {
        return none();
    }
    void stay_on(int /*device*/) override {}
    void on_device(int /*device*/, const std::function<void()> &body) override { body(); }

  private:
    Status none() { return fail(Fault::no_gpu, "{}", why_none()); }
};

}  // namespace

Engine &engine() {
    static auto *const absent = new Absent;
    return *absent;
}

}  // namespace flx::nccl
