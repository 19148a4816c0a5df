#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "runtime/shm/ways/fused.h"
#include "tests/proof/interleave/programs.h"

namespace flx::interleave {
namespace {

using shm::Fused;
using shm::Tree;
using shm::TwoSteps;

/// Of one rank; boards hold 112 bytes, short payloads 256, and in the copies that are proved a page 512.
constexpr size_t kPayload = 2048;
/// Rings of longer payloads have as few places as they may.
constexpr size_t kBudget = 1;

enum class What {
    bcast,
    reduce,
    allreduce,
    allgather,
    allgatherv,
    gather,
    scatter,
    alltoall,
    reduce_scatter_block,
    reduce_scatter,
    scan,
    exscan,
    barrier,
    allreduce_in_two,
    allgather_in_two,
    bcast_by_tree,
    barrier_by_tree
};

constexpr const char *kNames[] = {
    "bcast",   "reduce",           "allreduce",        "allgather",      "allgatherv",     "gather",
    "scatter", "alltoall",         "rs_block",         "reduce_scatter", "scan",           "exscan",
    "barrier", "allreduce_in_two", "allgather_in_two", "bcast_by_tree",  "barrier_by_tree"};

struct Call {
    What what;
    size_t bytes = 0;  ///< of what the collective calls a block or a vector
    int root = 0;
    std::array<size_t, kMostRanks> counts{};  ///< of those with blocks of their own lengths

    [[nodiscard]] std::string text() const {
        if (what == What::allgatherv || what == What::reduce_scatter)
            return fmt::format("{} {}/{}/{}", kNames[static_cast<int>(what)], counts[0], counts[1], counts[2]);
        return fmt::format("{} {}{}", kNames[static_cast<int>(what)], bytes,
                           root != 0 ? fmt::format(" @{}", root) : "");
    }
};
using Calls = std::vector<Call>;

struct Case {
    int ranks;
    bool shaped;  ///< ranks 0 and 1 share a cache, rank 2 does not
    Calls calls;
};

Tree tree_of(const Case &of) {
    if (!of.shaped)
        return Tree(of.ranks);
    const std::vector<probe::Place> places =
        of.ranks == 2 ? std::vector<probe::Place>{{0, 0}, {1, 0}} : std::vector<probe::Place>{{0, 0}, {0, 0}, {1, 0}};
    return Tree(places);
}

class Rank {
  public:
    Rank(const Case &of, int rank)
        : of_(of), rank_(rank), ranks_(of.ranks), fused_(arena(), rank, of.ranks, kPayload, nullptr, kBudget) {
        fused_.set_tree(tree_of(of));
    }

    void run() {
        for (number_ = 0; number_ < of_.calls.size(); ++number_) {
            const Call &call = of_.calls[number_];
            begin_operation(fmt::format("{}: {}", number_ + 1, call.text()));
            Waiter waiter(policy_, watch_);
            const Status status = call_it(call, waiter);
            if (!status.ok())
                wrong("error", fmt::format("rank {}, operation {}: {}", rank_, number_ + 1, status.sentence()));
            for (size_t at = 0; at < expected_.size(); ++at)
                if (out_[at] != expected_[at])
                    wrong("wrong bytes", fmt::format("rank {}, operation {}: byte {} is {} instead of {}", rank_,
                                                     number_ + 1, at, out_[at], expected_[at]));
        }
    }

  private:
    uint8_t *fill(size_t bytes) {
        in_.resize(bytes);
        for (size_t at = 0; at < bytes; ++at)
            in_[at] = given(number_, rank_, at);
        return in_.data();
    }
    void expect(size_t bytes, auto &&value) {
        expected_.resize(bytes);
        for (size_t at = 0; at < bytes; ++at)
            expected_[at] = static_cast<uint8_t>(value(at));
        out_.assign(bytes, 0xee);
    }
    [[nodiscard]] uint8_t sum(size_t at, int last) const {
        uint8_t total = 0;
        for (int rank = 0; rank <= last; ++rank)
            total = static_cast<uint8_t>(total + given(number_, rank, at));
        return total;
    }

