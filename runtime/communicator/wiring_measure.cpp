/// What a communicator's links deliver, alone and together, measured when it is made.
#include <algorithm>
#include <bit>
#include <ctime>

#include "probe/measure.h"
#include "probe/sharing.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/packed.h"
#include "runtime/communicator/communicator.h"
#include "runtime/kept/kept_links.h"

namespace flx {
namespace {

/// Of two times; 0: not measured.
void keep_less(double &time, double other) {
    if (other > 0)
        time = time > 0 ? std::min(time, other) : other;
}

/// Whatever disturbs a measurement makes it worse.
void keep_better(LinkMeasured &best, const LinkMeasured &found) {
    if (!found.done)
        return;
    if (!best.done)
        best = found;
    best.latency_ns = std::min(best.latency_ns, found.latency_ns);
    best.bytes_per_ns = std::max(best.bytes_per_ns, found.bytes_per_ns);
    best.together_bytes_per_ns = std::max(best.together_bytes_per_ns, found.together_bytes_per_ns);
    keep_less(best.send_ns, found.send_ns);
}

}  // namespace

Status Communicator::measure(const Communicator *parent) {
    if (layout_.size == 1 || take_measurements(parent))
        return {};
    const int64_t budget_ms = knobs_.all.integer("FLX_PROBE_MS");
    if (budget_ms == 0) {
        // Nothing is known: shared memory within a host, all rails alike between hosts.
        for (LinkSlot &slot : links_) {
            slot.far.done = true;
            slot.near.done = links_[0].link == nullptr || slot.link == links_[0].link;
        }
        return {};
    }
    bool known = false;
    FLX_TRY(recall_near(known));
    if (known)
        return {};
    const int64_t began = now_ns();
    KeptLinks kept(layout_.rank == 0 ? cache_folder(knobs_.all.text("FLX_CACHE")) : std::string(), time(nullptr));
    std::vector<LinksMeasured> all;
    FLX_TRY(recall_measurements(kept, all, known));
    // A first connection may take 50 ms, which is more than a link's part of the probe.
    constexpr double kMostMs = 200;  // a moment, where links answer
    std::vector<LinksMeasured> answers;
    FLX_TRY(measure_all({.budget_ms = kMostMs, .rates = false}, answers));
    if (const std::string changed = known ? what_changed(all, answers, names_of(links_)) : ""; !changed.empty()) {
        known = false;
        if (layout_.rank == 0)
            log().info("links are measured again, as they changed: {}", changed);
    }
    if (!known) {
        for (LinkSlot &slot : links_)
            if (slot.link != nullptr)
                slot.why_off.clear();
        FLX_TRY(measure_all({.budget_ms = static_cast<double>(budget_ms)}, all));
    }
    for (size_t rank = 0; rank < all.size(); ++rank)
        for (size_t place = 0; place < 2 * kMaxLinks; ++place)
            if (LinkMeasured &link = all[rank][place]; link.answered) {
                keep_less(link.latency_ns, answers[rank][place].latency_ns);
                keep_less(link.send_ns, answers[rank][place].send_ns);
            }
    if (!known && layout_.rank == 0)
        kept.keep(description_of_links(), all);
    made_.measured = kept.state();
    note_measured(all, answers);
    made_.costs = costs_of(all);
    for (size_t place = kMaxLinks; place < 2 * kMaxLinks; ++place)
        if (std::ranges::any_of(all, [&](const auto &rank) { return rank[place].together_bytes_per_ns > 0; }))
            ++made_.measured_rails;
    made_.probe_ns = now_ns() - began;
    log().info("probed {} links in {:.0f} ms; {}", links_.size(), made_.probe_ns / 1e6, made_.measured);
    find_sharing(all);
    remember_near();
    return {};
}

/// What was found of the links within one host.
struct Communicator::Near {
    std::array<LinkMeasured, kMaxLinks> links;
    algorithms::CostModel costs;
};

/// What they depend on.
std::string Communicator::description_of_near() const {
    std::string text = fmt::format("links of {} ranks, {} {}", layout_.size,
                                   knobs_.all.values_of(KnobScope::communicator), knobs_.all.text("FLX_RAILS"));
    for (const LinkSlot &slot : links_)
        text += fmt::format("; {}", slot.identity);
    return text;
}

/// Ranks of one host need not measure what those of another communicator did.
Status Communicator::recall_near(bool &known) {
    if (layout_.hosts > 1)
        return {};
    Near near;
    FLX_TRY(recall(description_of_near(), near, known));
    if (!known)
        return {};
    for (size_t l = 0; l < links_.size(); ++l)
        links_[l].near = near.links[l];
    made_.costs = near.costs;
    made_.measured = "links are as another communicator of this process has measured them";
    return {};
}

void Communicator::remember_near() {
    if (layout_.hosts > 1 || std::ranges::none_of(links_, [](const LinkSlot &slot) { return slot.near.done; }))
        return;
    Near near;
    for (size_t l = 0; l < links_.size(); ++l)
        near.links[l] = links_[l].near;
    near.costs = made_.costs;
    remember(description_of_near(), near);
}

/// `answers`: of this start, whatever is known of rates from an earlier one.
void Communicator::note_measured(const std::vector<LinksMeasured> &all, const std::vector<LinksMeasured> &answers) {
    const LinksMeasured &mine = all[layout_.rank];
    for (size_t l = 0; l < links_.size(); ++l) {
        links_[l].near = mean_of(all, l);
        links_[l].far =
            mine[kMaxLinks + l].done ? among(all, kMaxLinks + l, mine[kMaxLinks + l]) : mean_of(all, kMaxLinks + l);
        links_[l].near.small_ns = small_ns(all, l);
        links_[l].far.small_ns = small_ns(all, kMaxLinks + l);
        for (int rank = 0; rank < layout_.size; ++rank)
            if (layout_.near(rank) && all[rank][kMaxLinks + l].done) {
                links_[l].far.host_bytes_per_ns += all[rank][kMaxLinks + l].bytes_per_ns;
                links_[l].far.burst_bytes_per_ns =
                    std::max(links_[l].far.burst_bytes_per_ns, answers[rank][kMaxLinks + l].burst_bytes_per_ns);
            }
    }
}

/// What measurements depend on: which rank is on which host, the links, and the knobs.
std::string Communicator::description_of_links() const {
    std::string text = fmt::format("{} ranks", layout_.size);
    for (const Member &member : layout_.members)
        text += fmt::format(
            ", {} {} {:016x}", member.host, member.hostname,
            std::hash<std::string_view>{}(std::string_view(reinterpret_cast<const char *>(member.cpus.data()),
                                                           member.cpus.size() * sizeof member.cpus[0])));
    for (const LinkSlot &slot : links_)
        text += fmt::format("; {} {}", slot.name, slot.identity);
    return fmt::format("{}; {} {} {}", text, knobs_.all.values_of(KnobScope::communicator),
                       knobs_.all.text("FLX_RAILS"), knobs_.all.size("FLX_RAIL_WINDOW"));
}

/// Rank 0's file counts, and all ranks get what is in it.
Status Communicator::recall_measurements(KeptLinks &kept, std::vector<LinksMeasured> &all, bool &known) {
    std::string mine;
    if (layout_.rank == 0 && kept.find(description_of_links(), layout_.members.size(), all))
        mine = pack(to_json(all));
    std::vector<std::string> texts;
    FLX_TRY(bootstrap_->allgather_text(mine, texts));
    known = !texts[0].empty();
    if (!known)
        return {};
    nlohmann::json text;
    FLX_TRY(unpack(texts[0], 0, text));
    all = links_from_json(text, layout_.members.size());  // all ranks read the same, well or not
    return {};
}

/// Within each host and between hosts, by rank.
Status Communicator::measure_all(const probe::MeasureOptions &options, std::vector<LinksMeasured> &all) {
    std::vector<std::vector<int>> on_host(layout_.hosts);
    for (int rank = 0; rank < layout_.size; ++rank)
        on_host[layout_.members[rank].host].push_back(rank);
    probe::MeasureOptions part = options;
    if (layout_.most_per_host > 1 && layout_.hosts > 1)
        part.budget_ms /= 2;
    LinksMeasured mine{};
    if (layout_.most_per_host > 1)
        FLX_TRY(measure_near(on_host[layout_.host], part, std::span(mine).first<kMaxLinks>()));
    if (layout_.hosts > 1)
        FLX_TRY(measure_far(on_host, part, std::span(mine).last<kMaxLinks>()));
    all.resize(layout_.members.size());
    return bootstrap_->allgather(mine.data(), sizeof mine, all.data());
}

/// Whether `parent` has the same links, whose measurements hold here, too.
bool Communicator::take_measurements(const Communicator *parent) {
    const auto same = [](const LinkSlot &a, const LinkSlot &b) { return a.identity == b.identity; };
    if (parent == nullptr ||
        !std::equal(links_.begin(), links_.end(), parent->links_.begin(), parent->links_.end(), same))
        return false;
    for (size_t l = 0; l < links_.size(); ++l) {
        links_[l].near = parent->links_[l].near;
        links_[l].far = parent->links_[l].far;
    }
    made_.sharing = parent->made_.sharing;
    made_.costs = parent->made_.costs;
    made_.measured_rails = parent->made_.measured_rails;
    return true;
}

/// Loads the links towards the next rank on this host; `ring`: its ranks. All links live on the same cores there, and
/// whatever else runs disturbs: twice, the better counts.
Status Communicator::measure_near(const std::vector<int> &ring, probe::MeasureOptions options,
                                  std::span<LinkMeasured, kMaxLinks> best) {
    const int rounds = options.rates ? 2 : 1;
    options.budget_ms /= rounds;
    const int local = layout_.members[layout_.rank].local;
    const bool alone = ring.size() == 1;
    for (int round = 0; round < rounds; ++round) {
        std::array<LinkMeasured, kMaxLinks> found{};
        FLX_TRY(measure_ring(alone ? -1 : ring[(local + 1) % ring.size()],
                             alone ? -1 : ring[(local + ring.size() - 1) % ring.size()], options, found));
        for (size_t l = 0; l < found.size(); ++l) {
            keep_better(best[l], found[l]);
            if (l < links_.size() && links_[l].link && best[l].done)
                links_[l].why_off.clear();  // of the other round
        }
    }
    return {};
}

/// Loads the links towards the next host: as many ranks of each do as all hosts have. `on_host`: each host's ranks.
Status Communicator::measure_far(const std::vector<std::vector<int>> &on_host, const probe::MeasureOptions &options,
                                 std::span<LinkMeasured, kMaxLinks> found) {
    const auto least = std::ranges::min_element(on_host, {}, [](const auto &ranks) { return ranks.size(); });
    const int local = layout_.members[layout_.rank].local;
    const bool idle = local >= static_cast<int>(least->size());
    // One rank of a host sees what a rail lets pass at once: all at once would see what the others leave of it.
    probe::MeasureOptions mine = options;
    mine.bursts = !options.rates && local == 0;
    return measure_ring(idle ? -1 : on_host[(layout_.host + 1) % layout_.hosts][local],
                        idle ? -1 : on_host[(layout_.host + layout_.hosts - 1) % layout_.hosts][local], mine, found);
}

Status Communicator::measure_ring(int next, int previous, probe::MeasureOptions options,
                                  std::span<LinkMeasured, kMaxLinks> found) {
    std::vector<Link *> links;
    std::vector<size_t> index;
    for (size_t l = 0; l < links_.size(); ++l) {
        Link *link = links_[l].link.get();
        if ((next >= 0 && routes_.reaches(l, next)) || (previous >= 0 && routes_.reaches(l, previous))) {
            links.push_back(link);
            index.push_back(l);
        }
    }
    const auto count = static_cast<int32_t>(links.size());
    std::vector<int32_t> counts(layout_.size);
    FLX_TRY(bootstrap_->allgather(&count, sizeof count, counts.data()));
    options.comm = id_;
    options.slots = *std::max_element(counts.begin(), counts.end());
    // A link that has nobody to be compared with is measured for reports only.
    if (options.slots == 1)
        options.budget_ms = std::min(options.budget_ms, 20.0);
    if (options.slots == 0)
        return {};
    FLX_TRY(bootstrap_->barrier());
    const probe::GroupMeasurement result = probe::measure_links(links, next, previous, options);
    FLX_TRY(bootstrap_->barrier());
    for (size_t i = 0; i < index.size() && next >= 0; ++i) {
        const probe::LinkMeasurement &measured = result.links[i];
        found[index[i]] = {.done = measured.usable,
                           .answered = measured.answered,
                           .latency_ns = measured.latency_ns,
                           .bytes_per_ns = measured.bytes_per_ns,
                           .together_bytes_per_ns = measured.together_bytes_per_ns,
                           .burst_bytes_per_ns = measured.burst_bytes_per_ns,
                           .send_ns = measured.send_ns};
        if (!measured.usable)
            links_[index[i]].why_off = measured.reason;
    }
    return {};
}

/// A host's rails that divide a wire, a card or cores, where all its ranks that measured found so. Their shares follow
/// from the rates together; that is only said.
void Communicator::find_sharing(const std::vector<LinksMeasured> &all) {
    for (int host = 0; host < layout_.hosts && layout_.hosts > 1; ++host) {
        uint32_t shared = ~0U;
        int first = -1;
        for (int rank = 0; rank < layout_.size; ++rank) {
            const LinkMeasured *far = all[rank].data() + kMaxLinks;
            if (layout_.members[rank].host != host ||
                std::none_of(far, far + kMaxLinks, [](auto &link) { return link.done; }))
                continue;
            std::array<probe::Rates, kMaxLinks> rates{};
            for (size_t l = 0; l < links_.size(); ++l)
                rates[l] = {far[l].bytes_per_ns, far[l].together_bytes_per_ns};
            shared &= probe::links_that_share(rates);
            first = first < 0 ? rank : first;
        }
        if (first < 0 || std::popcount(shared) < 2)
            continue;
        std::string names;
        double together = 0;
        double alone = 0;
        for (uint32_t mask = shared; mask != 0; mask &= mask - 1) {
            const int link = std::countr_zero(mask);
            const LinkMeasured &far = all[first][kMaxLinks + link];
            const char *between = (mask & (mask - 1)) == 0 ? " and " : ", ";
            names += (names.empty() ? "" : between) + links_[link].name;
            alone = std::max(alone, far.bytes_per_ns);
            together += far.together_bytes_per_ns;
        }
        made_.sharing.push_back(
            fmt::format("rails {} of host {} share a wire, a card or cores: {:.3f} GB/s alone, {:.3f} together", names,
                        layout_.members[first].hostname, alone, together));
        if (layout_.rank == 0)
            log().info("{}", made_.sharing.back());
    }
}

/// Of what each rank measured in one place: the mean, since a rank that lost its core for a moment saw little.
LinkMeasured Communicator::mean_of(const std::vector<LinksMeasured> &all, size_t place) {
    LinkMeasured mean;
    double ranks = 0;
    for (const auto &rank : all) {
        const LinkMeasured &one = rank[place];
        if (!one.done)
            continue;
        ++ranks;
        mean.latency_ns += one.latency_ns;
        mean.bytes_per_ns += one.bytes_per_ns;
        mean.together_bytes_per_ns += one.together_bytes_per_ns;
        keep_less(mean.send_ns, one.send_ns);
    }
    if (ranks == 0)
        return mean;
    return {.done = true,
            .latency_ns = mean.latency_ns / ranks,
            .bytes_per_ns = mean.bytes_per_ns / ranks,
            .together_bytes_per_ns = mean.together_bytes_per_ns / ranks,
            .send_ns = mean.send_ns};
}

/// What is believed of a rail of this rank at first: the median of what all ranks found of that rail. A probe of some
/// ms is off by a fifth on a machine that is a little busy, and where one rank's shares are off all wait for it.
LinkMeasured Communicator::among(const std::vector<LinksMeasured> &all, size_t place, const LinkMeasured &own) {
    constexpr double kAlike = 1.5;
    std::vector<double> values;
    const auto median = [&](double LinkMeasured::*what) {
        values.clear();
        for (const auto &rank : all)
            if (rank[place].done && rank[place].*what > 0)
                values.push_back(rank[place].*what);
        if (values.empty())
            return own.*what;
        std::sort(values.begin(), values.end());
        return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
    };
    const auto measured = std::ranges::count_if(all, [&](const auto &rank) { return rank[place].done; });
    const double alone = median(&LinkMeasured::bytes_per_ns);
    const double together = median(&LinkMeasured::together_bytes_per_ns);
    LinkMeasured result = own;
    for (const auto &rank : all) {
        if (rank[place].done && rank[place].latency_ns > 0)
            result.latency_ns = std::min(result.latency_ns, rank[place].latency_ns);
        if (rank[place].done)
            keep_less(result.send_ns, rank[place].send_ns);
    }
    // No burst lasts for all of a probe: one that is much faster is so. One that looks much slower may be, or its rank
    // had no core; of two that differ so who is right cannot be told.
    const bool faster = own.bytes_per_ns > kAlike * alone && own.together_bytes_per_ns > kAlike * together;
    const bool slower = own.bytes_per_ns * kAlike < alone && own.together_bytes_per_ns * kAlike < together;
    if (faster || (slower && measured < 3))
        return result;
    result.bytes_per_ns = alone;
    result.together_bytes_per_ns = together;
    return result;
}

/// What a chunk of 4 KiB takes, by the best that any rank measured: what disturbs makes a link look slower, never
/// faster, and all ranks shall find the same.
double Communicator::small_ns(const std::vector<LinksMeasured> &all, size_t place) {
    constexpr double kBytes = 4096;
    constexpr double kUnknown = 1e12;
    double latency = kUnknown;
    double rate = 0;
    for (const auto &rank : all) {
        const LinkMeasured &one = rank[place];
        if (!one.done)
            continue;
        latency = std::min(latency, one.latency_ns);
        rate = std::max({rate, one.bytes_per_ns, one.together_bytes_per_ns});
    }
    return rate > 0 ? latency + kBytes / rate : kUnknown;
}

/// What plans reckon with, the same on all ranks: the least latency between hosts that any link showed, with that
/// link's work for a message, as what disturbs makes both longer, and a host's rails together, of the host that has
/// least. How fast ranks copy and add was not measured alone: ranks that share cores made it look slower by factors.
algorithms::CostModel Communicator::costs_of(const std::vector<LinksMeasured> &all) const {
    // Beside others that work a rank takes longer than when it is measured: it shares caches, memory and the kernel.
    // What sends takes most, as the kernel carries the message on before it returns.
    constexpr double kBeside = 1.4;
    constexpr double kSentBeside = 2;
    // Of what is left of a message's way, the receiver's work takes a part, and not more than the sender's.
    constexpr double kReceived = 0.6;
    constexpr double kSent = 0.6;  // where it was not measured
    algorithms::CostModel costs = nominal_costs();
    double latency = 0;
    double send = 0;
    std::vector<double> hosts(static_cast<size_t>(layout_.hosts));
    for (size_t rank = 0; rank < all.size(); ++rank)
        for (size_t place = kMaxLinks; place < 2 * kMaxLinks; ++place) {
            const LinkMeasured &far = all[rank][place];
            if (!far.done)
                continue;
            hosts[static_cast<size_t>(layout_.host_of(static_cast<int>(rank)))] += far.together_bytes_per_ns;
            if (far.latency_ns > 0 && (latency == 0 || far.latency_ns < latency)) {
                latency = far.latency_ns;
                send = far.send_ns > 0 ? std::min(far.send_ns, latency) : kSent * latency;
            }
        }
    if (latency > 0) {
        const double receive = std::min(send, kReceived * (latency - send));
        costs.far.send_ns = kSentBeside * send;
        costs.far.receive_ns = kBeside * receive;
        costs.far.latency_ns = kBeside * (latency - send - receive);
    }
    double least = 0;
    for (const double host : hosts)
        least = host > 0 && (least == 0 || host < least) ? host : least;
    if (least > 0)
        costs.far.bytes_per_ns = least;
    return costs;
}

/// Waits, not long, until nothing that probing sent is under way on any rank: links that no operation uses are not
/// looked at any more, and what came when its receiver had seen enough would fill room that the first messages need.
Status Communicator::settle_probing() {
    constexpr int kRounds = 40;
    constexpr int64_t kRoundNs = 2'000'000;
    std::vector<uint8_t> all(layout_.size);
    for (int round = 0; layout_.size > 1 && round < kRounds; ++round) {
        const int64_t end = now_ns() + kRoundNs;
        do {
            drop_strays();
            sched_yield();
        } while (!settled() && now_ns() < end);
        const uint8_t open = settled() ? 0 : 1;
        FLX_TRY(bootstrap_->allgather(&open, sizeof open, all.data()));
        if (std::find(all.begin(), all.end(), 1) == all.end())
            break;
    }
    return {};
}

}  // namespace flx
