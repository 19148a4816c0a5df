#include "tests/proof/interleave/explorer.h"

#include <fmt/format.h>
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <unordered_set>
#include <vector>

#include "tests/proof/interleave/shadow.h"

namespace flx::interleave {
namespace {

constexpr size_t kMostWords = 128;
constexpr size_t kStackBytes = size_t{256} << 10;

/// By word: the oldest store to it, as a place in its order, that may still be read.
using Floor = std::array<uint16_t, kMostWords>;

/// An event by its rank and number there; rank -1: what the word held in the beginning.
struct Ref {
    int16_t rank = -1;
    int16_t index = -1;
    bool operator==(const Ref &) const = default;
};

enum class Kind : uint8_t { read, write, update };

struct Event {
    Kind kind;
    uint16_t word;
    Ref from;        ///< what a read or update reads
    uint32_t stamp;  ///< in which order events were added
};
/// An execution, or the beginning of one. All that ranks do follows from what they read.
using Graph = std::array<std::vector<Event>, kMostRanks>;

/// What a store leaves for those who read it.
struct Message {
    Ref by;
    Ref from;  ///< of an update: what it read
    uint64_t value = 0;
    uint32_t stamp = 0;
    bool update = false;
    Clock before{};    ///< events that it depends on, itself among them: all that must be there for it to be
    Clock released{};  ///< what happens before whoever acquires it
    Floor floor{};     ///< likewise
};

struct Word {
    size_t offset = 0;
    std::vector<Message> order;
};

/// What is to be put back when a look turns out to be one of a wait's.
struct Look {
    size_t at;  ///< in Rank::window
    Clock before;
    Clock clock;
    Floor floor;
    uint64_t history;
};

struct Seen {
    uint16_t word;
    uint64_t value;
    Ref from;
    bool kept;  ///< the graph had it already, or has it for good
};

enum class State : uint8_t { ready, needs, at_end, waits, over };

struct Past {
    Clock before;
    uint64_t history;  ///< before it
};

struct Rank {
    jmp_buf left{};      ///< where its fiber goes on
    bool alive = false;  ///< there is a fiber, which waits to run the body or is in it
    State state = State::ready;
    Ref need;
    bool woken = false;
    size_t at = 0;           ///< events done
    std::vector<Past> past;  ///< of each
    Clock before{};          ///< events that its next one depends on
    Clock clock{};
    Floor floor{};
    uint64_t history = 0;      ///< of what it read: what it does follows from that
    std::vector<Seen> window;  ///< looks since it last did anything else
    std::vector<Look> looks;   ///< of them, the last ones: those that may turn out to be a wait's
    bool probing = false;      ///< its wait goes round once more, to see which looks are the wait's
    size_t probe = 0;
    size_t turn = 0;         ///< where in the window its wait's turn began
    std::vector<Seen> kept;  ///< looks of the wait's turn that stay as they are
    size_t kept_at = 0;
    std::vector<uint16_t> awaited;
};

struct Record {
    enum class What : uint8_t { operation, load, store, update, read, write, waits, over };
    What what;
    int8_t rank;
    bool ordered;  ///< acquires or releases
    uint32_t bytes;
    size_t offset;
    uint64_t value;
    Ref from;
    uint64_t newer;  ///< how many newer stores there were
};

uint64_t mix(uint64_t history, uint64_t word, uint64_t value) {
    uint64_t hash = history ^ (word + 1) * 0x9e3779b97f4a7c15U;
    hash = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9U;
    hash ^= value + 0x94d049bb133111ebU;
    hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93U;
    return hash ^ hash >> 31;
}

bool acquires(int order) {
    return order != static_cast<int>(std::memory_order_relaxed) && order != static_cast<int>(std::memory_order_release);
}
bool releases(int order) {
    return order == static_cast<int>(std::memory_order_release) ||
           order == static_cast<int>(std::memory_order_acq_rel) || order == static_cast<int>(std::memory_order_seq_cst);
}

void join(Clock &to, const Clock &from) {
    for (int i = 0; i < kMostRanks; ++i)
        to[i] = std::max(to[i], from[i]);
}

std::byte *const memory = arena_memory;

/// What is too large to be made for each program.
struct Kept {
    Shadow shadow;
    std::vector<int16_t> words_at = std::vector<int16_t>(kArenaBytes / 4, -1);
    std::vector<std::byte> stacks = std::vector<std::byte>(kMostRanks * kStackBytes);
};
Kept &kept() {
    static Kept all;
    return all;
}

class Explorer {
  public:
    Explorer(const Program &program, const Limits &limits);
    Explorer(const Explorer &) = delete;
    Explorer &operator=(const Explorer &) = delete;
    ~Explorer();
    Result run();