    Status call_it(const Call &call, Waiter &waiter) {
        const size_t bytes = call.bytes;
        const auto signature = static_cast<uint32_t>(number_ + 1);
        TwoSteps two_steps;
        if (call.what == What::allreduce_in_two)
            two_steps.allreduce = 0;
        if (call.what == What::allgather_in_two)
            two_steps.allgather = 0;
        if (call.what == What::bcast_by_tree)
            two_steps.bcast = 0;
        two_steps.barrier = call.what == What::barrier_by_tree;
        fused_.set_two_steps(two_steps);
        std::array<size_t, kMostRanks> before{};
        for (int rank = 1; rank < ranks_; ++rank)
            before[rank] = before[rank - 1] + call.counts[rank - 1];
        const size_t all = before[ranks_ - 1] + call.counts[ranks_ - 1];
        switch (call.what) {
            case What::bcast:
            case What::bcast_by_tree:
                expect(bytes, [&](size_t at) { return given(number_, call.root, at); });
                if (rank_ == call.root)
                    out_ = expected_;
                return fused_.bcast(out_.data(), bytes, call.root, signature, waiter);
            case What::reduce:
                expect(rank_ == call.root ? bytes : 0, [&](size_t at) { return sum(at, ranks_ - 1); });
                return fused_.reduce(fill(bytes), out_.data(), bytes, FLX_UINT8, FLX_SUM, call.root, signature, waiter);
            case What::allreduce:
            case What::allreduce_in_two:
                expect(bytes, [&](size_t at) { return sum(at, ranks_ - 1); });
                return fused_.allreduce(fill(bytes), out_.data(), bytes, FLX_UINT8, FLX_SUM, signature, waiter);
            case What::allgather:
            case What::allgather_in_two:
                expect(bytes * ranks_,
                       [&](size_t at) { return given(number_, static_cast<int>(at / bytes), at % bytes); });
                return fused_.allgather(fill(bytes), out_.data(), bytes, signature, waiter);
            case What::gather:
                expect(rank_ == call.root ? bytes * ranks_ : 0,
                       [&](size_t at) { return given(number_, static_cast<int>(at / bytes), at % bytes); });
                return fused_.gather(fill(bytes), out_.data(), bytes, call.root, signature, waiter);
            case What::scatter:
                expect(bytes, [&](size_t at) { return given(number_, call.root, rank_ * bytes + at); });
                return fused_.scatter(fill(bytes * ranks_), out_.data(), bytes, call.root, signature, waiter);
            case What::alltoall:
                expect(bytes * ranks_, [&](size_t at) {
                    return given(number_, static_cast<int>(at / bytes), rank_ * bytes + at % bytes);
                });
                return fused_.alltoall(fill(bytes * ranks_), out_.data(), bytes, signature, waiter);
            case What::reduce_scatter_block:
                expect(bytes, [&](size_t at) { return sum(rank_ * bytes + at, ranks_ - 1); });
                return fused_.reduce_scatter_block(fill(bytes * ranks_), out_.data(), bytes, FLX_UINT8, FLX_SUM,
                                                   signature, waiter);
            case What::allgatherv:
                expect(all, [&](size_t at) {
                    int rank = ranks_ - 1;
                    while (at < before[rank])
                        --rank;
                    return given(number_, rank, at - before[rank]);
                });
                return fused_.allgatherv(fill(call.counts[rank_]), out_.data(), call.counts.data(), before.data(), 1,
                                         signature, waiter);
            case What::reduce_scatter:
                expect(call.counts[rank_], [&](size_t at) { return sum(before[rank_] + at, ranks_ - 1); });
                return fused_.reduce_scatter(fill(all), out_.data(), call.counts.data(), FLX_UINT8, FLX_SUM, signature,
                                             waiter);
            case What::scan:
            case What::exscan: {
                const bool exclusive = call.what == What::exscan;
                const int last = exclusive ? rank_ - 1 : rank_;
                expect(last < 0 ? 0 : bytes, [&](size_t at) { return sum(at, last); });
                out_.resize(bytes);
                return fused_.scan(exclusive, fill(bytes), out_.data(), bytes, FLX_UINT8, FLX_SUM, signature, waiter);
            }
            case What::barrier:
            case What::barrier_by_tree:
                expect(0, [](size_t) { return 0; });
                break;
        }
        return fused_.barrier(signature, waiter);
    }

