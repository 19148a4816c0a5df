#include "apps/flx_lab/device_beside.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "apps/flx_lab/beside.h"

namespace flx::bench::lab {
namespace {

/// One before the first piece, one after each.
class Events {
  public:
    explicit Events(int pieces) : events_(pieces + 1) {
        for (cudaEvent_t &event : events_)
            note(cudaEventCreate(&event));
    }
    ~Events() {
        for (cudaEvent_t event : events_)
            cudaEventDestroy(event);
    }
    Events(const Events &) = delete;
    Events &operator=(const Events &) = delete;

    void put(const Work &work) {
        note(cudaEventRecord(events_[0], work.stream));
        for (int i = 0; i < work.pieces; ++i) {
            work.put();
            note(cudaEventRecord(events_[i + 1], work.stream));
        }
    }
    /// Seconds since `origin`.
    std::vector<double> marks(cudaEvent_t origin) {
        std::vector<double> marks;
        for (cudaEvent_t event : events_) {
            float ms = 0;
            note(cudaEventElapsedTime(&ms, origin, event));
            marks.push_back(1e-3 * ms);
        }
        return marks;
    }
    [[nodiscard]] cudaEvent_t first() const { return events_[0]; }
    [[nodiscard]] int error() const { return error_; }

  private:
    void note(cudaError_t error) { error_ = error_ == 0 ? error : error_; }

    std::vector<cudaEvent_t> events_;
    int error_ = 0;
};

}  // namespace

int run_together(const Work &one, const Work &other, Pace &pace) {
    Events of_one(one.pieces);
    Events of_other(other.pieces);
    of_other.put(other);
    of_one.put(one);
    int error = cudaStreamSynchronize(one.stream);
    if (error == 0)
        error = cudaStreamSynchronize(other.stream);
    const std::vector<double> marks = of_one.marks(of_other.first());
    const std::vector<double> others = of_other.marks(of_other.first());
    const double begin = std::max(marks.front(), others.front());
    const double end = std::min(marks.back(), others.back());
    const auto of_a_piece = [&](const std::vector<double> &times) {
        const double pieces = pieces_between(times, begin, end);
        return pieces > 0 ? (end - begin) / pieces : 0;
    };
    pace = {of_a_piece(marks), of_a_piece(others)};
    return error != 0 ? error : std::max(of_one.error(), of_other.error());
}

}  // namespace flx::bench::lab
