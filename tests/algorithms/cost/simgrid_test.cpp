#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

#include "algorithms/cost/predict.h"

namespace flx::algorithms {
namespace {

namespace s4u = simgrid::s4u;

constexpr double kPerSecond = 1e9;  // of nanoseconds, and of bytes per bytes/ns

Placement even(int hosts, int ranks) {
    std::vector<int> host_of;
    for (int rank = 0; rank < hosts * ranks; ++rank)
        host_of.push_back(rank / ranks);
    return Placement::of(host_of);
}

/// Ranks take about as long as rails.
CostModel balanced() {
    return {.near = {.latency_ns = 300, .send_ns = 150, .receive_ns = 150, .bytes_per_ns = 8},
            .far = {.latency_ns = 2000, .send_ns = 1500, .receive_ns = 1500, .bytes_per_ns = 2},
            .copy_bytes_per_ns = 8,
            .add_bytes_per_ns = 10};
}

/// Rails are what takes time.
CostModel slow_rails() {
    return {.near = {.latency_ns = 30, .send_ns = 15, .receive_ns = 15, .bytes_per_ns = 80},
            .far = {.latency_ns = 2000, .send_ns = 150, .receive_ns = 150, .bytes_per_ns = 1},
            .copy_bytes_per_ns = 80,
            .add_bytes_per_ns = 100};
}

/// One call in SimGrid: a processor for each rank, a link out of each host and one into it, and the same of each group
/// of a fabric's only level. Messages share links and a rank's steps share its processor, where the walk lets one after
/// another go.
class Call {
  public:
    Call(s4u::NetZone *zone, const std::string &name, const StepGraph &graph, double bytes, const CostModel &costs,
         const Fabric &fabric)
        : name_(name), zone_(zone), graph_(graph), bytes_(bytes / graph.blocks()), costs_(costs), fabric_(fabric) {
        const Placement &placement = graph.placement();
        make_links(placement.hosts());
        for (int rank = 0; rank < placement.size(); ++rank)
            ranks_.push_back(zone->create_host(name + "-rank" + std::to_string(rank), kPerSecond));
        for (int from = 0; from < placement.size(); ++from)
            for (int to = 0; to < placement.size(); ++to)
                if (from != to)
                    join(from, to, placement);
    }

    /// Steps are tasks, each of which waits for those before it and for messages.
    void start() {
        std::vector<std::vector<s4u::ExecPtr>> tasks(graph_.ranks().size());
        for (uint32_t rank = 0; rank < tasks.size(); ++rank)
            for (uint32_t step = 0; step < graph_.steps(rank); ++step) {
                tasks[rank].push_back(s4u::Exec::init());
                tasks[rank].back()->set_flops_amount(work_ns({rank, step}))->set_host(ranks_[rank]);
                tasks_.push_back(tasks[rank].back());
            }
        for (uint32_t rank = 0; rank < tasks.size(); ++rank)
            for (uint32_t step = 0; step < graph_.steps(rank); ++step) {
                for (const uint32_t follower : graph_.followers({rank, step}))
                    tasks[rank][step]->add_successor(tasks[rank][follower]);
                const StepGraph::Node &node = graph_.node({rank, step});
                if (node.step->kind != StepKind::send)
                    continue;
                const s4u::CommPtr message = s4u::Comm::sendto_init(ranks_[rank], ranks_[node.receiver.rank]);
                message->set_payload_size(node.is_near ? 1 : bytes_);
                tasks[rank][step]->add_successor(message);
                message->add_successor(tasks[node.receiver.rank][node.receiver.step]);
                messages_.push_back(message);
            }
        for (const s4u::ExecPtr &task : tasks_)
            task->vetoable_start();
        for (const s4u::CommPtr &message : messages_)
            message->vetoable_start();
    }
    [[nodiscard]] double end_ns() const {
        double end = 0;
        for (const s4u::ExecPtr &task : tasks_)
            end = std::max(end, task->get_finish_time());
        return end * kPerSecond;
    }

