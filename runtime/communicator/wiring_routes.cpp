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

}  // namespace

Status join_networks(Bootstrap &bootstrap, Status planned, const std::vector<int> &host_of_rank,
                     const std::vector<probe::LooseEnd> &loose, size_t max_rails, probe::RailPlan &plan) {
    struct Word {
        int32_t code;
        int32_t loose;
    };
    const Word word{planned.code(), static_cast<int32_t>(loose.size())};
    std::vector<Word> words(bootstrap.size());
    FLX_TRY(bootstrap.allgather(&word, sizeof word, words.data()));
    if (std::ranges::any_of(words, [](const Word &each) { return each.code != FLX_SUCCESS; }))
        return agree(bootstrap, std::move(planned));
    std::set<int> hosts;
    for (int rank = 0; rank < bootstrap.size(); ++rank)
        if (words[rank].loose != 0)
            hosts.insert(host_of_rank[rank]);
    if (hosts.size() < 2)
        return {};

    std::vector<OfferedEnd> ends;
    FLX_TRY(exchange_ends(bootstrap, host_of_rank, loose, ends));
    const auto self = static_cast<size_t>(host_of_rank[bootstrap.rank()]);
    const bool tries = leads(bootstrap, host_of_rank);
    const Reached none(ends.size(), std::vector<bool>(ends.size()));
    const auto apart = [&](size_t a, size_t b) {
        return ends[a].host != ends[b].host && ends[a].identity != ends[b].identity;
    };
    // First the kernels' routes: most pairs are of networks that are nobody else's, and trying takes time.
    Reached routes = none;
    for (size_t a = 0; a < ends.size(); ++a)
        for (size_t b = 0; b < ends.size(); ++b)
            if (tries && ends[a].host == self && apart(a, b))
                routes[a][b] = probe::is_route(ends[a].address, ends[b].address);
    FLX_TRY(gather(bootstrap, routes));
    const auto both = [&](const Reached &ways, size_t a, size_t b) { return ways[a][b] && ways[b][a]; };
    bool any = false;
    for (size_t a = 0; a < ends.size(); ++a)
        for (size_t b = 0; b < a; ++b)
            any = any || both(routes, a, b);
    Reached reached = none;
    std::vector<std::string> why(ends.size());
    if (any) {
        probe::Doors doors;
        std::vector<uint16_t> ports(ends.size());
        for (size_t end = 0; end < ends.size(); ++end)
            if (tries && ends[end].host == self)
                if (const Status open = doors.open(ends[end].address, ports[end]); !open.ok())
                    why[end] = open.sentence();
        std::vector<uint16_t> all(ends.size() * bootstrap.size());
        FLX_TRY(bootstrap.allgather(ports.data(), ports.size() * sizeof(uint16_t), all.data()));
        for (size_t i = 0; i < all.size(); ++i)
            ends[i % ends.size()].port = std::max(ends[i % ends.size()].port, all[i]);
        std::vector<probe::Attempt> attempts;
        std::vector<std::pair<size_t, size_t>> pairs;
        for (size_t a = 0; a < ends.size(); ++a)
            for (size_t b = 0; b < ends.size(); ++b)
                if (tries && ends[a].host == self && both(routes, a, b) && ends[b].port != 0) {
                    attempts.push_back({ends[a].address, ends[b].address, ends[b].port, false, {}});
                    pairs.emplace_back(a, b);
                }
        probe::try_connections(attempts, kLimitMs);
        for (size_t i = 0; i < attempts.size(); ++i)
            reached[pairs[i].first][pairs[i].second] = attempts[i].reached;
        FLX_TRY(gather(bootstrap, reached));  // and nobody closes its doors before all have tried
    }
    for (size_t a = 0; a < ends.size(); ++a)
        for (size_t b = 0; b < ends.size() && why[a].empty(); ++b)
            if (apart(a, b) && !both(reached, a, b))
                why[a] = !routes[a][b]   ? fmt::format("no route by it to {}", ends[b].address)
                         : !routes[b][a] ? fmt::format("no route back from {}", ends[b].address)
                                         : fmt::format("{} and it do not connect by routers within {:.1f} s",
                                                       ends[b].address, kLimitMs / 1e3);
    probe::join_rails(self, loose, ends, reached, why, max_rails, plan);
    for (size_t a = 0; a < ends.size(); ++a)
        for (size_t b = 0; b < ends.size() && ends[a].host == self; ++b)
            if (both(reached, a, b) && tries)
                log().info("{} ({}) reaches {} by routers", ends[a].name, ends[a].address, ends[b].address);
    return {};
}

}  // namespace flx
