#include "tests/mpi/ahead/runner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/mpi/random.h"

namespace flx::test::ahead {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

void compute(size_t microseconds) {
    const auto begin = Clock::now();
    while (seconds_since(begin) < static_cast<double>(microseconds) * 1e-6) {
    }
}

/// Elements that one rank gives to one.
size_t given_elements(const Operation &operation) {
    size_t most = 0;
    size_t all = 0;
    for (const size_t count : operation.counts) {
        most = std::max(most, count);
        all += count;
    }
    return operation.collective == Collective::reduce_scatter ? all : most;
}

bool differs_by_receiver(Collective collective) {
    switch (collective) {
        case Collective::scatter:
        case Collective::scatterv:
        case Collective::message:
        case Collective::alltoall:
        case Collective::alltoallv:
        case Collective::shift:
            return true;
        default:
            return false;
    }
}

constexpr int kReports = 3;  ///< that a rank prints

}  // namespace

struct Runner::Slot {
    std::unique_ptr<Call> call;
    uint64_t made_as = 0;  ///< number of the operation that made the request, where it is persistent
    bool active = false;
};

Runner::Runner(Engine &engine, const Options &options, const Choice &choice, std::vector<Group> groups, int world_rank,
               Standing &standing)
    : engine_(engine),
      options_(options),
      choice_(choice),
      groups_(std::move(groups)),
      world_rank_(world_rank),
      standing_(standing),
      own_([&engine](size_t bytes) { return engine.allocate(bytes, false); }),
      shared_([&engine](size_t bytes) { return engine.allocate(bytes, true); }),
      slots_(Engine::kSlots) {
    for (const Group &group : groups_) {
        const auto at = std::find(group.ranks.begin(), group.ranks.end(), world_rank);
        rank_in_.push_back(at == group.ranks.end() ? -1 : static_cast<int>(at - group.ranks.begin()));
    }
}

Runner::~Runner() = default;

void Runner::expect(Engine::Sentence sentence, const char *what) {
    if (sentence == nullptr)
        return;
    std::fprintf(stderr, "rank %d: thread %d, episode %lu, operation %lu of it (%s): %s: %s\n", world_rank_,
                 choice_.thread, static_cast<unsigned long>(standing_.episode.load()),
                 static_cast<unsigned long>(standing_.operation.load()), standing_.collective.load(), what, sentence);
    std::fprintf(stderr, "again: %s\n", options_.command.c_str());
    std::fflush(stderr);
    std::_Exit(1);
}

Outcome Runner::run() {
    if (options_.shrink >= 0 || options_.only >= 0) {
        const auto index = static_cast<uint64_t>(options_.shrink >= 0 ? options_.shrink : options_.only);
        const Episode episode = make_episode(choice_, groups_, index, first_number_of(index, 0));
        if (options_.shrink >= 0)
            shrink(episode);
        else
            repeat(episode);
        return outcome_;
    }
    constexpr uint64_t kTogether = 64;  // episodes, until ranks ask each other
    const auto begin = Clock::now();
    const uint64_t mine = options_.operations / static_cast<uint64_t>(options_.threads);
    for (uint64_t index = 0; outcome_.operations < mine; ++index) {
        carry_out(make_episode(choice_, groups_, index, first_number_of(index, 0)), 0);
        if (index % kTogether != kTogether - 1)
            continue;
        if (!engine_.agree(wrong_ == 0))
            break;
        if (options_.seconds != 0 && !engine_.agree(seconds_since(begin) < options_.seconds))
            break;
    }
    outcome_.wrong = wrong_;
    return outcome_;
}

/// Numbers of operations grow, so that what is left of a repetition is not right in the next.
void Runner::repeat(const Episode &episode) {
    constexpr uint64_t kTogether = 16;
    for (uint64_t repetition = 0; repetition < options_.repeat; ++repetition) {
        carry_out(episode, repetition);
        if (repetition % kTogether == kTogether - 1 && !engine_.agree(wrong_ == 0))
            break;
    }
    outcome_.wrong = wrong_;
}