  private:
    void make_links(int hosts) {
        for (int host = 0; host < hosts; ++host)
            for (std::vector<s4u::Link *> *links : {&out_, &in_}) {
                const std::string way = links == &out_ ? "-out" : "-in";
                links->push_back(
                    zone_->create_link(name_ + way + std::to_string(host), costs_.far.bytes_per_ns * kPerSecond)
                        ->set_latency(links == &out_ ? costs_.far.latency_ns / kPerSecond : 0));
            }
        for (const Level &level : fabric_.levels)
            for (int group = 0; group * level.hosts < hosts; ++group)
                for (std::vector<s4u::Link *> *links : {&group_out_, &group_in_}) {
                    const std::string way = links == &group_out_ ? "-leaves" : "-enters";
                    const double rate = level.hosts * costs_.far.bytes_per_ns / level.taper;
                    links->push_back(zone_->create_link(name_ + way + std::to_string(group), rate * kPerSecond)
                                         ->set_latency(links == &group_out_ ? level.latency_ns / kPerSecond : 0));
                }
        near_ = zone_->create_link(name_ + "-near", 1e6 * kPerSecond)
                    ->set_latency(costs_.near.latency_ns / kPerSecond)
                    ->set_sharing_policy(s4u::Link::SharingPolicy::FATPIPE);
    }
    void join(int from, int to, const Placement &placement) {
        const auto host = [&](int rank) { return static_cast<size_t>(placement.host[static_cast<size_t>(rank)]); };
        std::vector<s4u::LinkInRoute> links;
        if (host(from) == host(to))
            links.emplace_back(near_);
        else
            for (s4u::Link *link : {out_[host(from)], in_[host(to)]})
                links.emplace_back(link);
        for (const Level &level : fabric_.levels)
            if (const auto hosts = static_cast<size_t>(level.hosts); host(from) / hosts != host(to) / hosts)
                for (s4u::Link *link : {group_out_[host(from) / hosts], group_in_[host(to) / hosts]})
                    links.emplace_back(link);
        zone_->add_route(ranks_[static_cast<size_t>(from)]->get_netpoint(),
                         ranks_[static_cast<size_t>(to)]->get_netpoint(), nullptr, nullptr, links, false);
    }
    [[nodiscard]] double work_ns(StepGraph::At at) const {
        const StepGraph::Node &node = graph_.node(at);
        const TierCost &tier = node.is_near ? costs_.near : costs_.far;
        const double copied = bytes_ / (node.is_near ? costs_.near.bytes_per_ns : costs_.copy_bytes_per_ns);
        switch (node.step->kind) {
            case StepKind::send:
                return tier.send_ns + copied;
            case StepKind::recv:
                return tier.receive_ns + copied;
            case StepKind::recv_reduce:
                return tier.receive_ns + bytes_ / costs_.add_bytes_per_ns;
            case StepKind::gather_reduce: {
                const Placement &placement = graph_.placement();
                double work = 0;
                for (const int32_t member : graph_.group(at)) {
                    const bool near = placement.host[static_cast<size_t>(member)] == placement.host[at.rank];
                    work += bytes_ / costs_.add_bytes_per_ns;
                    work += member == static_cast<int>(at.rank) ? 0 : (near ? costs_.near : costs_.far).receive_ns;
                }
                return work;
            }
            case StepKind::copy:
                break;
        }
        return bytes_ / costs_.copy_bytes_per_ns;
    }

