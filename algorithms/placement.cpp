#include "algorithms/placement.h"

#include <algorithm>
#include <map>

namespace flx::algorithms {

Placement Placement::of(const std::vector<int> &host_of) {
    Placement placement;
    std::map<int, int> numbers;
    for (size_t rank = 0; rank < host_of.size(); ++rank) {
        const auto next = static_cast<int>(numbers.size());
        const int host = numbers.try_emplace(host_of[rank], next).first->second;
        if (host == next)
            placement.ranks.emplace_back();
        std::vector<int> &here = placement.ranks[static_cast<size_t>(host)];
        placement.host.push_back(host);
        placement.local.push_back(static_cast<int>(here.size()));
        here.push_back(static_cast<int>(rank));
    }
    return placement;
}

Placement Placement::one_host(int size) {
    return of(std::vector<int>(static_cast<size_t>(size), 0));
}

int Placement::most() const {
    size_t most = 0;
    for (const std::vector<int> &here : ranks)
        most = std::max(most, here.size());
    return static_cast<int>(most);
}

bool follow_each_other(const std::vector<int> &ranks) {
    return ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size());
}

bool Placement::in_order() const {
    return std::ranges::all_of(ranks, follow_each_other);
}

}  // namespace flx::algorithms
