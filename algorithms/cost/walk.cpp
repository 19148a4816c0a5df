#include "algorithms/cost/walk.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <unordered_set>

namespace flx::algorithms {
namespace {

/// Chunks of up to so many bytes go together where they are ready for one peer at the same time: each further one then
/// costs a part of a message.
constexpr double kTogetherBytes = 16 << 10;
constexpr double kTogetherPart = 1.0 / 8;
constexpr uint32_t kNobody = UINT32_MAX;

/// What leads out of the groups of one level, and into them.
struct Gates {
    int hosts = 1;
    double latency_ns = 0;
    double ns_per_byte = 0;
    std::vector<double> out;  ///< when it is free, by group
    std::vector<double> in;
    /// Where one host stands for all: of its message to a host that far and the images of that, those that leave.
    struct Share {
        double most = -1;  ///< of one group, the greatest part of what a whole one has; -1: not reckoned yet
        double all = 0;    ///< of all hosts
    };
    std::vector<Share> shares;
    double bytes = 0;  ///< that went through
};

class Walk {
  public:
    Walk(const StepGraph &graph, const Parts &parts, const CostModel &model, const Fabric &fabric, bool traced)
        : graph_(graph), parts_(parts), model_(model), traced_(traced) {
        const size_t ranks = graph.ranks().size();
        free_.assign(ranks, 0);
        busy_ = free_;
        last_.resize(ranks);
        out_.assign(graph.hosts(), 0);
        in_ = out_;
        const size_t nodes = size_t{graph.steps()} * parts.count;
        waits_.resize(nodes);
        begins_.assign(nodes, 0);
        rank_of_.resize(nodes);
        for (uint32_t rank = 0; rank < ranks; ++rank)
            for (uint32_t index = 0; index < graph.steps(rank); ++index)
                for (uint32_t part = 0; part < parts.count; ++part) {
                    waits_[node({rank, index}, part)] = graph.node({rank, index}).waits;
                    rank_of_[node({rank, index}, part)] = rank;
                }
        if (traced) {
            causes_.assign(nodes, {});
            ends_.assign(nodes, 0);
            ways_.assign(nodes, {});
        }
        for (const Level &level : fabric.levels)
            add_gates(level);
        pace_.assign(ranks, 1);
        for (size_t rank = 0; rank < ranks && fabric.slow.host >= 0; ++rank)
            // What stands for all hosts stands for the slow one, too, which the others wait for.
            if (!graph.all_walked() ||
                graph.placement().host[static_cast<size_t>(graph.ranks()[rank])] == fabric.slow.host)
                pace_[rank] = fabric.slow.times;
    }

    Walked run() {
        if (model_.alone_ns != 0)
            note_peers();
        for (uint32_t node = 0; node < waits_.size(); ++node)
            if (waits_[node] == 0)
                ready_.emplace(0.0, node);
        double end = 0;
        while (!ready_.empty()) {
            const auto [time, node] = ready_.top();
            ready_.pop();
            end = std::max(end, node < waits_.size() ? execute(node, time) : arrive(node - nodes(), time));
        }
        return {end, *std::ranges::max_element(busy_)};
    }

    void tell(WalkReport &report) const;

  private:
    using At = StepGraph::At;
    using Node = StepGraph::Node;

    /// A part of a step of a rank. Of what is ready at one time the first parts go first, as room for chunks is short.
    [[nodiscard]] uint32_t node(At at, uint32_t part) const {
        return graph_.first(at.rank) * parts_.count + part * graph_.steps(at.rank) + at.step;
    }
    [[nodiscard]] At at(uint32_t node) const {
        const uint32_t rank = rank_of_[node];
        return {rank, (node - graph_.first(rank) * parts_.count) % graph_.steps(rank)};
    }
    [[nodiscard]] uint32_t part(uint32_t node) const {
        const uint32_t rank = rank_of_[node];
        return (node - graph_.first(rank) * parts_.count) / graph_.steps(rank);
    }
    [[nodiscard]] uint32_t nodes() const { return static_cast<uint32_t>(waits_.size()); }

