#include "probe/measure.h"

#include <fmt/format.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>

#include "probe/train.h"

namespace flx::probe {
namespace {

/// What a probe chunk is (ChunkHeader::phase). Everything is in the header, with 8 bytes of payload that mean nothing;
/// only trains carry data. `first_cell` counts a link's chunks, so that each has an identity of its own.
enum Kind : uint32_t {
    kPing = 1,  ///< block: the ping's number
    kPong,      ///< block: the ping's number
    kData,      ///< block: train; signature: when it was sent, us of the sender's clock
    kLast,      ///< block: train; signature: units in the whole train
    kReport,    ///< block: train, and above kTrainBits what the last chunk waited, in units of kQueueUnit; signature:
                ///< units that had arrived; cells: at this time after the first one, ns + 1
    kBye        ///< the sender has finished measuring
};

constexpr size_t kControlBytes = 8;
constexpr size_t kSourceBytes = 1 << 20;
constexpr uint32_t kTrains = 2 * kMaxLinks;  ///< train 2·i: link i alone; 2·i + 1: together with the others
constexpr uint32_t kTrainBits = 8;
static_assert(kTrains <= 1U << kTrainBits);
constexpr int64_t kQueueUnit = 10'000;  ///< ns
constexpr double kPingPart = 0.1;       ///< of a slot
constexpr int64_t kReportEvery = 500'000;

/// What is sent. Never freed and never written again, since a link may still read it after measure_links returned.
const std::byte *source() {
    static const auto *bytes = [] {
        static std::array<std::byte, kSourceBytes> memory;
        for (size_t i = 0; i < memory.size(); ++i)
            memory[i] = static_cast<std::byte>(i * 37);
        return &memory;
    }();
    return bytes->data();
}

/// The default way to wait. Yielding to a program that computes costs its whole time slice.
class Idler {
  public:
    void operator()(int64_t idle_ns) {
        constexpr int64_t kPatience = 200'000, kSlice = 1'000'000;
        if (busy_core_ || idle_ns > kPatience) {
            const timespec nap{0, 20'000};
            nanosleep(&nap, nullptr);
            return;
        }
        const auto before = std::chrono::steady_clock::now();
        sched_yield();
        busy_core_ = std::chrono::steady_clock::now() - before > std::chrono::nanoseconds(kSlice);
    }

  private:
    bool busy_core_ = false;
};

/// A train that comes in.
struct Incoming {
    int link = -1;  ///< on which it comes, and its reports go back
    int64_t first_ns = 0;
    uint64_t arrived = 0;
    uint64_t total = UINT64_MAX;  ///< known once its last chunk came
    uint64_t reported = 0;
    int64_t reported_ns = 0;
    int64_t last_ns = 0;
    uint32_t between_us = 0;  ///< the two clocks, as the first chunk shows them
    int32_t least_us = 0;     ///< beside that, of the chunk that came quickest, which did not wait,
    int32_t last_us = 0;      ///< and of the last one
    bool due = false;
};

/// One link, as measured from here and as served to the previous rank.
struct Lane {
    Link *link = nullptr;
    uint32_t chunks = 0;
    bool failed = false;
    bool answered = false;
    std::string error;
    uint32_t ping = 0;
    int64_t ping_ns = 0;
    bool ping_out = false;
    bool long_ping = false;  ///< the last one had kBurstBytes
    std::vector<int64_t> trips;
    int64_t burst_ns = INT64_MAX;  ///< the least trip of a long ping
    int bursts = 0;                ///< long pings that came back
    int64_t least_send_ns = 0;     ///< of pings after the first one; 0: there was none
    std::optional<Train> alone;
    std::optional<Train> together;
    bool alone_closed = false;
    bool together_closed = false;
    std::vector<uint32_t> pongs;  ///< to send
    size_t cursor = 0;

