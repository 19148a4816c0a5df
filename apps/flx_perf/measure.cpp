#include "apps/flx_perf/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "apps/bench/calls.h"
#include "apps/bench/meet.h"
#include "apps/bench/sizes.h"
#include "apps/common/clock.h"
#include "apps/common/ranks.h"

namespace flx::bench::perf {
namespace {

using apps::now;

std::vector<double> in_us(std::vector<double> seconds) {
    for (double &value : seconds) {
        value *= 1e6;
    }
    return seconds;
}

/// As a program does between its calls.
void compute(double ms) {
    if (ms <= 0) {
        return;
    }
    const double end = now() + 1e-3 * ms;
    volatile double value = 1;
    while (now() < end) {
        for (int i = 0; i < 100; ++i) {
            value = value * 1.0000001;
        }
    }
}

}  // namespace

Measurer::Measurer(const Options &options, flx_comm_t flx_comm, MPI_Comm mpi_comm, LinkCounters &links)
    : options_(options),
      flx_comm_(flx_comm),
      mpi_comm_(mpi_comm),
      links_(links),
      job_(job_of(options, mpi_comm)),
      pattern_(pattern_for(job_)),
      before_(links.names().size()),
      after_(links.names().size()) {
    size_t send = 0;
    size_t recv = 0;
    for (const uint64_t bytes : options.sizes) {
        const Shape shape = shape_of(options, bytes, job_.ranks);
        send = std::max(send, shape.send_elements * size_of(options.dtype));
        recv = std::max<size_t>({recv, shape.bytes, shape.recv_elements * size_of(options.dtype)});
    }
    // All sides have the same memory, or each would find less of its own in the cache.
    send_ = make_buffer(options.beside_memcpy ? std::max(send, recv) : send);
    recv_ = make_buffer(recv);
    if (options.beside_memcpy && send_) {
        // What nothing was written to is one page of zeros.
        std::memset(send_.get(), 1, std::max(send, recv));
    }
    int got = send_ && recv_ ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &got, 1, MPI_INT, MPI_MIN, mpi_comm);
    ready_ = got == 1;
    job_.send = send_.get();
    job_.recv = recv_.get();
    start_ = now();
}

Measurer::Buffer Measurer::make_buffer(size_t bytes) const {
    constexpr size_t kPage = 4096;
    if (bytes > SIZE_MAX / 2) {
        return nullptr;
    }
    const size_t whole = (bytes + kGuardBytes + kPage - 1) / kPage * kPage;
    if (!options_.shared) {
        return Buffer(static_cast<std::byte *>(std::aligned_alloc(kPage, whole)));
    }
    void *memory = nullptr;
    flx_malloc(whole, &memory);  // null where it failed
    return Buffer(static_cast<std::byte *>(memory), Free{true});
}

void Measurer::fail(flx_status_t status) const {
    apps::give_up(fmt::format("{} of {} stopped", name_of(job_.kind), size_text(job_.shape.bytes)),
                  apps::reason(status));
}

void Measurer::call(Side side) {
    if (side == kMemcpy) {
        std::memcpy(job_.recv, job_.send, job_.shape.bytes);
        return;
    }
    if (side != kFlx) {
        call_mpi(job_, mpi_comm_);  // MPI's default error handler ends the program
        return;
    }
    const flx_status_t status = call_flx(job_, flx_comm_);
    if (status != FLX_SUCCESS) {
        fail(status);
    }
}

double Measurer::slowest(double seconds) const {
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, mpi_comm_);
    return seconds;
}

uint64_t Measurer::over_ranks(uint64_t number) const {
    MPI_Allreduce(MPI_IN_PLACE, &number, 1, MPI_UINT64_T, MPI_SUM, mpi_comm_);
    return number;
}

std::vector<uint64_t> Measurer::over_ranks(std::vector<uint64_t> numbers) const {
    MPI_Allreduce(MPI_IN_PLACE, numbers.data(), static_cast<int>(numbers.size()), MPI_UINT64_T, MPI_SUM, mpi_comm_);
    return numbers;
}

Measurer::Checked Measurer::checked_call(Side side) {
    prepare(job_, pattern_, ++call_);
    MPI_Barrier(mpi_comm_);
    links_.read(before_.data());
    call(side);
    links_.read(after_.data());
    Checked checked;
    checked.wrong = over_ranks(count_wrong(job_, pattern_, call_));
    for (size_t i = 0; i < after_.size(); ++i) {
        checked.bytes.push_back(after_[i] - before_[i]);
    }
    checked.bytes = over_ranks(std::move(checked.bytes));
    return checked;
}