bool Runner::fails(const Episode &episode) {
    constexpr uint64_t kMost = 400;
    constexpr uint64_t kTogether = 10;
    for (uint64_t repetition = 0; repetition < kMost; ++repetition) {
        carry_out(episode, ++repetition_);
        if (repetition % kTogether == kTogether - 1 && !engine_.agree(wrong_ == 0)) {
            wrong_ = 0;
            return true;
        }
    }
    return false;
}

/// Leaves out ever shorter parts as long as it fails without them.
void Runner::shrink(Episode episode) {
    quiet_ = true;
    if (!fails(episode)) {
        if (world_rank_ == 0)
            std::printf("episode %lu does not fail\n", static_cast<unsigned long>(episode.index));
        return;
    }
    for (size_t part = std::max<size_t>(episode.operations.size() / 2, 1); part > 0; part /= 2) {
        for (size_t at = 0; at < episode.operations.size();) {
            Episode less = episode;
            const auto first = less.operations.begin() + static_cast<ptrdiff_t>(at);
            less.operations.erase(first, first + static_cast<ptrdiff_t>(std::min(part, less.operations.size() - at)));
            // What starts a request again goes with what made it.
            std::erase_if(less.operations, [&](const Operation &operation) {
                return operation.again != 0 && std::ranges::none_of(less.operations, [&](const Operation &other) {
                           return other.number == operation.again;
                       });
            });
            if (!less.operations.empty())
                less.operations.front().lateness = Lateness::any;
            if (!less.operations.empty() && fails(less))
                episode = std::move(less);
            else
                at += part;
        }
    }
    outcome_.wrong = 1;
    if (world_rank_ == 0) {
        std::printf("episode %lu fails with these operations alone:\n", static_cast<unsigned long>(episode.index));
        for (const Operation &operation : episode.operations)
            std::printf("  %s, group %zu\n", to_string(operation).c_str(), operation.group);
        std::fflush(stdout);
    }
    quiet_ = false;
    static_cast<void>(fails(episode));
}

void Runner::carry_out(const Episode &episode, uint64_t repetition) {
    episode_ = &episode;
    repetition_ = repetition;
    mine_ = Random(Random::mix(episode.seed + static_cast<uint64_t>(world_rank_) * 7919) + repetition);
    standing_.episode.store(episode.index, std::memory_order_relaxed);
    for (size_t i = 0; i < episode.operations.size(); ++i) {
        const Operation &operation = episode.operations[i];
        ++outcome_.operations;
        if (rank_in_[operation.group] < 0)
            continue;
        standing_.collective.store(name_of(operation.collective), std::memory_order_relaxed);
        standing_.operation.store(i, std::memory_order_relaxed);
        if (operation.manner != Manner::grouped) {
            come_late(operation);
            call(operation);
            complete_some(episode.in_flight);
            continue;
        }
        if (i == 0 || episode.operations[i - 1].bracket != operation.bracket) {
            come_late(operation);
            expect(engine_.group_begin(operation.group), "a group cannot begin");
        }
        call(operation);
        if (i + 1 == episode.operations.size() || episode.operations[i + 1].bracket != operation.bracket) {
            expect(engine_.group_end(operation.group), "a group failed");
            for (const auto &member : grouped_)
                look(*member);
            grouped_.clear();
        }
    }
    complete_some(0);
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
        if (slots_[slot].call == nullptr)
            continue;
        expect(engine_.free(slot), "a request cannot be freed");
        slots_[slot] = {};
    }
    own_.reset();
    shared_.reset();
    ++outcome_.episodes;
}