    /// The least of the trips after the first one, which made the connection; 0: there was none. What made others
    /// longer was a core or a queue, and is no property of the link.
    [[nodiscard]] int64_t least_trip() const {
        return trips.size() < 2 ? 0 : *std::min_element(trips.begin() + 1, trips.end());
    }
};

class Measurer {
  public:
    Measurer(std::span<Link *const> links, int next, int previous, const MeasureOptions &options)
        : options_(options), next_(next), previous_(previous), lanes_(links.size()), sink_(kSourceBytes) {
        if (!options_.now)
            options_.now = [] {
                return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
            };
        if (!options_.idle)
            options_.idle = Idler();
        for (size_t i = 0; i < links.size(); ++i)
            lanes_[i].link = links[i];
    }

    GroupMeasurement run();
    GroupMeasurement run_pings();

  private:
    [[nodiscard]] int64_t now() const { return options_.now(); }
    [[nodiscard]] bool reaches_next(const Lane &lane) const { return next_ >= 0 && lane.link->reaches(next_); }
    [[nodiscard]] bool works(const Lane &lane) const { return reaches_next(lane) && lane.answered && !lane.failed; }

    SendResult send(Lane &lane, int peer, Kind kind, uint32_t block, uint32_t signature, uint32_t cells, size_t bytes);
    bool try_control(Lane &lane, Kind kind, uint32_t block, uint32_t signature = 0);
    void part(int64_t end);
    [[nodiscard]] bool shows_burst(const Lane &lane) const {
        return lane.link->kind() == LinkKind::rail && works(lane) && lane.link->max_chunk() >= kBurstBytes;
    }
    void look_at_burst(Lane &lane, int64_t end);
    bool close_all();
    void take(size_t index, const Arrival &arrival);
    void take_data(size_t index, const Arrival &arrival);
    bool reply();
    bool pump();
    bool drive_pings(Lane &lane, size_t bytes = kControlBytes);
    bool drive_train(Lane &lane, std::optional<Train> &train, uint32_t id);
    bool close_train(Lane &lane, std::optional<Train> &train, bool &closed, uint32_t id);
    [[nodiscard]] bool finished() const;
    [[nodiscard]] GroupMeasurement result(int64_t start) const;

    /// Runs `step` (true if it moved something) and serves the previous rank until `end`, or until `step` and the links
    /// are done as told by `done`.
    template <typename Step, typename Done>
    void loop(int64_t end, Step step, Done done) {
        while (now() < end && !done()) {
            const bool served = pump();
            const bool stepped = step();
            const int64_t time = now();
            if (served || stepped)
                moved_ns_ = time;
            else
                options_.idle(time - moved_ns_);
        }
    }