    // Called by fibers.
    uint64_t load(size_t offset, size_t bytes, int order);
    void store(size_t offset, size_t bytes, uint64_t value, int order);
    uint64_t update(size_t offset, size_t bytes, Change change, uint64_t operand, int order);
    void payload(size_t offset, size_t bytes, bool writes);
    void pause();
    void moved() { boundary(me()); }
    [[noreturn]] void wrong(const std::string &kind, const std::string &what);
    void begin_operation(const std::string &what);
    void enter();

  private:
    Rank &me() { return ranks_[running_]; }
    uint16_t word_of(size_t offset);
    void run_once(Graph graph);
    void schedule();
    void go_to(Rank &rank);
    [[nodiscard]] bool can_run(int rank) const;
    [[nodiscard]] bool replayed() const;
    void yield();
    [[noreturn]] void stop();
    void take_turn(Rank &rank);
    [[nodiscard]] bool planned(const Rank &rank) const;
    const Event &next_planned(Rank &rank, Kind kind, uint16_t word);
    size_t source_of(Rank &rank, const Event &event);
    void take(Rank &rank, uint16_t word, size_t pick, bool acquire);
    void put(Rank &rank, uint16_t word, uint64_t value, bool release, const Message *read, Kind kind, Ref from);
    void boundary(Rank &rank);
    void commit(Rank &rank, size_t until);
    void wait(Rank &rank, size_t turn);
    void push_older(const Rank &rank, const Look &look);
    void push_revisits(int writer, uint16_t word);
    void push_steals(const Rank &rank, uint16_t word);
    void push_changed(const Clock &before, Ref read, Ref from, const Event *extra, int extra_rank);
    [[nodiscard]] bool newest(Ref event, const Clock &before, Ref writer) const;
    [[nodiscard]] bool all_newest(const Clock &before, Ref first, Ref writer) const;
    void finish();
    [[noreturn]] void limitation(const std::string &what);
    [[nodiscard]] std::string trace() const;
    [[nodiscard]] std::string name(size_t offset) const;
    void record(Record::What what, bool ordered, size_t bytes, size_t offset, uint64_t value, Ref from = {},
                uint64_t newer = 0) {
        records_.push_back(
            {what, static_cast<int8_t>(running_), ordered, static_cast<uint32_t>(bytes), offset, value, from, newer});
    }

    const Program &program_;
    const Limits &limits_;
    Result result_;
    std::vector<Graph> open_;              ///< still to be visited
    std::unordered_set<uint64_t> failed_;  ///< histories after which a rank waits
    std::unordered_set<uint64_t> visited_;
    std::vector<int16_t> &words_at_ = kept().words_at;  ///< by place; -1: there is none
    size_t words_known_ = 0;
    Shadow &shadow_ = kept().shadow;