/// A run of operations finds some ranks milliseconds late.
void Runner::come_late(const Operation &operation) {
    const bool root = rank_in_[operation.group] == operation.root;
    const bool may = operation.lateness == Lateness::any || (operation.lateness == Lateness::root && root) ||
                     (operation.lateness == Lateness::others && !root);
    if (may && mine_.below(2) == 0) {
        usleep(static_cast<useconds_t>(200 + mine_.below(2300)));
        return;
    }
    const size_t what = mine_.below(96);
    if (what == 0)
        usleep(static_cast<useconds_t>(mine_.below(300)));
    else if (what < 4)
        compute(mine_.below(40));
}

void Runner::call(const Operation &operation) {
    const int rank = rank_in_[operation.group];
    if (operation.collective == Collective::message && rank != operation.root && rank != operation.peer)
        return;
    const uint64_t number = operation.number + first_number_of(0, repetition_) - first_number_of(0, 0);
    if (operation.again != 0) {
        const auto at = std::ranges::find_if(slots_, [&](const Slot &slot) { return slot.made_as == operation.again; });
        const auto slot = static_cast<size_t>(at - slots_.begin());
        if (at->active) {
            expect(engine_.wait(slot), "waiting failed");
            completed(slot);
        }
        at->call->set_number(number);
        at->call->fill();
        expect(engine_.start(slot), "a request cannot be started");
        at->active = true;
        ++active_;
        return;
    }
    const auto memory = [&]() -> Arena & {
        const bool shared =
            episode_->memory == Memory::shared || (episode_->memory == Memory::mixed && mine_.below(2) == 0);
        return shared ? shared_ : own_;
    };
    Arena &in_memory = memory();
    Arena &out_memory = memory();
    Operation numbered = operation;
    numbered.number = number;
    auto call = std::make_unique<Call>(numbered, rank, static_cast<int>(groups_[operation.group].ranks.size()),
                                       in_memory, out_memory);
    call->fill();
    const auto at = std::ranges::find_if(slots_, [](const Slot &slot) { return slot.call == nullptr; });
    const auto slot = static_cast<size_t>(at - slots_.begin());
    expect(at == slots_.end() ? "all slots are taken" : engine_.issue(*call, slot), "the call failed");
    switch (operation.manner) {
        case Manner::blocking:
            look(*call);
            break;
        case Manner::grouped:
            grouped_.push_back(std::move(call));
            break;
        default:
            *at = {std::move(call), operation.manner == Manner::persistent ? operation.number : 0, true};
            ++active_;
            break;
    }
}

/// Waits in whatever way this rank draws, until no more than `at_most` are under way, and for some more.
void Runner::complete_some(size_t at_most) {
    while (active_ > at_most || (active_ > 0 && mine_.below(5) == 0)) {
        int slot = Engine::kNone;
        bool done = false;
        size_t any = mine_.below(active_);
        size_t drawn = 0;
        while (!slots_[drawn].active || any-- > 0)
            ++drawn;
        switch (mine_.below(8)) {
            case 0:
            case 1:
                expect(engine_.wait(drawn), "waiting failed");
                completed(drawn);
                break;
            case 2:
            case 3:
                expect(engine_.wait_any(slot), "waiting failed");
                expect(slot == Engine::kNone ? "nothing is under way" : nullptr, "waiting failed");
                completed(static_cast<size_t>(slot));
                break;
            case 4:
            case 5:
                expect(engine_.test_any(slot), "testing failed");
                if (slot != Engine::kNone)
                    completed(static_cast<size_t>(slot));
                break;
            case 6:
                expect(engine_.test(drawn, done), "testing failed");
                if (done)
                    completed(drawn);
                break;
            default:
                if (active_ > at_most && mine_.below(4) != 0)
                    break;
                expect(engine_.wait_all(), "waiting failed");
                for (size_t i = 0; i < slots_.size(); ++i)
                    if (slots_[i].active)
                        completed(i);
                break;
        }
    }
}

void Runner::completed(size_t slot) {
    Slot &done = slots_[slot];
    expect(done.active ? nullptr : "a request was done twice", "waiting failed");
    done.active = false;
    --active_;
    look(*done.call);
    if (done.made_as == 0)
        done = {};
}

