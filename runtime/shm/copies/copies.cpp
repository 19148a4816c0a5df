#include "runtime/shm/copies/copies.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/elements/reduce.h"

namespace flx::shm {

namespace {

/// What the cores copy between two looks at the engine.
constexpr size_t kUnit = size_t{256} << 10;
constexpr size_t kSmallestSlice = size_t{256} << 10;
/// At most Board::kUnasked of other ranks' memory may be on its way to be written.
constexpr size_t kSliceToOthers = Board::kUnasked - kUnit;
constexpr double kWeight = 0.25;

void learn(double &known, double seen) {
    known = known == 0 ? seen : known + kWeight * (seen - known);
}

}  // namespace

void Copies::add(const Copy &copy) {
    if (copy.bytes != 0 && copy.to != copy.from)
        copies_.push_back(copy);
}

Status Copies::run(bool stream, const Board *board, Reach *reach) {
    first_ = 0;
    last_ = copies_.size();
    left_ = 0;
    for (const Copy &copy : copies_)
        left_ += copy.bytes;
    CopyEngine *engine = reach != nullptr && left_ != 0 ? reach->hold(copies_) : nullptr;
    with_engine_ = engine != nullptr;
    if (engine == nullptr) {
        engine_rate_ = engine_ns_ = 0;  // whatever held it up may be gone when it is tried again
        return by_cores(stream, board);
    }
    Status status = by_both(*engine, stream, board, *reach);
    reach->release();
    if (failed_)
        reach->lost();
    failed_ = false;
    return status;
}

Copy Copies::take_first(size_t most) {
    Copy &from = copies_[first_];
    Copy taken = from;
    taken.bytes = std::min(most, from.bytes);
    from.to += taken.bytes;
    from.from += taken.bytes;
    from.bytes -= taken.bytes;
    left_ -= taken.bytes;
    if (from.bytes == 0)
        ++first_;
    return taken;
}

Copy Copies::take_last(size_t most) {
    Copy &from = copies_[last_ - 1];
    Copy taken = from;
    taken.bytes = std::min(most, from.bytes);
    from.bytes -= taken.bytes;
    taken.to += from.bytes;
    taken.from += from.bytes;
    left_ -= taken.bytes;
    if (from.bytes == 0)
        --last_;
    return taken;
}

/// What is left of the first copy, or its first `most` bytes.
Status Copies::copy_first(size_t most, bool stream, const Board *board) {
    if (copies_[first_].to_rank != rank_)
        FLX_TRY(Board::look(board));
    const Copy unit = take_first(most);
    copy_bytes(unit.to, unit.from, unit.bytes, stream);
    return {};
}

Status Copies::by_cores(bool stream, const Board *board) {
    while (left_ != 0)
        FLX_TRY(copy_first(copies_[first_].to_rank != rank_ ? Board::kUnasked : SIZE_MAX, stream, board));
    return {};
}

/// Whether the engine would have copied so much of the last bytes before the cores have copied all others.
bool Copies::pays(size_t bytes) const {
    if (core_rate_ == 0)
        return true;
    const double cores_ns = static_cast<double>(left_ - bytes) / core_rate_;
    if (under_way_.empty())
        return engine_ns_ == 0 || engine_ns_ <= cores_ns;
    if (engine_rate_ == 0)
        return true;
    for (const Slice &slice : under_way_)
        bytes += slice.copy.bytes;
    return static_cast<double>(bytes) / engine_rate_ <= cores_ns;
}

/// Begins what the engine has room for.
Status Copies::feed(CopyEngine &engine, const Board *board, Reach &reach) {
    while (left_ != 0 && !failed_ && under_way_.size() < CopyEngine::kSlots) {
        const bool others = copies_[last_ - 1].to_rank != rank_;
        if (others && !under_way_.empty())
            return {};
        const size_t most = others ? kSliceToOthers : CopyEngine::kSlice;
        const size_t bytes =
            std::min({most, copies_[last_ - 1].bytes, std::max(kSmallestSlice, left_ / 4 / kUnit * kUnit)});
        if (!pays(bytes))
            return {};
        if (others)
            FLX_TRY(Board::look(board));
        const Copy copy = take_last(bytes);
        under_way_.push_back({copy, now_ns(), under_way_.empty()});
        failed_ = !engine.begin(reach.place(copy.to_rank, copy.to), reach.place(copy.from_rank, copy.from), copy.bytes);
    }
    return {};
}

/// Takes what the engine has copied off the list. True if there was something.
bool Copies::collect(CopyEngine &engine) {
    size_t ended = 0;
    if (under_way_.empty() || failed_)
        return false;
    failed_ = !engine.ended(ended);
    if (ended == 0 || failed_)
        return false;
    const int64_t now = now_ns();
    size_t bytes = 0;
    for (size_t i = 0; i < ended; ++i)
        bytes += under_way_[i].copy.bytes;
    const Slice &oldest = under_way_.front();
    if (oldest.alone)
        learn(engine_ns_, static_cast<double>(now - oldest.begun_ns));
    else if (now > last_end_ns_)
        learn(engine_rate_, static_cast<double>(bytes) / static_cast<double>(now - last_end_ns_));
    last_end_ns_ = now;
    engine_bytes_ += bytes;
    under_way_.erase(under_way_.begin(), under_way_.begin() + static_cast<ptrdiff_t>(ended));
    return true;
}

Status Copies::by_both(CopyEngine &engine, bool stream, const Board *board, Reach &reach) {
    Status status;
    while (status.ok() && !failed_ && (left_ != 0 || !under_way_.empty())) {
        status = feed(engine, board, reach);
        if (left_ != 0 && status.ok()) {
            const size_t before = left_;
            const int64_t began = now_ns();
            status = copy_first(kUnit, stream, board);
            if (!status.ok())
                break;
            learn(core_rate_,
                  static_cast<double>(before - left_) / static_cast<double>(std::max<int64_t>(1, now_ns() - began)));
            core_bytes_ += before - left_;
        }
        if (!collect(engine) && left_ == 0 && !under_way_.empty())
            sched_yield();
    }
    if (under_way_.empty() && !failed_)
        return status;
    // The engine failed, or a rank has given up.
    engine.stop();
    const std::vector<Slice> again = std::exchange(under_way_, {});
    if (!status.ok())
        return status;
    for (const Slice &slice : again) {
        if (slice.copy.to_rank != rank_)
            FLX_TRY(Board::look(board));
        copy_bytes(slice.copy.to, slice.copy.from, slice.copy.bytes, stream);
    }
    return by_cores(stream, board);
}

}  // namespace flx::shm