    void add_gates(const Level &level) {
        const int hosts = graph_.placement().hosts();
        const int together = std::min(level.hosts, hosts);
        if (together == hosts)
            return;
        Gates gates;
        gates.hosts = together;
        gates.latency_ns = level.latency_ns;
        gates.ns_per_byte = level.taper / model_.far.bytes_per_ns;
        if (graph_.all_walked()) {
            gates.ns_per_byte /= together;
            gates.out.assign(static_cast<size_t>((hosts + together - 1) / together), 0);
        } else {
            gates.out.assign(1, 0);
            gates.shares.resize(static_cast<size_t>(hosts));
        }
        gates.in = gates.out;
        gates_.push_back(std::move(gates));
    }
    /// Which images of a message from host 0 to `host` leave their groups. The last group may be smaller than others.
    [[nodiscard]] Gates::Share leaving(int host, int together) const {
        const Placement &placement = graph_.placement();
        const int hosts = placement.hosts();
        const int rank = placement.ranks[static_cast<size_t>(host)][0];
        int most = 0;
        int all = 0;
        for (int first = 0; first < hosts; first += together) {
            const int count = std::min(together, hosts - first);
            int leave = 0;
            if (graph_.symmetry().turns()) {
                leave = count - std::max(0, count - host) - std::max(0, count - (hosts - host));
            } else {
                for (int from = first; from < first + count; ++from)
                    leave += placement.host[static_cast<size_t>(graph_.symmetry().moved(rank, from))] / together !=
                                     first / together
                                 ? 1
                                 : 0;
            }
            most = std::max(most, leave);
            all += leave;
        }
        return {static_cast<double>(most) / together, static_cast<double>(all) / hosts};
    }

    /// Sums read what came where it lies; all else is copied.
    [[nodiscard]] double bytes_ns(const Node &node) const {
        switch (node.step->kind) {
            case StepKind::send:
            case StepKind::recv:
                return parts_.bytes / (node.is_near ? model_.near.bytes_per_ns : model_.copy_bytes_per_ns);
            case StepKind::recv_reduce:
            case StepKind::gather_reduce:
                return parts_.bytes / model_.add_bytes_per_ns;
            case StepKind::copy:
                break;
        }
        return parts_.bytes / model_.copy_bytes_per_ns;
    }
    [[nodiscard]] double work_ns(At at) const {
        const Node &node = graph_.node(at);
        const TierCost &tier = node.is_near ? model_.near : model_.far;
        switch (node.step->kind) {
            case StepKind::send:
                return tier.send_ns + alone_ns(at, node) + bytes_ns(node);
            case StepKind::recv:
            case StepKind::recv_reduce:
                return tier.receive_ns + alone_ns(at, node) + bytes_ns(node);
            case StepKind::gather_reduce: {
                const Placement &placement = graph_.placement();
                const int own = graph_.ranks()[at.rank];
                const int host = placement.host[static_cast<size_t>(own)];
                double work = 0;
                for (const int32_t member : graph_.group(at)) {
                    const bool near = placement.host[static_cast<size_t>(member)] == host;
                    work += bytes_ns(node) + (member == own ? 0 : (near ? model_.near : model_.far).receive_ns);
                }
                return work;
            }
            case StepKind::copy:
                break;
        }
        return bytes_ns(node);
    }

    /// Whether a rank only sends to this peer, or only receives from it.
    [[nodiscard]] double alone_ns(At at, const Node &node) const {
        if (node.is_near || model_.alone_ns == 0)
            return 0;
        const Peers &peers = peers_[at.rank];
        const std::unordered_set<int32_t> &back =
            node.step->kind == StepKind::send ? peers.received_from : peers.sent_to;
        return peers.adds || back.contains(node.step->peer) ? 0 : model_.alone_ns;
    }

    void note_peers() {
        peers_.resize(graph_.ranks().size());
        for (uint32_t rank = 0; rank < peers_.size(); ++rank) {
            for (uint32_t index = 0; index < graph_.steps(rank); ++index) {
                const Step &step = *graph_.node({rank, index}).step;
                if (step.kind == StepKind::send)
                    peers_[rank].sent_to.insert(step.peer);
                if (step.kind == StepKind::recv || step.kind == StepKind::recv_reduce)
                    peers_[rank].received_from.insert(step.peer);
                peers_[rank].adds |= step.kind == StepKind::gather_reduce;
            }
        }
    }