/// One call by itself, with what was asked to be done around it outside the time.
double Measurer::timed_call(Side side) {
    const bool logged = side == kFlx && !options_.log_file.empty();
    if (options_.check_every && side != kMemcpy) {
        prepare(job_, pattern_, ++call_);
        MPI_Barrier(mpi_comm_);
    }
    if (logged) {
        links_.read(before_.data());
    }
    compute(options_.compute_ms);
    const double begin = now();
    call(side);
    const double seconds = now() - begin;
    std::optional<uint64_t> wrong;
    if (options_.check_every && (side == kFlx || (options_.check_peer && side != kMemcpy))) {
        wrong = count_wrong(job_, pattern_, call_);
        (side == kFlx ? wrong_ : peer_wrong_) += *wrong;
    }
    if (logged) {
        links_.read(after_.data());
        LoggedCall entry{begin - start_, seconds * 1e6, wrong, {}, links_.vector()};
        for (size_t i = 0; i < after_.size(); ++i) {
            entry.bytes.push_back(after_[i] - before_[i]);
        }
        log_.push_back(std::move(entry));
    }
    return seconds;
}

double Measurer::timed_calls(Side side, int64_t count) {
    double seconds = 0;
    if (each_alone_) {
        for (int64_t i = 0; i < count; ++i) {
            seconds += timed_call(side);
        }
        return seconds;
    }
    const double begin = now();
    for (int64_t i = 0; i < count; ++i) {
        call(side);
    }
    return now() - begin;
}

/// `count` timed calls; what FLX's links carried meanwhile is added to `carried_`.
void Measurer::timed_block(Side side, int64_t count, Times &times) {
    std::vector<uint64_t> before(after_.size());
    links_.read(before.data());
    const double seconds = timed_calls(side, count);
    links_.read(after_.data());
    if (side == kFlx) {
        for (size_t i = 0; i < after_.size(); ++i) {
            carried_[i] += after_[i] - before[i];
        }
    }
    times.per_call.push_back(seconds / static_cast<double>(count));
    times.total += seconds;
    times.calls += count;
}

void Measurer::warm_up(Side side) {
    for (int i = 0; i < options_.warmup; ++i) {
        call(side);
    }
}

/// The time of a call, and of the computing before it, as the slowest rank sees it, from as many calls as take
/// `enough_seconds`.
double Measurer::seconds_of_a_call(Side side, double enough_seconds) {
    for (int64_t count = 1;; count *= 2) {
        MPI_Barrier(mpi_comm_);
        const double begin = now();
        for (int64_t i = 0; i < count; ++i) {
            compute(options_.compute_ms);
            call(side);
        }
        const double seconds = slowest(now() - begin);
        if (seconds >= enough_seconds || count >= (1 << 20)) {
            return seconds / static_cast<double>(count);
        }
    }
}

std::vector<Measurer::Times> Measurer::run_in_turn(const std::vector<Side> &sides,
                                                   const std::function<void(double)> &done) {
    const auto count = static_cast<int>(sides.size());
    const bool peer = std::ranges::find(sides, kMpi) != sides.end();
    int blocks = options_.blocks;
    int64_t calls = 0;
    if (options_.iterations > 0) {
        blocks = blocks > 0 ? blocks : kFewestBlocks;
        calls = (options_.iterations + blocks - 1) / blocks;
    } else {
        const double enough = options_.max_seconds / kMostBlocks / count;
        double seconds = seconds_of_a_call(kFlx, enough);
        if (peer) {
            seconds = std::max(seconds, seconds_of_a_call(kMpi, enough));
        }
        blocks = blocks > 0 ? blocks : blocks_for(options_.max_seconds, count, seconds);
        calls = calls_for(options_.max_seconds / blocks / count, seconds);
    }
    std::vector<Times> times(kMemcpy + 1);
    for (int block = 0; block < blocks; ++block) {
        for (int turn = 0; turn < count; ++turn) {
            const Side side = sides[static_cast<size_t>(side_in_turn(block, turn, count))];
            MPI_Barrier(mpi_comm_);
            if (!options_.check_every) {
                // It finds caches, threads and ranks as the other side left them: not timed, on either side.
                call(side);
            }
            timed_block(side, calls, times[side]);
        }
        done((block + 1.0) / blocks);
    }
    return times;
}

Measurer::Times Measurer::run_back_to_back(Side side) {
    constexpr int kParts = 7;  // without a pause between them, to see how steady the rate is
    double seconds = seconds_of_a_call(side, options_.seconds / 20);
    Times times;
    while (true) {
        const double left = options_.seconds - slowest(times.total);
        if (left <= 0) {
            return times;
        }
        const int64_t calls = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(1.02 * left / seconds / kParts)));
        MPI_Barrier(mpi_comm_);
        const double before = times.total;
        for (int part = 0; part < kParts; ++part) {
            timed_block(side, calls, times);
        }
        meet(mpi_comm_);  // in uneven traffic some have long ended
        seconds = slowest(times.total - before) / static_cast<double>(calls * kParts);
    }
}