    MeasureOptions options_;
    int next_;
    int previous_;
    std::vector<Lane> lanes_;
    std::vector<std::byte> sink_;
    std::array<Incoming, kTrains> incoming_;
    int64_t moved_ns_ = 0;
    bool bye_received_ = false;
    bool bye_sent_ = false;
    int64_t most_ns_ = INT64_MAX;  ///< until when what was sent may be under way
};

SendResult Measurer::send(Lane &lane, int peer, Kind kind, uint32_t block, uint32_t signature, uint32_t cells,
                          size_t bytes) {
    ChunkHeader header{};
    header.comm = options_.comm;
    header.signature = signature;
    header.phase = kind;
    header.block = block;
    header.first_cell = lane.chunks;
    header.cells = cells;
    header.bytes = static_cast<uint32_t>(bytes);
    if (lane.cursor + bytes > kSourceBytes)
        lane.cursor = 0;
    const SendResult result = lane.link->send(peer, header, source() + lane.cursor);
    if (result == SendResult::copied || result == SendResult::in_flight) {
        ++lane.chunks;
        lane.cursor += bytes;
    } else if (result == SendResult::failed && peer == next_ && !lane.failed) {
        lane.failed = true;
        lane.error = lane.link->error(peer).words();
    }
    return result;
}

bool Measurer::try_control(Lane &lane, Kind kind, uint32_t block, uint32_t signature) {
    const SendResult result = send(lane, next_, kind, block, signature, 1, kControlBytes);
    return result == SendResult::copied || result == SendResult::in_flight;
}

void Measurer::take_data(size_t index, const Arrival &arrival) {
    const ChunkHeader &header = arrival.header;
    Incoming &train = incoming_[header.block];
    const int64_t time = now();
    if (header.phase == kLast) {
        train.total = uint64_t{header.signature} * Train::kUnit;
    } else {
        // A collective reads what it receives, so that belongs to the time that is measured.
        std::memcpy(sink_.data(), arrival.data, std::min<size_t>(header.bytes, sink_.size()));
        const uint32_t between_us = static_cast<uint32_t>(time / 1000) - header.signature;
        if (train.arrived == 0) {
            train.first_ns = time;
            train.between_us = between_us;
        }
        train.arrived += header.bytes;
        train.last_ns = time;
        train.last_us = static_cast<int32_t>(between_us - train.between_us);
        train.least_us = std::min(train.least_us, train.last_us);
    }
    train.link = static_cast<int>(index);
    // Reports become rarer in bytes, so that they cost nothing, and stay frequent enough in time to steer a slow link.
    if (train.arrived > train.reported && (train.arrived * 8 >= train.reported * 9 || train.arrived >= train.total ||
                                           time - train.reported_ns >= kReportEvery))
        train.due = true;
}

void Measurer::take(size_t index, const Arrival &arrival) {
    const ChunkHeader &header = arrival.header;
    Lane &lane = lanes_[index];
    if (header.sequence != 0 || header.comm != options_.comm)
        return;
    const bool from_previous = arrival.peer == previous_;
    const bool from_next = arrival.peer == next_;
    if (header.phase == kPing && from_previous) {
        lane.pongs.push_back(header.block);
    } else if (header.phase == kPong && from_next) {
        lane.answered = true;
        if (lane.ping_out && header.block == lane.ping) {
            lane.ping_out = false;
            if (lane.long_ping) {
                lane.burst_ns = std::min(lane.burst_ns, now() - lane.ping_ns);
                ++lane.bursts;
            } else {
                lane.trips.push_back(now() - lane.ping_ns);
            }
        }
    } else if ((header.phase == kData || header.phase == kLast) && from_previous && header.block < kTrains) {
        take_data(index, arrival);
    } else if (const uint32_t id = header.block % (1U << kTrainBits);
               header.phase == kReport && from_next && id / 2 < lanes_.size()) {
        Lane &reported = lanes_[id / 2];
        if (auto &train = id % 2 == 0 ? reported.alone : reported.together)
            train->report(uint64_t{header.signature} * Train::kUnit, int64_t{header.cells} - 1,
                          (header.block >> kTrainBits) * kQueueUnit);
    } else if (header.phase == kBye && from_previous) {
        bye_received_ = true;
    }
}

/// Sends what the previous rank is owed. What finds no room stays for the next time.
bool Measurer::reply() {
    bool moved = false;
    const auto taken = [](SendResult result) {
        return result == SendResult::copied || result == SendResult::in_flight;
    };
    for (Lane &lane : lanes_)
        while (!lane.pongs.empty() && taken(send(lane, previous_, kPong, lane.pongs.front(), 0, 1, kControlBytes))) {
            lane.pongs.erase(lane.pongs.begin());
            moved = true;
        }
    for (uint32_t id = 0; id < kTrains; ++id) {
        Incoming &train = incoming_[id];
        // The last report is sent though no chunk follows: the sender may wait for it.
        if (!train.due && (train.arrived == train.reported || now() - train.reported_ns < kReportEvery))
            continue;
        const int64_t after = std::min<int64_t>(train.last_ns - train.first_ns, UINT32_MAX - 1);
        const int64_t waited = (int64_t{train.last_us} - train.least_us) * 1000 / kQueueUnit;
        const auto queue = static_cast<uint32_t>(std::min(waited, (int64_t{1} << (32 - kTrainBits)) - 1)) << kTrainBits;
        if (taken(send(lanes_[static_cast<size_t>(train.link)], previous_, kReport, id | queue,
                       static_cast<uint32_t>(train.arrived / Train::kUnit), static_cast<uint32_t>(after + 1),
                       kControlBytes))) {
            train.due = false;
            train.reported = train.arrived;
            train.reported_ns = now();
            moved = true;
        }
    }
    return moved;
}

bool Measurer::pump() {
    bool moved = false;
    for (size_t i = 0; i < lanes_.size(); ++i) {
        Link &link = *lanes_[i].link;
        moved |= link.progress();
        for (int side = 0; side < 2; ++side) {
            const int peer = side == 0 ? next_ : previous_;
            if (peer < 0 || (side == 1 && previous_ == next_) || !link.reaches(peer))
                continue;
            Arrival arrival;
            for (int taken = 0; taken < 4 && link.receive(peer, arrival); ++taken) {
                take(i, arrival);
                link.release(arrival);
                moved = true;
            }
        }
        Completion completion;
        while (link.completed(completion))
            moved = true;
    }
    return reply() || moved;
}

bool Measurer::drive_pings(Lane &lane, size_t bytes) {
    if (lane.ping_out)
        return false;
    ++lane.ping;
    lane.long_ping = bytes > kControlBytes;
    lane.ping_ns = now();
    const SendResult result = send(lane, next_, kPing, lane.ping, 0, 1, bytes);
    if (result != SendResult::copied && result != SendResult::in_flight) {
        --lane.ping;
        return false;
    }
    const int64_t sent_ns = std::max<int64_t>(now() - lane.ping_ns, 1);
    if (!lane.trips.empty() && !lane.long_ping)
        lane.least_send_ns = lane.least_send_ns == 0 ? sent_ns : std::min(lane.least_send_ns, sent_ns);
    lane.ping_out = true;
    return true;
}

bool Measurer::drive_train(Lane &lane, std::optional<Train> &train, uint32_t id) {
    const size_t bytes = train->next_chunk(now());
    if (bytes == 0 || lane.failed)
        return false;
    const SendResult result = send(lane, next_, kData, id, static_cast<uint32_t>(now() / 1000), 1, bytes);
    if (result != SendResult::copied && result != SendResult::in_flight)
        return false;
    train->sent(bytes);
    return true;
}

bool Measurer::close_train(Lane &lane, std::optional<Train> &train, bool &closed, uint32_t id) {
    if (!train || closed || lane.failed || now() < train->end())
        return false;
    closed = try_control(lane, kLast, id, static_cast<uint32_t>(train->total_sent() / Train::kUnit));
    return closed;
}

bool Measurer::finished() const {
    if (previous_ >= 0 && !bye_received_)
        return false;
    const auto arrived = [](const std::optional<Train> &train) {
        return !train || train->total_reported() == train->total_sent();
    };
    bool any = false;
    for (const Lane &lane : lanes_) {
        // Who has its answers leaves soon, and acknowledges nothing more.
        const bool under_way = lane.link->outstanding() > 0 && now() < most_ns_;
        if (!lane.failed && (!arrived(lane.alone) || !arrived(lane.together) || under_way))
            return false;
        if (!lane.pongs.empty())
            return false;
        any |= works(lane);
    }
    return std::none_of(incoming_.begin(), incoming_.end(), [](const Incoming &train) { return train.due; }) &&
           (bye_sent_ || !any);
}

GroupMeasurement Measurer::run() {
    const int64_t start = now();
    moved_ns_ = start;
    const auto connects = [this](const Lane &lane) {
        return reaches_next(lane) || (previous_ >= 0 && lane.link->reaches(previous_));
    };
    if (std::none_of(lanes_.begin(), lanes_.end(), connects))
        return result(start);
    const double budget = options_.budget_ms * 1e6;
    const auto at = [&](double part) { return start + static_cast<int64_t>(budget * part); };
    const int slots = std::max({1, options_.slots, static_cast<int>(lanes_.size())});
    // Parts of the budget: wake up, each link alone, all together (if there are several), drain.
    const double wake = 0.12, last = 0.90;
    const double each = slots > 1 ? (last - wake) * 0.66 / slots : last - wake;
    const auto never = [] { return false; };

    // A rail's first chunk makes its connection, which must not count as latency; and it shows which links answer.
    loop(
        at(wake),
        [&] {
            bool moved = false;
            for (Lane &lane : lanes_)
                if (reaches_next(lane) && !lane.failed && lane.ping == 0)
                    moved |= drive_pings(lane);
            return moved;
        },
        never);
    const auto close_all = [this] { return this->close_all(); };
    const auto new_train = [&](const Lane &lane, int64_t end) {
        const size_t largest = std::min({lane.link->good_chunk(kSourceBytes), lane.link->max_chunk(), kSourceBytes});
        return Train(now(), end, lane.link->kind() == LinkKind::rail, largest, lane.least_trip());
    };

    for (int slot = 0; slot < slots; ++slot) {
        const int64_t end = at(wake + each * (slot + 1));
        if (static_cast<size_t>(slot) < lanes_.size() && works(lanes_[static_cast<size_t>(slot)])) {
            Lane &lane = lanes_[static_cast<size_t>(slot)];
            const auto id = static_cast<uint32_t>(2 * slot);
            const size_t enough = lane.trips.size() + static_cast<size_t>(options_.pings);
            loop(
                at(wake + each * (slot + kPingPart)), [&] { return drive_pings(lane) || close_all(); },
                [&] { return lane.trips.size() >= enough || lane.failed; });
            // Trains start together on all ranks.
            loop(at(wake + each * (slot + kPingPart)), close_all, never);
            lane.alone.emplace(new_train(lane, end));
            loop(
                end, [&] { return drive_train(lane, lane.alone, id) || close_all(); }, never);
        } else {
            loop(end, close_all, never);
        }
    }

    const auto working = std::count_if(lanes_.begin(), lanes_.end(), [&](const Lane &lane) { return works(lane); });
    if (slots > 1 && working > 1)
        for (Lane &lane : lanes_)
            if (works(lane))
                lane.together.emplace(new_train(lane, at(last)));
    loop(
        at(last),
        [&] {
            bool moved = false;
            for (size_t i = 0; i < lanes_.size(); ++i)
                if (lanes_[i].together)
                    moved |= drive_train(lanes_[i], lanes_[i].together, static_cast<uint32_t>(2 * i + 1));
            return close_all() || moved;
        },
        [&] { return slots == 1; });

    part(at(1.0));
    return result(start);
}

/// Links that need no rate are asked at once. Who has its answers serves others until they say goodbye.
GroupMeasurement Measurer::run_pings() {
    constexpr double kForAnswers = 0.9;
    const int64_t start = now();
    moved_ns_ = start;
    const double budget = options_.budget_ms * 1e6;
    const auto wants_more = [this](const Lane &lane) {
        return reaches_next(lane) && !lane.failed && lane.trips.size() < static_cast<size_t>(options_.pings);
    };
    loop(
        start + static_cast<int64_t>(kForAnswers * budget),
        [&] {
            bool moved = false;
            for (Lane &lane : lanes_)
                if (wants_more(lane))
                    moved |= drive_pings(lane);
            return moved;
        },
        [&] { return std::none_of(lanes_.begin(), lanes_.end(), wants_more); });
    const auto rails = std::ranges::count_if(lanes_, [&](const Lane &lane) { return shows_burst(lane); });
    for (Lane &lane : lanes_)
        if (options_.bursts && rails > 1 && shows_burst(lane))
            look_at_burst(lane, start + static_cast<int64_t>(kForAnswers * budget));
    part(start + static_cast<int64_t>(budget));
    return result(start);
}

/// One link after the other, since all of them need the same cores. What is slow the first time has no burst to show.
void Measurer::look_at_burst(Lane &lane, int64_t end) {
    constexpr int kTimes = 4;
    constexpr int64_t kSlowNs = 3'000'000;
    constexpr int64_t kGoneNs = 100'000'000;
    const int64_t begun = now();
    const auto seen = [&] {
        return lane.failed || lane.bursts == kTimes || (lane.bursts != 0 && lane.burst_ns > kSlowNs) ||
               (lane.bursts == 0 && now() > begun + kSlowNs);
    };
    loop(
        std::min(end, begun + kTimes * kSlowNs), [&] { return !seen() && drive_pings(lane, kBurstBytes); }, seen);
    // Whatever is measured next must not find it in its way.
    loop(
        std::min(end, begun + kGoneNs), [] { return false; }, [&] { return lane.failed || !lane.ping_out; });
}

bool Measurer::close_all() {
    bool moved = false;
    for (size_t i = 0; i < lanes_.size(); ++i) {
        const auto id = static_cast<uint32_t>(2 * i);
        moved |= close_train(lanes_[i], lanes_[i].alone, lanes_[i].alone_closed, id);
        moved |= close_train(lanes_[i], lanes_[i].together, lanes_[i].together_closed, id + 1);
    }
    return moved;
}

/// Goodbye goes over every link that works, so that it arrives even if one of them fails now.
void Measurer::part(int64_t end) {
    std::vector<bool> told(lanes_.size(), false);
    loop(
        end,
        [&] {
            bool moved = close_all();
            for (size_t i = 0; i < lanes_.size(); ++i)
                if (works(lanes_[i]) && !told[i] && try_control(lanes_[i], kBye, 0)) {
                    told[i] = true;
                    bye_sent_ = true;
                    moved = true;
                }
            return moved;
        },
        [&] {
            constexpr int64_t kSoon = 2'000'000;
            if (!options_.rates && bye_sent_ && bye_received_)
                most_ns_ = std::min(most_ns_, now() + kSoon);
            return finished();
        });
}

GroupMeasurement Measurer::result(int64_t start) const {
    GroupMeasurement group;
    group.elapsed_ms = static_cast<double>(now() - start) * 1e-6;
    int measured = 0;
    for (const Lane &lane : lanes_) {
        LinkMeasurement link;
        // Better the first trip than none.
        if (!lane.trips.empty())
            link.latency_ns = static_cast<double>(lane.trips.size() == 1 ? lane.trips[0] : lane.least_trip()) / 2;
        link.send_ns = static_cast<double>(lane.least_send_ns);
        if (lane.bursts > 0)
            link.burst_bytes_per_ns =
                static_cast<double>(kBurstBytes) /
                static_cast<double>(std::max(lane.burst_ns - lane.least_trip(), lane.burst_ns / 4));
        link.bytes_per_ns = lane.alone ? lane.alone->rate() : 0;
        link.together_bytes_per_ns = lane.together ? lane.together->rate() : 0;
        link.bytes =
            (lane.alone ? lane.alone->total_reported() : 0) + (lane.together ? lane.together->total_reported() : 0);
        if (next_ < 0)
            link.reason = "no peer to measure it with";
        else if (!lane.link->reaches(next_))
            link.reason = fmt::format("does not reach rank {}", next_);
        else if (lane.failed)
            link.reason = lane.error.empty() ? fmt::format("failed towards rank {}", next_) : lane.error;
        else if (!lane.answered)
            link.reason = fmt::format("no answer from rank {} within {:.0f} ms", next_, group.elapsed_ms);
        else if (options_.rates && link.bytes_per_ns <= 0 && link.together_bytes_per_ns <= 0)
            link.reason = fmt::format("too slow to be measured in {:.0f} ms", group.elapsed_ms);
        link.answered = lane.answered && !lane.failed;
        link.usable = link.reason.empty();
        // Where a link woke up too late to be measured alone, its rate among others is a lower bound.
        if (link.bytes_per_ns <= 0)
            link.bytes_per_ns = link.together_bytes_per_ns;
        group.together_bytes_per_ns += link.usable ? link.together_bytes_per_ns : 0;
        measured += link.usable ? 1 : 0;
        group.links.push_back(std::move(link));
    }
    // A single link is as fast alone as with all others that there are.
    if (measured == 1)
        for (LinkMeasurement &link : group.links)
            if (link.usable)
                group.together_bytes_per_ns = link.together_bytes_per_ns = link.bytes_per_ns;
    return group;
}

}  // namespace

GroupMeasurement measure_links(std::span<Link *const> links, int next, int previous, const MeasureOptions &options) {
    Measurer measurer(links.first(std::min<size_t>(links.size(), kMaxLinks)), next, previous, options);
    return options.rates ? measurer.run() : measurer.run_pings();
}

}  // namespace flx::probe
