#include "runtime/communicator/wiring_routes.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "probe/routes.h"
#include "runtime/base/log.h"
#include "runtime/base/packed.h"

namespace flx {
namespace {

using nlohmann::json;
using probe::OfferedEnd;
using probe::Reached;

/// Of a connection whose first packet was lost, the second goes after a second.
constexpr int kLimitMs = 1500;

/// A rank's part of what all try: a bit for each pair of ends, first those of the first end.
std::string to_bits(const Reached &reached) {
    std::string bits;
    for (const auto &row : reached)
        for (const bool bit : row)
            bits += bit ? '1' : '0';
    return bits;
}

/// What any rank has found, of `count` ends.
Status gather(Bootstrap &bootstrap, Reached &reached) {
    std::vector<std::string> all;
    FLX_TRY(bootstrap.allgather_text(to_bits(reached), all));
    for (const std::string &bits : all)
        for (size_t i = 0; i < bits.size() && i < reached.size() * reached.size(); ++i)
            if (bits[i] == '1')
                reached[i / reached.size()][i % reached.size()] = true;
    return {};
}

/// The first rank of each host tries for it.
bool leads(const Bootstrap &bootstrap, const std::vector<int> &host_of_rank) {
    const auto first = std::find(host_of_rank.begin(), host_of_rank.end(), host_of_rank[bootstrap.rank()]);
    return first - host_of_rank.begin() == bootstrap.rank();
}

Status exchange_ends(Bootstrap &bootstrap, const std::vector<int> &host_of_rank,
                     const std::vector<probe::LooseEnd> &loose, std::vector<OfferedEnd> &ends) {
    json mine = json::array();
    if (leads(bootstrap, host_of_rank))
        for (const probe::LooseEnd &end : loose)
            mine.push_back({end.rail.name, end.rail.identity, end.address});
    std::vector<std::string> all;
    FLX_TRY(bootstrap.allgather_text(pack(mine), all));
    for (int rank = 0; rank < bootstrap.size(); ++rank) {
        json theirs;
        FLX_TRY(unpack(all[rank], rank, theirs));
        for (const json &end : theirs)
            ends.push_back({static_cast<size_t>(host_of_rank[rank]), end.at(0), end.at(1), end.at(2), 0});
    }
    // Whoever reads the list shall find it in one order, whichever rank speaks for a host.
    std::stable_sort(ends.begin(), ends.end(), [](const auto &a, const auto &b) { return a.host < b.host; });
    return {};
}

bool both(const Reached &ways, size_t a, size_t b) {
    return ways[a][b] && ways[b][a];
}

/// Collective: whether ends of several hosts are loose. Ranks that have not `planned` well fail, and so do the others.
Status look_for_loose_ends(Bootstrap &bootstrap, Status planned, const std::vector<int> &host_of_rank, size_t loose,
                           bool &several) {
    struct Word {
        int32_t code;
        int32_t loose;
    };
    const Word word{planned.code(), static_cast<int32_t>(loose)};
    std::vector<Word> words(bootstrap.size());
    FLX_TRY(bootstrap.allgather(&word, sizeof word, words.data()));
    if (std::ranges::any_of(words, [](const Word &each) { return each.code != FLX_SUCCESS; }))
        return agree(bootstrap, std::move(planned));
    std::set<int> hosts;
    for (int rank = 0; rank < bootstrap.size(); ++rank)
        if (words[rank].loose != 0)
            hosts.insert(host_of_rank[rank]);
    several = hosts.size() > 1;
    return {};
}

/// What is found out about the ends that hosts offer each other.
struct Search {
    Bootstrap &bootstrap;
    size_t self;  ///< this rank's host
    bool tries;   ///< this rank, for its host
    std::vector<OfferedEnd> ends;
    Reached routes;                ///< from which end to which the kernels have a route
    Reached reached;               ///< likewise: a connection was made
    std::vector<std::string> why;  ///< by end, why it reaches not all others

    [[nodiscard]] bool apart(size_t a, size_t b) const {
        return ends[a].host != ends[b].host && ends[a].identity != ends[b].identity;
    }
    [[nodiscard]] bool tries_from(size_t end) const { return tries && ends[end].host == self; }