void Measurer::merge_log() {
    std::vector<double> us;
    std::vector<uint64_t> counts;
    for (const LoggedCall &entry : log_) {
        us.push_back(entry.us);
        counts.push_back(entry.wrong.value_or(0));
        counts.insert(counts.end(), entry.bytes.begin(), entry.bytes.end());
    }
    MPI_Allreduce(MPI_IN_PLACE, us.data(), static_cast<int>(us.size()), MPI_DOUBLE, MPI_MAX, mpi_comm_);
    counts = over_ranks(std::move(counts));
    auto next = counts.begin();
    for (size_t i = 0; i < log_.size(); ++i) {
        log_[i].us = us[i];
        const uint64_t wrong = *next++;
        if (log_[i].wrong) {
            log_[i].wrong = wrong;
        }
        for (uint64_t &bytes : log_[i].bytes) {
            bytes = *next++;
        }
    }
}

Result Measurer::measure(const Shape &shape, const std::function<void(double)> &done) {
    job_.shape = shape;
    if (is_exchange(job_.kind)) {
        job_.counts = Counts(shape.matrix, job_.rank, job_.ranks);
    }
    each_alone_ = options_.check_every || !options_.log_file.empty() || options_.compute_ms > 0;
    wrong_ = 0;
    peer_wrong_ = 0;
    carried_.assign(links_.names().size(), 0);
    log_.clear();

    Result result;
    result.bytes = shape.bytes;
    const char *algorithm = nullptr;
    const std::string asked(flx_name_of(job_.kind));
    if (flx_comm_algorithm(flx_comm_, asked.c_str(), shape.bytes, job_.dtype, job_.op, &algorithm) != FLX_SUCCESS) {
        algorithm = "-";
    }
    result.algorithm = algorithm;
    const char *why_not = options_.against_mpi ? why_mpi_cannot(job_) : nullptr;
    const bool peer = options_.against_mpi && why_not == nullptr;
    result.why_no_peer = why_not != nullptr ? why_not : "";

    const Checked first = checked_call(kFlx);
    result.first_call = shares_of(first.bytes);
    uint64_t checked_peer_wrong = peer ? checked_call(kMpi).wrong : 0;

    prepare(job_, pattern_, ++call_);
    const bool back_to_back = options_.seconds > 0;
    if (!back_to_back) {  // else each right before its time
        warm_up(kFlx);
        if (peer) {
            warm_up(kMpi);
        }
    }
    std::vector<Side> sides{kFlx};
    if (peer) {
        sides.insert(sides.end(), {kMpi, kMpiAgain});
    }
    if (options_.beside_memcpy && shape.bytes > 0) {
        sides.push_back(kMemcpy);
    }

    std::vector<Times> times;
    if (back_to_back) {
        warm_up(kFlx);
        times.push_back(run_back_to_back(kFlx));
        if (peer) {
            warm_up(kMpi);
            times.push_back(run_back_to_back(kMpi));
        }
        done(1);
    } else {
        times = run_in_turn(sides, done);
    }
    for (Times &side : times) {
        MPI_Allreduce(MPI_IN_PLACE, side.per_call.data(), static_cast<int>(side.per_call.size()), MPI_DOUBLE, MPI_MAX,
                      mpi_comm_);
        side.total = slowest(side.total);
    }

    const Checked last = checked_call(kFlx);
    result.last_call = shares_of(last.bytes);
    result.wrong = first.wrong + last.wrong + over_ranks(wrong_);
    if (links_.status() != FLX_SUCCESS) {
        fail(links_.status());
    }

    const auto summary = [back_to_back](const Times &side) {
        Summary us = summarise(in_us(side.per_call));
        if (back_to_back) {
            us.median = 1e6 * side.total / static_cast<double>(side.calls);
        }
        return us;
    };
    result.us = summary(times[kFlx]);
    result.iterations = times[kFlx].calls;
    result.blocks = static_cast<int>(times[kFlx].per_call.size());
    result.busbw_GBps =
        static_cast<double>(shape.bytes) * bus_factor(job_.kind, job_.ranks, options_.traffic) / result.us.median / 1e3;
    result.partition = shares_of(over_ranks(carried_));
    if (peer) {
        checked_peer_wrong += checked_call(kMpi).wrong + over_ranks(peer_wrong_);
        result.peer = PeerResult{summary(times[kMpi]), {}, {}, {}};
        if (back_to_back) {
            const double ratio = result.peer->us.median / result.us.median;
            result.peer->ratio = {ratio, ratio, ratio};
        } else {
            result.peer->ratio = summarise(ratios(times[kMpi].per_call, times[kFlx].per_call));
            result.peer->noise = summarise(ratios(times[kMpiAgain].per_call, times[kMpi].per_call));
        }
        if (options_.check_peer) {
            result.peer->wrong = checked_peer_wrong;
        }
    }
    if (options_.beside_memcpy && shape.bytes > 0) {
        result.memcpy = summary(times[kMemcpy]);
    }
    merge_log();
    return result;
}

}  // namespace flx::bench::perf