    void came(uint32_t node, double time, uint32_t from) {
        if (traced_ && time >= begins_[node])
            causes_[node] = {from, false};
        begins_[node] = std::max(begins_[node], time);
        if (--waits_[node] == 0)
            ready_.emplace(begins_[node], node);
    }

    double execute(uint32_t number, double time) {
        const At here = at(number);
        const uint32_t its_part = part(number);
        const Node &node = graph_.node(here);
        const Step &step = *node.step;
        const double bytes = parts_.bytes;
        const bool together = goes_along(node, here.rank, time);
        const double work = pace_[here.rank] * (work_ns(here) - (together ? saved_ns(step.kind) : 0));
        Last &last = last_[here.rank];
        if (traced_ && free_[here.rank] > time)
            causes_[number] = {last.node, true};
        const double end = std::max(time, free_[here.rank]) + work;
        last = {step.kind, step.peer, end, number};
        free_[here.rank] = end;
        busy_[here.rank] += work;
        if (traced_)
            ends_[number] = end;
        for (const uint32_t follower : graph_.followers(here))
            came(this->node({here.rank, follower}, its_part), end, number);
        if (step.kind != StepKind::send)
            return end;
        if (node.is_near) {
            near_bytes_ += bytes;
            ++near_messages_;
            came(this->node(node.receiver, its_part), end + model_.near.latency_ns, number);
            return end;
        }
        far_bytes_ += bytes;
        far_messages_ += together ? kTogetherPart : 1;
        // A rail, and who serves it, is busy with a message as well as with its bytes.
        double &out = out_[static_cast<size_t>(node.from_host)];
        out = std::max(out, end) + bytes / model_.far.bytes_per_ns + (together ? 0 : model_.far.send_ns / 4);
        ready_.emplace(out, number + nodes());
        return end;
    }

    /// Whether it was ready, for or from the peer on another host of the rank's last step, before that step ended.
    [[nodiscard]] bool goes_along(const Node &node, uint32_t rank, double time) const {
        const Last &last = last_[rank];
        return node.step->peer >= 0 && last.peer == node.step->peer && last.kind == node.step->kind &&
               time <= last.end && parts_.bytes <= kTogetherBytes && !node.is_near;
    }
    [[nodiscard]] double saved_ns(StepKind kind) const {
        return (1 - kTogetherPart) * (kind == StepKind::send ? model_.far.send_ns : model_.far.receive_ns);
    }

    /// What a send put on the rails has left its host.
    double arrive(uint32_t number, double time) {
        const Node &node = graph_.node(at(number));
        Way way{model_.far.latency_ns, parts_.bytes / model_.far.bytes_per_ns};
        for (Gates &gates : gates_) {
            const auto group = [&](int32_t host) {
                return gates.shares.empty() ? static_cast<size_t>(host / gates.hosts) : 0;
            };
            const size_t from = group(node.from_host);
            const size_t to = group(node.to_host);
            const Gates::Share share = share_of(gates, node, from != to);
            if (share.most == 0)
                continue;
            const double needed = share.most * parts_.bytes * gates.ns_per_byte;
            time = gates.out[from] = std::max(gates.out[from] + needed, time);
            time = gates.in[to] = std::max(gates.in[to] + needed, time);
            way.latency += share.all * gates.latency_ns;
            way.wire = std::max(way.wire, needed);
            gates.bytes += share.all * parts_.bytes;
        }
        if (traced_)
            ways_[number] = way;
        double &in = in_[static_cast<size_t>(node.to_host)];
        in = std::max(in + parts_.bytes / model_.far.bytes_per_ns, time);
        came(this->node(node.receiver, part(number)), in + way.latency, number);
        return in;
    }
    /// `crosses`: where all ranks are walked, whether the two hosts are of different groups.
    [[nodiscard]] Gates::Share share_of(Gates &gates, const Node &node, bool crosses) const {
        if (gates.shares.empty())
            return crosses ? Gates::Share{1, 1} : Gates::Share{0, 0};
        Gates::Share &share = gates.shares[static_cast<size_t>(node.peer_host)];
        if (share.most < 0)
            share = leaving(node.peer_host, gates.hosts);
        return share;
    }