    /// Collective. Most pairs are of networks that are nobody else's, and trying takes time: the routes come first.
    Status find_routes() {
        for (size_t a = 0; a < ends.size(); ++a)
            for (size_t b = 0; b < ends.size(); ++b)
                if (tries_from(a) && apart(a, b))
                    routes[a][b] = probe::is_route(ends[a].address, ends[b].address);
        return gather(bootstrap, routes);
    }

    [[nodiscard]] bool any_route() const {
        bool any = false;
        for (size_t a = 0; a < ends.size(); ++a)
            for (size_t b = 0; b < a; ++b)
                any = any || both(routes, a, b);
        return any;
    }

    /// Collective. Connections between ends that have routes to each other.
    Status try_connections() {
        probe::Doors doors;
        std::vector<uint16_t> ports(ends.size());
        for (size_t end = 0; end < ends.size(); ++end)
            if (tries_from(end))
                if (const Status open = doors.open(ends[end].address, ports[end]); !open.ok())
                    why[end] = open.words();
        std::vector<uint16_t> all(ends.size() * bootstrap.size());
        FLX_TRY(bootstrap.allgather(ports.data(), ports.size() * sizeof(uint16_t), all.data()));
        for (size_t i = 0; i < all.size(); ++i)
            ends[i % ends.size()].port = std::max(ends[i % ends.size()].port, all[i]);
        std::vector<probe::Attempt> attempts;
        std::vector<std::pair<size_t, size_t>> pairs;
        for (size_t a = 0; a < ends.size(); ++a)
            for (size_t b = 0; b < ends.size(); ++b)
                if (tries_from(a) && both(routes, a, b) && ends[b].port != 0) {
                    attempts.push_back({ends[a].address, ends[b].address, ends[b].port, false, {}});
                    pairs.emplace_back(a, b);
                }
        probe::try_connections(attempts, kLimitMs);
        for (size_t i = 0; i < attempts.size(); ++i)
            reached[pairs[i].first][pairs[i].second] = attempts[i].reached;
        return gather(bootstrap, reached);  // and nobody closes its doors before all have tried
    }

    void say_why() {
        for (size_t a = 0; a < ends.size(); ++a)
            for (size_t b = 0; b < ends.size() && why[a].empty(); ++b)
                if (apart(a, b) && !both(reached, a, b))
                    why[a] = !routes[a][b]   ? fmt::format("no route by it to {}", ends[b].address)
                             : !routes[b][a] ? fmt::format("no route back from {}", ends[b].address)
                                             : fmt::format("{} and it do not connect by routers within {:.1f} s",
                                                           ends[b].address, kLimitMs / 1e3);
    }

    void log_reached() const {
        for (size_t a = 0; a < ends.size(); ++a)
            for (size_t b = 0; b < ends.size(); ++b)
                if (tries_from(a) && both(reached, a, b))
                    log().info("{} ({}) reaches {} by routers", ends[a].name, ends[a].address, ends[b].address);
    }
};

}  // namespace

Status join_networks(Bootstrap &bootstrap, Status planned, const std::vector<int> &host_of_rank,
                     const std::vector<probe::LooseEnd> &loose, size_t max_rails, probe::RailPlan &plan) {
    bool several = false;
    FLX_TRY(look_for_loose_ends(bootstrap, std::move(planned), host_of_rank, loose.size(), several));
    if (!several)
        return {};
    std::vector<OfferedEnd> ends;
    FLX_TRY(exchange_ends(bootstrap, host_of_rank, loose, ends));
    const auto self = static_cast<size_t>(host_of_rank[bootstrap.rank()]);
    const Reached none(ends.size(), std::vector<bool>(ends.size()));
    std::vector<std::string> why(ends.size());
    Search search{bootstrap, self, leads(bootstrap, host_of_rank), std::move(ends), none, none, std::move(why)};
    FLX_TRY(search.find_routes());
    if (search.any_route())
        FLX_TRY(search.try_connections());
    search.say_why();
    probe::join_rails(self, loose, search.ends, search.reached, search.why, max_rails, plan);
    search.log_reached();
    return {};
}

}  // namespace flx