    // Of the run.
    Graph graph_;
    std::vector<Word> words_;
    std::array<Rank, kMostRanks> ranks_;
    jmp_buf scheduler_{};
    int running_ = -1;
    uint32_t next_stamp_ = 0;
    bool stopping_ = false;
    std::vector<Record> records_;
    std::vector<std::string> operations_;
};

Explorer *current = nullptr;

void enter_fiber() {
    current->enter();
}

Explorer::Explorer(const Program &program, const Limits &limits) : program_(program), limits_(limits) {}

Explorer::~Explorer() {
    for (const Word &word : words_)
        words_at_[word.offset / 4] = -1;
    shadow_.clear(memory);
}

Result Explorer::run() {
    open_.emplace_back();
    while (!open_.empty() && result_.wrong.empty()) {
        Graph graph = std::move(open_.back());
        open_.pop_back();
        if (++result_.runs > limits_.most_runs) {
            result_.kind = "too many";
            result_.wrong = "there are more executions than expected";
            break;
        }
        run_once(std::move(graph));
    }
    return result_;
}

uint16_t Explorer::word_of(size_t offset) {
    int16_t &word = words_at_[offset / 4];
    if (word < 0) {
        if (words_known_ == kMostWords)
            limitation("there are too many words");
        word = static_cast<int16_t>(words_known_++);
    }
    if (words_.size() <= static_cast<size_t>(word)) {
        words_.resize(word + 1);
        words_[word].offset = offset;
    }
    if (words_[word].order.empty())
        words_[word].order.emplace_back();
    return static_cast<uint16_t>(word);
}

// --- One run ---------------------------------------------------------------------------------------------------------

void Explorer::run_once(Graph graph) {
    graph_ = std::move(graph);
    shadow_.clear(memory);
    program_.begin();
    for (Word &word : words_)
        word.order.clear();
    records_.clear();
    operations_.clear();
    next_stamp_ = 0;
    for (const auto &events : graph_)
        for (const Event &event : events)
            next_stamp_ = std::max(next_stamp_, event.stamp + 1);
    stopping_ = false;
    for (int rank = 0; rank < program_.ranks; ++rank) {
        Rank &of = ranks_[rank];
        of.state = State::ready;
        of.woken = false;
        of.at = 0;
        of.past.clear();
        of.before = {};
        of.clock = {};
        of.clock[rank] = 1;
        of.floor = {};
        of.history = mix(0, rank, 0);
        of.window.clear();
        of.looks.clear();
        of.probing = false;
        of.kept.clear();
        of.kept_at = 0;
    }
    schedule();
    if (!stopping_)
        finish();
}

bool Explorer::replayed() const {
    for (int rank = 0; rank < program_.ranks; ++rank)
        if (ranks_[rank].at < graph_[rank].size())
            return false;
    return true;
}

bool Explorer::can_run(int rank) const {
    const Rank &of = ranks_[rank];
    switch (of.state) {
        case State::ready:
            return true;
        case State::needs:
            return ranks_[of.need.rank].at > static_cast<size_t>(of.need.index);
        case State::at_end:
            return replayed();
        case State::waits:
            return of.woken;
        case State::over:
            break;
    }
    return false;
}

void Explorer::schedule() {
    while (!stopping_) {
        int next = 0;
        while (next < program_.ranks && !can_run(next))
            ++next;
        if (next == program_.ranks)
            break;
        Rank &rank = ranks_[next];
        running_ = next;
        in_body = true;
        rank.state = State::ready;
        go_to(rank);
        in_body = false;
        running_ = -1;
    }
    for (Rank &rank : ranks_)  // those in the middle of the body are not gone on with
        rank.alive = rank.alive && rank.state == State::over;
}

// Contexts make fibers, long jumps switch between them: they do without system calls.

void Explorer::go_to(Rank &rank) {
    if (_setjmp(scheduler_) != 0)
        return;
    if (rank.alive)
        _longjmp(rank.left, 1);
    rank.alive = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = kept().stacks.data() + running_ * kStackBytes;
    context.uc_stack.ss_size = kStackBytes;
    context.uc_link = nullptr;
    makecontext(&context, enter_fiber, 0);
    setcontext(&context);
}

void Explorer::enter() {
    while (true) {
        program_.body(running_);
        boundary(me());
        record(Record::What::over, false, 0, 0, 0);
        me().state = State::over;
        yield();
    }
}

void Explorer::yield() {
    if (_setjmp(me().left) == 0)
        _longjmp(scheduler_, 1);
}

/// The run ends here. An exception would not get through atomics, which are noexcept: what lies on fibers' stacks is
/// forgotten.
void Explorer::stop() {
    stopping_ = true;
    me().state = State::ready;
    _longjmp(scheduler_, 1);
}

void Explorer::finish() {
    bool all_over = true;
    bool stale = false;  // somebody looked at what was old, in a wait: not for ever
    for (int rank = 0; rank < program_.ranks; ++rank) {
        const Rank &of = ranks_[rank];
        all_over = all_over && of.state == State::over;
        for (const Seen &seen : of.kept)
            stale = stale || (of.state == State::waits && words_[seen.word].order.back().by != seen.from);
    }
    if (!replayed()) {
        result_.kind = "checker";
        result_.wrong = "a run did not follow its plan\n" + trace();
        return;
    }
    if (!all_over) {
        if (stale)
            return;
        result_.kind = "deadlock";
        result_.wrong = "ranks wait for ever\n" + trace();
        return;
    }
    ++result_.executions;
    size_t events = 0;
    uint64_t hash = 0;
    for (int rank = 0; rank < program_.ranks; ++rank) {
        events += graph_[rank].size();
        for (const Event &event : graph_[rank])
            hash = mix(hash, event.word * 4 + static_cast<int>(event.kind), event.from.rank * 65536 + event.from.index);
    }
    result_.events = std::max(result_.events, events);
    if (limits_.look_for_repeats && !visited_.insert(hash).second)
        ++result_.repeats;
}

// --- Events ----------------------------------------------------------------------------------------------------------

bool Explorer::planned(const Rank &rank) const {
    return rank.at < graph_[&rank - ranks_.data()].size();
}

/// Before a new event: all that is planned must have been done, and ranks go on in their order, those first that can.
void Explorer::take_turn(Rank &rank) {
    const auto number = static_cast<int>(&rank - ranks_.data());
    while (true) {
        bool first = replayed();
        for (int other = 0; first && other < number; ++other)
            first = !can_run(other);
        if (first)
            return;
        rank.state = State::at_end;
        yield();
    }
}

const Event &Explorer::next_planned(Rank &rank, Kind kind, uint16_t word) {
    const Event &event = graph_[running_][rank.at];
    if (event.kind != kind || event.word != word)
        limitation("what a rank does does not follow from what it read");
    return event;
}

/// Of a planned read; waits for it.
size_t Explorer::source_of(Rank &rank, const Event &event) {
    const Ref from = event.from;
    const uint16_t word = event.word;
    while (from.rank >= 0 && ranks_[from.rank].at <= static_cast<size_t>(from.index)) {
        rank.need = from;
        rank.state = State::needs;
        yield();
    }
    const std::vector<Message> &order = words_[word].order;
    size_t pick = order.size();
    while (pick > 0 && order[pick - 1].by != from)
        --pick;
    if (pick == 0)
        limitation("a planned load's store is not there");
    if (pick - 1 < rank.floor[word])
        limitation("a planned load may not read what it reads");
    return pick - 1;
}

void Explorer::take(Rank &rank, uint16_t word, size_t pick, bool acquire) {
    const Message &message = words_[word].order[pick];
    rank.past.push_back({{}, rank.history});
    rank.history = mix(rank.history, word, message.value);
    join(rank.before, message.before);
    rank.before[running_] = static_cast<uint16_t>(++rank.at);
    rank.past.back().before = rank.before;
    if (acquire) {
        join(rank.clock, message.released);
        for (size_t i = 0; i < words_known_; ++i)
            rank.floor[i] = std::max(rank.floor[i], message.floor[i]);
    }
    rank.floor[word] = std::max<uint16_t>(rank.floor[word], pick);
}

uint64_t Explorer::load(size_t offset, size_t bytes, int order) {
    Rank &rank = me();
    const uint16_t word = word_of(offset);
    if (rank.probing) {
        if (rank.probe == SIZE_MAX) {
            const auto first = std::ranges::find(rank.window, word, &Seen::word);
            rank.turn = rank.probe = first - rank.window.begin();
        }
        if (rank.probe >= rank.window.size() || rank.window[rank.probe].word != word)
            limitation("a wait looks at something else the second time");
        return rank.window[rank.probe++].value;
    }
    if (rank.kept_at < rank.kept.size()) {
        const Seen seen = rank.kept[rank.kept_at++];
        if (seen.word != word)
            limitation("a wait begins with something else when it is woken");
        rank.window.push_back(seen);
        return seen.value;
    }
    const bool was_planned = planned(rank);
    size_t pick = 0;
    if (was_planned) {
        pick = source_of(rank, next_planned(rank, Kind::read, word));
    } else {
        take_turn(rank);
        const std::vector<Message> &known = words_[word].order;
        pick = known.size() - 1;
        rank.looks.push_back({rank.window.size(), rank.before, rank.clock, rank.floor, rank.history});
        graph_[running_].push_back({Kind::read, word, known[pick].by, next_stamp_++});
    }
    const Message &message = words_[word].order[pick];
    rank.window.push_back({word, message.value, message.by, was_planned});
    record(Record::What::load, acquires(order), bytes, offset, message.value, message.by,
           words_[word].order.size() - 1 - pick);
    take(rank, word, pick, acquires(order));
    return message.value;
}

void Explorer::put(Rank &rank, uint16_t word, uint64_t value, bool release, const Message *read, Kind kind, Ref from) {
    const uint32_t stamp = graph_[running_][rank.at].stamp;
    Message message;
    message.by = {static_cast<int16_t>(running_), static_cast<int16_t>(rank.at)};
    message.from = from;
    message.value = value;
    message.stamp = stamp;
    message.update = kind == Kind::update;
    if (kind == Kind::write) {  // take() has counted an update
        rank.past.push_back({{}, rank.history});
        rank.before[running_] = static_cast<uint16_t>(++rank.at);
        rank.past.back().before = rank.before;
    } else {
        --message.by.index;
        message.stamp = graph_[running_][rank.at - 1].stamp;
    }
    message.before = rank.before;
    std::vector<Message> &order = words_[word].order;
    if (kind == Kind::write && order.back().by.rank >= 0 && order.back().by.rank != running_ &&
        rank.floor[word] + size_t{1} != order.size())
        limitation("two ranks store to one word, and nothing says who is first");
    rank.floor[word] = static_cast<uint16_t>(order.size());
    if (release) {
        message.released = rank.clock;
        message.floor = rank.floor;
        ++rank.clock[running_];
    }
    message.floor[word] = static_cast<uint16_t>(order.size());
    if (read != nullptr) {  // goes on with what the store that it read had released
        join(message.released, read->released);
        for (size_t i = 0; i < words_known_; ++i)
            message.floor[i] = std::max(message.floor[i], read->floor[i]);
    }
    order.push_back(message);
}

void Explorer::store(size_t offset, size_t bytes, uint64_t value, int order) {
    Rank &rank = me();
    const uint16_t word = word_of(offset);
    boundary(rank);
    // What it says is known already: who reads the store before learns as much, and less of what happened before.
    if (const Message &last = words_[word].order.back(); last.by.rank == running_ && last.value == value)
        return;
    const bool was_planned = planned(rank);
    if (was_planned) {
        next_planned(rank, Kind::write, word);
    } else {
        take_turn(rank);
        graph_[running_].push_back({Kind::write, word, {}, next_stamp_++});
    }
    record(Record::What::store, releases(order), bytes, offset, value);
    put(rank, word, value, releases(order), nullptr, Kind::write, {});
    if (!was_planned)
        push_revisits(running_, word);
    for (int other = 0; other < program_.ranks; ++other)
        if (ranks_[other].state == State::waits && std::ranges::count(ranks_[other].awaited, word) != 0)
            ranks_[other].woken = true;
}

uint64_t Explorer::update(size_t offset, size_t bytes, Change change, uint64_t operand, int order) {
    Rank &rank = me();
    const uint16_t word = word_of(offset);
    boundary(rank);
    const bool was_planned = planned(rank);
    size_t pick = 0;
    if (was_planned) {
        pick = source_of(rank, next_planned(rank, Kind::update, word));
        if (pick + 1 != words_[word].order.size())
            limitation("two updates of the same value");
    } else {
        take_turn(rank);
        push_steals(rank, word);
        pick = words_[word].order.size() - 1;
        graph_[running_].push_back({Kind::update, word, words_[word].order[pick].by, next_stamp_++});
    }
    const Message read = words_[word].order[pick];
    uint64_t value = operand;
    switch (change) {
        case Change::set:
            break;
        case Change::add:
            value = read.value + operand;
            break;
        case Change::subtract:
            value = read.value - operand;
            break;
        case Change::unite:
            value = read.value | operand;
            break;
    }
    if (bytes < sizeof value)
        value &= (uint64_t{1} << 8 * bytes) - 1;
    record(Record::What::update, acquires(order) || releases(order), bytes, offset, value, read.by);
    take(rank, word, pick, acquires(order));
    put(rank, word, value, releases(order), &read, Kind::update, read.by);
    if (!was_planned)
        push_revisits(running_, word);
    for (int other = 0; other < program_.ranks; ++other)
        if (ranks_[other].state == State::waits && std::ranges::count(ranks_[other].awaited, word) != 0)
            ranks_[other].woken = true;
    return read.value;
}

void Explorer::payload(size_t offset, size_t bytes, bool writes) {
    if (bytes == 0)
        return;
    Rank &rank = me();
    boundary(rank);
    record(writes ? Record::What::write : Record::What::read, false, bytes, offset, 0);
    const Shadow::Race race =
        writes ? shadow_.write(running_, rank.clock, offset, bytes) : shadow_.read(running_, rank.clock, offset, bytes);
    if (race.rank >= 0)
        wrong("data race",
              fmt::format("rank {} {} what rank {} {}, in no order: {}", running_, writes ? "writes" : "reads",
                          race.rank, race.wrote ? "writes" : "reads", name(race.offset)));
}

void Explorer::begin_operation(const std::string &what) {
    boundary(me());
    operations_.push_back(what);
    record(Record::What::operation, false, 0, 0, operations_.size() - 1);
}

// --- Waits -----------------------------------------------------------------------------------------------------------

/// The rank does something: the looks before were no wait's, or one's that has ended.
void Explorer::boundary(Rank &rank) {
    if (rank.probing)
        limitation("a wait does more than look");
    commit(rank, SIZE_MAX);
    rank.window.clear();
    rank.kept.clear();
    rank.kept_at = 0;
}

/// Looks before `until` in the window stay; what they might have read instead is to be visited.
void Explorer::commit(Rank &rank, size_t until) {
    size_t done = 0;
    for (; done < rank.looks.size() && rank.looks[done].at < until; ++done) {
        push_older(rank, rank.looks[done]);
        rank.window[rank.looks[done].at].kept = true;
    }
    rank.looks.erase(rank.looks.begin(), rank.looks.begin() + static_cast<ptrdiff_t>(done));
}

/// A look found nothing. Which looks belong to the wait shows when it goes round once more, and finds the same.
void Explorer::pause() {
    Rank &rank = me();
    if (!rank.probing) {
        if (rank.window.empty())
            limitation("a wait does not look");
        rank.probing = true;
        rank.probe = SIZE_MAX;
        return;
    }
    rank.probing = false;
    // It may have looked at the same before it began to wait.
    const size_t looks = rank.probe == SIZE_MAX ? 0 : rank.probe - rank.turn;
    const auto begin = rank.window.begin() + static_cast<ptrdiff_t>(rank.turn);
    if (looks == 0 || !std::equal(rank.window.end() - static_cast<ptrdiff_t>(looks), rank.window.end(), begin,
                                  [](const Seen &a, const Seen &b) { return a.word == b.word && a.value == b.value; }))
        limitation("a wait looks at something else the second time");
    rank.turn = rank.window.size() - looks;
    if (planned(rank))
        limitation("a wait that is over waits");
    wait(rank, rank.turn);
}

void Explorer::wait(Rank &rank, size_t turn) {
    failed_.insert(rank.history);
    commit(rank, turn);
    if (rank.looks.empty())  // all that it looked at was chosen, and it will not look again
        stop();
    rank.awaited.clear();
    for (const Look &look : rank.looks)
        rank.awaited.push_back(rank.window[look.at].word);
    const Look &first = rank.looks.front();
    const size_t taken = rank.looks.size();
    rank.at -= taken;
    rank.past.resize(rank.at);
    graph_[running_].resize(rank.at);
    next_stamp_ -= static_cast<uint32_t>(taken);
    rank.before = first.before;
    rank.clock = first.clock;
    rank.floor = first.floor;
    rank.history = first.history;
    rank.kept.assign(rank.window.begin() + static_cast<ptrdiff_t>(turn),
                     rank.window.begin() + static_cast<ptrdiff_t>(first.at));
    rank.kept_at = 0;
    rank.window.clear();
    rank.looks.clear();
    rank.woken = false;
    rank.state = State::waits;
    record(Record::What::waits, false, 0, words_[rank.awaited.front()].offset, 0);
    yield();
}

// --- What else can happen --------------------------------------------------------------------------------------------

/// What a load might have read instead of the newest store.
void Explorer::push_older(const Rank &rank, const Look &look) {
    const auto number = static_cast<int>(&rank - ranks_.data());
    const size_t index = rank.at - (rank.window.size() - look.at);
    const Event &event = graph_[number][index];
    const std::vector<Message> &order = words_[event.word].order;
    for (size_t pick = look.floor[event.word]; pick + 1 < order.size(); ++pick) {
        if (failed_.contains(mix(look.history, event.word, order[pick].value)))
            continue;
        ++result_.choices;
        Graph &graph = open_.emplace_back();
        for (int other = 0; other < program_.ranks; ++other) {
            const auto &events = graph_[other];
            const auto end =
                std::ranges::find_if(events, [&](const Event &known) { return known.stamp > event.stamp; });
            graph[other].assign(events.begin(), end);
        }
        graph[number].back().from = order[pick].by;
    }
}

/// Whether an event is as it would be if ranks always read the newest store: so that what is left out to let a read
/// change comes again, and comes once. (IsMaximallyAdded of TruSt, with one order of the stores to a word.)
bool Explorer::newest(Ref at, const Clock &before, Ref writer) const {
    const Event &event = graph_[at.rank][at.index];
    const auto previous = [&](Ref other, uint32_t stamp) {
        return other != writer && (stamp <= event.stamp || other.index < before[other.rank]);
    };
    if (event.kind != Kind::read) {
        for (int rank = 0; rank < program_.ranks; ++rank)
            for (size_t i = 0; i < graph_[rank].size(); ++i) {
                const Event &reader = graph_[rank][i];
                if (reader.kind != Kind::write && reader.word == event.word && reader.from == at &&
                    previous({static_cast<int16_t>(rank), static_cast<int16_t>(i)}, reader.stamp))
                    return false;
            }
    }
    if (event.kind != Kind::write) {
        const std::vector<Message> &order = words_[event.word].order;
        for (size_t i = order.size(); i-- > 0 && order[i].by != event.from;)
            if (order[i].by != at && previous(order[i].by, order[i].stamp))
                return false;
    }
    return true;
}

/// So are `first` and all that came after it, but what `writer` depends on.
bool Explorer::all_newest(const Clock &before, Ref first, Ref writer) const {
    const uint32_t stamp = graph_[first.rank][first.index].stamp;
    for (int rank = 0; rank < program_.ranks; ++rank)
        for (size_t i = graph_[rank].size(); i-- > before[rank] && graph_[rank][i].stamp >= stamp;) {
            const Ref at{static_cast<int16_t>(rank), static_cast<int16_t>(i)};
            if (at != writer && !newest(at, before, writer))
                return false;
        }
    return true;
}

/// The graph of what was added before `read`, and what `before` says, where `read` reads `from`.
void Explorer::push_changed(const Clock &before, Ref read, Ref from, const Event *extra, int extra_rank) {
    const uint32_t stamp = graph_[read.rank][read.index].stamp;
    ++result_.choices;
    Graph &graph = open_.emplace_back();
    for (int rank = 0; rank < program_.ranks; ++rank) {
        const auto &events = graph_[rank];
        size_t end = before[rank];
        while (end < events.size() && events[end].stamp <= stamp)
            ++end;
        graph[rank].assign(events.begin(), events.begin() + static_cast<ptrdiff_t>(std::min(end, events.size())));
    }
    if (extra != nullptr)
        graph[extra_rank].push_back(*extra);
    graph[read.rank][read.index].from = from;
}

/// A store was added: loads before, which it does not depend on, might read it.
void Explorer::push_revisits(int writer_rank, uint16_t word) {
    const Rank &writer = ranks_[writer_rank];
    const Ref at{static_cast<int16_t>(writer_rank), static_cast<int16_t>(writer.at - 1)};
    const Clock before = writer.before;
    const uint64_t value = words_[word].order.back().value;
    for (int rank = 0; rank < program_.ranks; ++rank) {
        if (rank == writer_rank)
            continue;
        for (size_t i = before[rank]; i < graph_[rank].size(); ++i) {
            const Event &event = graph_[rank][i];
            if (event.word != word || event.kind == Kind::write)
                continue;
            const Ref read{static_cast<int16_t>(rank), static_cast<int16_t>(i)};
            if (failed_.contains(mix(ranks_[rank].past[i].history, word, value)) || !all_newest(before, read, at))
                continue;
            push_changed(before, read, at, nullptr, 0);
        }
    }
}

/// An update is about to be added: it might come before another one.
void Explorer::push_steals(const Rank &rank, uint16_t word) {
    const std::vector<Message> &order = words_[word].order;
    const auto number = static_cast<int16_t>(running_);
    const Ref at{number, static_cast<int16_t>(rank.at)};
    for (size_t i = 1; i < order.size(); ++i) {
        const Message &theirs = order[i];
        if (!theirs.update || theirs.by.rank == number || theirs.by.index < rank.before[theirs.by.rank] ||
            i - 1 < rank.floor[word])
            continue;
        Clock before = rank.before;
        join(before, order[i - 1].before);
        if (theirs.by.index < before[theirs.by.rank] || !all_newest(before, theirs.by, at))
            continue;
        const Event extra{Kind::update, word, order[i - 1].by, next_stamp_};
        push_changed(before, theirs.by, at, &extra, number);
    }
}

// --- Reports ---------------------------------------------------------------------------------------------------------

void Explorer::wrong(const std::string &kind, const std::string &what) {
    if (result_.wrong.empty()) {
        result_.kind = kind;
        result_.wrong = what + "\n" + trace();
    }
    stop();
}

void Explorer::limitation(const std::string &what) {
    if (result_.wrong.empty()) {
        result_.kind = "checker";
        result_.wrong = "this is beyond the checker: " + what + "\n" + trace();
    }
    stop();
}

std::string Explorer::name(size_t offset) const {
    return program_.place ? program_.place(offset) : fmt::format("byte {}", offset);
}

std::string Explorer::trace() const {
    constexpr size_t kMost = 400;
    std::string text;
    const size_t first = records_.size() < kMost ? 0 : records_.size() - kMost;
    for (size_t i = first; i < records_.size(); ++i) {
        const Record &of = records_[i];
        using What = Record::What;
        text += fmt::format("  {}rank {} ", std::string(20 * std::max<int>(0, of.rank), ' '), of.rank);
        switch (of.what) {
            case What::operation:
                text += "begins " + operations_[of.value];
                break;
            case What::load:
                text += fmt::format("loads {} from {}{}{}", of.value, name(of.offset), of.ordered ? "" : " (relaxed)",
                                    of.newer != 0 ? fmt::format(", an old value: {} newer", of.newer) : "");
                break;
            case What::store:
                text += fmt::format("stores {} to {}{}", of.value, name(of.offset), of.ordered ? "" : " (relaxed)");
                break;
            case What::update:
                text += fmt::format("makes {} of {}{}", of.value, name(of.offset), of.ordered ? "" : " (relaxed)");
                break;
            case What::read:
            case What::write:
                text +=
                    fmt::format("{} {} B: {}", of.what == What::read ? "reads" : "writes", of.bytes, name(of.offset));
                break;
            case What::waits:
                text += "waits for " + name(of.offset);
                break;
            case What::over:
                text += "is done";
                break;
        }
        text += '\n';
    }
    return text;
}

Explorer &explorer() {
    return *current;
}
size_t offset_of(const volatile void *address) {
    return static_cast<size_t>(static_cast<const volatile std::byte *>(address) - memory);
}

}  // namespace

Result explore(const Program &program, const Limits &limits) {
    const auto made = std::make_unique<Explorer>(program, limits);
    current = made.get();
    Result result = made->run();
    current = nullptr;
    return result;
}

void wrong(const std::string &kind, const std::string &what) {
    explorer().wrong(kind, what);
}
void begin_operation(const std::string &what) {
    explorer().begin_operation(what);
}

uint64_t load(const volatile void *address, size_t bytes, int order) {
    return explorer().load(offset_of(address), bytes, order);
}
void store(volatile void *address, size_t bytes, uint64_t value, int order) {
    explorer().store(offset_of(address), bytes, value, order);
}
uint64_t update(volatile void *address, size_t bytes, Change change, uint64_t operand, int order) {
    return explorer().update(offset_of(address), bytes, change, operand, order);
}
void note_read(const volatile void *address, size_t bytes) {
    explorer().payload(offset_of(address), bytes, false);
}
void note_write(const volatile void *address, size_t bytes) {
    explorer().payload(offset_of(address), bytes, true);
}
void pause() {
    explorer().pause();
}
void moved() {
    explorer().moved();
}

}  // namespace flx::interleave