void Runner::look(Call &call) {
    std::vector<std::byte> seen;
    const std::string verdict = call.verdict(seen);
    if (!verdict.empty())
        report(call, verdict, seen);
    call.scribble();
}

void Runner::report(const Call &call, const std::string &verdict, const std::vector<std::byte> &seen) {
    if (++wrong_ > kReports || quiet_)
        return;
    const Operation &operation = call.what();
    const uint64_t place = (operation.number - 1) % kMostOperations;
    std::string ranks;
    for (const int rank : groups_[operation.group].ranks)
        ranks += fmt::format("{}{}", ranks.empty() ? "" : ",", rank);
    const std::string text = fmt::format(
        "rank {}: WRONG: seed {}, thread {}, episode {}, operation {} of it: {}, group {} of ranks {}: {}; {}\n"
        "again: {}\n  or: {} --only {} --repeat 2000\n",
        world_rank_, options_.seed, choice_.thread, episode_->index, place, to_string(operation), operation.group,
        ranks, verdict, whose(call, seen), options_.command, options_.command, episode_->index);
    std::fputs(text.c_str(), stderr);
    std::fflush(stderr);
}

/// Of which operation the wrong bytes are: of this episode's, its neighbours', or the last repetitions'.
std::string Runner::whose(const Call &call, const std::vector<std::byte> &seen) const {
    constexpr size_t kLeast = 4;
    constexpr size_t kMost = 16;
    if (seen.size() < kLeast)
        return "they are too few to say of which operation they are";
    const size_t length = std::min(seen.size(), kMost);
    const uint64_t number = call.what().number;
    const bool repeats = options_.only >= 0;
    uint64_t best = UINT64_MAX;
    std::string text = "they are of no operation nearby";
    std::vector<std::byte> bytes;
    constexpr uint64_t kNear = 2;
    for (uint64_t away = 0; away <= 2 * kNear; ++away) {
        const uint64_t index = episode_->index + (repeats ? 0 : away) - (repeats ? 0 : kNear);
        const uint64_t repetition = repetition_ + (repeats ? away : 0) - (repeats ? kNear : 0);
        if (static_cast<int64_t>(index) < 0 || static_cast<int64_t>(repetition) < 0)
            continue;
        const Episode episode = make_episode(choice_, groups_, index, first_number_of(index, repetition));
        for (const Operation &other : episode.operations) {
            const uint64_t distance = std::max(other.number, number) - std::min(other.number, number);
            const auto size = static_cast<int>(groups_[other.group].ranks.size());
            const auto consider = [&](const std::string &what) {
                if (distance >= best || memmem(bytes.data(), bytes.size(), seen.data(), length) == nullptr)
                    return;
                best = distance;
                text = fmt::format(
                    "they are what {} in {}: {}, group {}", what,
                    other.number == number ? std::string("this operation")
                    : index == episode_->index && repetition == repetition_
                        ? fmt::format("the operation {} {}", distance, other.number > number ? "later" : "earlier")
                        : fmt::format("operation {} of episode {}, repetition {}", (other.number - 1) % kMostOperations,
                                      index, repetition),
                    to_string(other), other.group);
            };
            bytes.resize(given_elements(other) * size_of(other.type));
            for (int from = 0; from < size; ++from) {
                for (int to = 0; to < (differs_by_receiver(other.collective) ? size : 1); ++to) {
                    give(other, size, from, to, 0, bytes);
                    consider(fmt::format("rank {} gives{}", from,
                                         differs_by_receiver(other.collective) ? fmt::format(" to rank {}", to) : ""));
                }
                if (!reduces(other.collective))
                    continue;
                give_reduced(other, size, from, 0, bytes);
                consider(fmt::format("is reduced over ranks 0 to {}", from));
            }
            bytes.assign(length, static_cast<std::byte>(Random::mix(other.number) | 1U));
            consider("lies in buffers before it, untouched,");
        }
    }
    return text;
}

}  // namespace flx::test::ahead