    std::string name_;
    s4u::NetZone *zone_;
    const StepGraph &graph_;
    double bytes_;  // of a block
    const CostModel &costs_;
    Fabric fabric_;
    std::vector<s4u::Host *> ranks_;
    std::vector<s4u::Link *> out_;
    std::vector<s4u::Link *> in_;
    std::vector<s4u::Link *> group_out_;
    std::vector<s4u::Link *> group_in_;
    s4u::Link *near_ = nullptr;
    std::vector<s4u::ExecPtr> tasks_;
    std::vector<s4u::CommPtr> messages_;
};

/// Blocks of up to 64 KiB go whole, and those of more than 16 KiB never go together: both engines do the same then.
/// SimGrid runs once in a process, so all calls run in it side by side, each on a machine of its own.
class Calls {
  public:
    Calls() {
        s4u::Engine::set_config("network/model:CM02");
        s4u::Engine::set_config("network/TCP-gamma:0");
        s4u::Engine::set_config("network/crosstraffic:0");
        zone_ = s4u::create_full_zone("all");
    }
    /// `walked`: what the walk walks; SimGrid has all ranks.
    void add(const char *name, const Placement &placement, const CostModel &costs, double tolerance,
             StepGraph::Ranks walked = StepGraph::Ranks::all, const Fabric &fabric = {}) {
        graphs_.push_back(std::make_unique<StepGraph>(*find(name), Collective::allreduce, placement));
        const size_t bytes = (size_t{48} << 10) * graphs_.back()->blocks();
        const std::string machine = std::to_string(calls_.size());
        calls_.push_back(
            std::make_unique<Call>(zone_, machine, *graphs_.back(), static_cast<double>(bytes), costs, fabric));
        const StepGraph graph(*find(name), Collective::allreduce, placement, walked);
        EXPECT_EQ(graph.all_walked(), walked == StepGraph::Ranks::all) << name;
        expected_.push_back({std::string(name) + ", hosts " + std::to_string(placement.hosts()) + " of " +
                                 std::to_string(placement.most()) + (graph.all_walked() ? "" : ", one for all") +
                                 (fabric.levels.empty() ? "" : ", in groups"),
                             predict_ns(graph, bytes, costs, fabric), tolerance});
    }
    void run_and_check(s4u::Engine &engine) {
        zone_->seal();
        for (const std::unique_ptr<Call> &call : calls_)
            call->start();
        engine.run();
        for (size_t i = 0; i < calls_.size(); ++i)
            EXPECT_NEAR(expected_[i].ns / calls_[i]->end_ns(), 1, expected_[i].tolerance) << expected_[i].what;
    }

  private:
    struct Expected {
        std::string what;
        double ns;
        double tolerance;
    };
    s4u::NetZone *zone_ = nullptr;
    std::vector<std::unique_ptr<StepGraph>> graphs_;
    std::vector<std::unique_ptr<Call>> calls_;
    std::vector<Expected> expected_;
};

/// Where hosts do alike and rails take the time, the two agree. Elsewhere what meets at a rail or a rank shares it in
/// SimGrid, and goes one after another in the walk, which is never the slower one by much.
TEST(CostSimgrid, SaysWhatTheWalkSays) {
    int count = 1;
    std::string program = "cost_simgrid_test";
    char *arguments[] = {program.data(), nullptr};
    s4u::Engine engine(&count, arguments);
    const CostModel rails = slow_rails();
    const CostModel both = balanced();
    Calls calls;
    for (const char *name : {"ring", "recursive_doubling", "lanes(direct,ring)", "lanes(direct,recursive_doubling)",
                             "recursive_halving", "double_binary_tree"}) {
        for (const int hosts : {4, 8}) {
            calls.add(name, even(hosts, 2), rails, 0.05);
            calls.add(name, even(hosts, 2), both, 0.3);
        }
        calls.add(name, even(6, 1), rails, 0.25);
        calls.add(name, even(6, 1), both, 0.3);
    }
    // One host for all, of more ranks, and groups of hosts whose way out is narrow. Where one host stands for all, what
    // its group sends at once is one message, which a way out that was idle before lets pass too early.
    const Fabric groups{{{.hosts = 4, .taper = 4, .latency_ns = 600}}};
    for (const char *name : {"lanes(direct,ring)", "lanes(direct,recursive_doubling)"}) {
        calls.add(name, even(16, 2), rails, 0.05, StepGraph::Ranks::few);
        for (const StepGraph::Ranks walked : {StepGraph::Ranks::all, StepGraph::Ranks::few})
            calls.add(name, even(8, 2), rails, walked == StepGraph::Ranks::few ? 0.3 : 0.1, walked, groups);
    }
    calls.run_and_check(engine);
}

}  // namespace
}  // namespace flx::algorithms