    /// Of a message between hosts: what it takes even if it waits for nothing.
    struct Way {
        double latency = 0;
        double wire = 0;  ///< bytes, where they take longest
    };
    /// Why a node began when it did.
    struct Cause {
        uint32_t node = kNobody;
        bool busy = false;  ///< its rank did that one before
    };
    struct Last {
        StepKind kind = StepKind::copy;
        int peer = -1;
        double end = 0;
        uint32_t node = kNobody;
    };
    using Ready = std::tuple<double, uint32_t>;

    const StepGraph &graph_;
    const Parts parts_;
    const CostModel &model_;
    const bool traced_;
    /// A rank's peers, where it matters whether messages go both ways.
    struct Peers {
        std::unordered_set<int32_t> sent_to;
        std::unordered_set<int32_t> received_from;
        bool adds = false;  ///< what all send each other, so they exchange it
    };
    std::vector<Peers> peers_;
    std::vector<uint32_t> waits_;  // for so many dependencies and messages
    std::vector<double> begins_;   // when the last of those was there
    std::vector<uint32_t> rank_of_;
    std::vector<double> pace_;  // ranks: how many times as long they take as others
    std::vector<double> free_;  // likewise: when they are
    std::vector<double> busy_;
    std::vector<Last> last_;   // what each rank did last
    std::vector<double> out_;  // rails of hosts
    std::vector<double> in_;
    std::vector<Gates> gates_;
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
    double near_bytes_ = 0;
    double near_messages_ = 0;
    double far_bytes_ = 0;
    double far_messages_ = 0;
    std::vector<Cause> causes_;  // if traced
    std::vector<double> ends_;
    std::vector<Way> ways_;
};

void Walk::tell(WalkReport &report) const {
    const double times = static_cast<double>(graph_.placement().size()) / static_cast<double>(graph_.ranks().size());
    report = {.near_bytes = near_bytes_ * times,
              .far_bytes = far_bytes_ * times,
              .across_bytes = {},
              .near_messages = near_messages_ * times,
              .far_messages = far_messages_ * times,
              .far_block = parts_.bytes * parts_.count,
              .path = {}};
    for (const Gates &gates : gates_)
        report.across_bytes.push_back(gates.bytes * times);
    CriticalPath &path = report.path;
    auto at_node = static_cast<uint32_t>(std::ranges::max_element(ends_) - ends_.begin());
    while (at_node != kNobody) {
        const Node &node = graph_.node(at(at_node));
        const Cause cause = causes_[at_node];
        const double before = cause.node == kNobody ? 0 : ends_[cause.node];
        const double bytes =
            pace_[at(at_node).rank] * bytes_ns(node) *
            (node.step->kind == StepKind::gather_reduce ? static_cast<double>(graph_.group(at(at_node)).size()) : 1);
        const Node *sent = cause.node == kNobody ? nullptr : &graph_.node(at(cause.node));
        const bool message = sent != nullptr && !cause.busy && sent->step->kind == StepKind::send &&
                             graph_.node(sent->receiver).step == node.step;
        const double begun = cause.busy || cause.node == kNobody ? before : std::max(before, begins_[at_node]);
        const double work = ends_[at_node] - begun;
        (node.step->kind == StepKind::recv_reduce || node.step->kind == StepKind::gather_reduce ? path.sums
                                                                                                : path.copies) += bytes;
        path.messages += work - bytes;
        if (message) {
            const Way way = sent->is_near ? Way{model_.near.latency_ns, 0} : ways_[cause.node];
            const double gap = begun - before;
            const double latency = std::min(gap, way.latency);
            const double wire = std::min(gap - latency, way.wire);
            path.latency += latency;
            path.wire += wire;
            path.queue += gap - latency - wire;
            ++(sent->is_near ? path.near_hops : path.far_hops);
        }
        at_node = cause.node;
    }
}

}  // namespace

Walked walk(const StepGraph &graph, const Parts &parts, const CostModel &model, const Fabric &fabric,
            WalkReport *report) {
    Walk one(graph, parts, model, fabric, report != nullptr);
    const Walked walked = one.run();
    if (report != nullptr)
        one.tell(*report);
    return walked;
}

}  // namespace flx::algorithms