    const Case &of_;
    int rank_;
    int ranks_;
    Fused fused_;
    WaitPolicy policy_{.spins = 0};
    NoWatch watch_;
    size_t number_ = 0;
    std::vector<uint8_t> in_;
    std::vector<uint8_t> out_;
    std::vector<uint8_t> expected_;
};

/// By Fused::areas: which rank's what.
std::string place_of(int ranks, size_t offset) {
    const std::vector<shm::Area> areas = Fused::areas(ranks, kPayload, kBudget);
    constexpr const char *kAreas[] = {"boards", "short payloads", "pages", "long payloads"};
    for (size_t area = areas.size(); area-- > 0;)
        if (offset >= areas[area].offset) {
            const size_t within = offset - areas[area].offset;
            const size_t rank = within / areas[area].stride;
            if (rank >= static_cast<size_t>(ranks))
                return fmt::format("what rank {} has done", (within - ranks * areas[area].stride) / 64);
            const size_t at = within % areas[area].stride;
            if (area == 0)
                return fmt::format("rank {}'s board {} + {}", rank, at / shm::kPair, at % shm::kPair);
            return fmt::format("rank {}'s {} + {}", rank, kAreas[area], at);
        }
    return {};
}

Program program_of(int ranks, bool shaped, Calls calls) {
    return interleave::program_of<Rank>(Case{ranks, shaped, std::move(calls)},
                                        [ranks](size_t offset) { return place_of(ranks, offset); });
}

std::string text_of(const Calls &calls) {
    std::string text;
    for (const Call &call : calls)
        text += (text.empty() ? "" : ", ") + call.text();
    return text;
}

/// All sequences of `length` of those calls, again and again until there are so many `operations`.
Family sequences(std::string name, int ranks, bool shaped, size_t length, size_t operations, const Calls &of,
                 bool full = false) {
    const auto calls = std::make_shared<const Calls>(of);
    size_t programs = 1;
    for (size_t i = 0; i < length; ++i)
        programs *= of.size();
    const auto calls_of = [calls, length, operations](size_t number) {
        Calls chosen;
        for (size_t i = 0; i < length; ++i, number /= calls->size())
            chosen.push_back((*calls)[number % calls->size()]);
        while (chosen.size() < operations)
            chosen.push_back(chosen[chosen.size() - length]);
        return chosen;
    };
    return {std::move(name),
            ranks,
            programs,
            [=](size_t number) { return program_of(ranks, shaped, calls_of(number)); },
            [=](size_t number) { return text_of(calls_of(number)); },
            full};
}

/// In each kind of memory.
constexpr size_t kSizes[] = {8, 200, 300, 700};

/// `in_steps`: those that take several steps, and so are several operations.
Calls all_calls(int ranks, bool in_steps) {
    Calls calls;
    for (const size_t bytes : kSizes) {
        const size_t part = bytes / ranks;
        if (in_steps) {
            calls.push_back({What::bcast_by_tree, bytes, 0});
            calls.push_back({What::bcast_by_tree, bytes, ranks - 1});
            calls.push_back({What::allreduce_in_two, bytes, 0});
            calls.push_back({What::allgather_in_two, part + 1, 0});
            continue;
        }
        for (const What what : {What::bcast, What::reduce, What::gather}) {
            calls.push_back({what, bytes, 0});
            calls.push_back({what, bytes, ranks - 1});
        }
        calls.push_back({What::scatter, part + 1, 0});
        calls.push_back({What::scatter, part + 1, ranks - 1});
        for (const What what : {What::allreduce, What::allgather, What::scan, What::exscan})
            calls.push_back({what, bytes, 0});
        for (const What what : {What::alltoall, What::reduce_scatter_block})
            calls.push_back({what, part + 1, 0});
        calls.push_back({What::reduce_scatter, 0, 0, {bytes / 4, bytes / 2, bytes - bytes / 4 - bytes / 2}});
    }
    if (in_steps) {
        calls.push_back({What::barrier_by_tree});
        // Parts of unequal lengths about the borders of boards, short payloads and pages.
        for (const size_t bytes : {225, 337, 513, 769, 1025})
            calls.push_back({What::allreduce_in_two, bytes, 0});
        return calls;
    }
    calls.push_back({What::barrier});
    calls.push_back({What::bcast, 1500, 0});
    calls.push_back({What::bcast, 1500, ranks - 1});
    for (const std::array<size_t, kMostRanks> counts :
         {std::array<size_t, kMostRanks>{300, 700, 8}, {700, 300, 200}, {8, 200, 0}, {200, 8, 300}, {0, 300, 1500}})
        calls.push_back({What::allgatherv, 0, 0, counts});
    return calls;
}

/// Two calls, with `between` times the same between them: so that what the second uses is what the first one used.
Family around(std::string name, int ranks, bool shaped, const Calls &of, const Calls &between, size_t times,
              bool full = false) {
    const auto calls = std::make_shared<const Calls>(of);
    const auto inner = std::make_shared<const Calls>(between);
    const auto calls_of = [calls, inner, times](size_t number) {
        Calls chosen{(*calls)[number % calls->size()]};
        number /= calls->size();
        chosen.insert(chosen.end(), times, (*inner)[number % inner->size()]);
        chosen.push_back((*calls)[number / inner->size()]);
        return chosen;
    };
    return {std::move(name),
            ranks,
            of.size() * of.size() * between.size(),
            [=](size_t number) { return program_of(ranks, shaped, calls_of(number)); },
            [=](size_t number) { return text_of(calls_of(number)); },
            full};
}

}  // namespace

std::vector<Family> fused_families() {
    std::vector<Family> families;
    for (const int ranks : {2, 3}) {
        const std::string of = fmt::format("fused, {} ranks: ", ranks);
        const Calls all = all_calls(ranks, false);
        const Calls in_steps = all_calls(ranks, true);
        Calls between{{What::bcast, 8, 0}, {What::bcast, 8, ranks - 1}};
        if (ranks == 2)
            between.push_back({What::reduce, 8, 1});
        families.push_back(sequences(of + "each call, five times", ranks, true, 1, 5, all));
        families.push_back(sequences(of + "each call in steps, three times", ranks, true, 1, 3, in_steps));
        families.push_back(sequences(of + "pairs of calls", ranks, true, 2, 2, all));
        families.push_back(around(of + "two calls, one between", ranks, true, all, between, 1));
        families.push_back(around(of + "two calls, three between", ranks, true, all, between, 3, ranks == 3));
    }
    return families;
}

}  // namespace flx::interleave
