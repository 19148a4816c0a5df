#include "cost_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace flx::probe {
namespace {

using algorithms::Collective;

constexpr double kNever = std::numeric_limits<double>::infinity();

/// The quantities that all formulas share.
class Model {
  public:
    Model(size_t bytes, const CostInput &input)
        : input_(input), ranks_(input.ranks), hosts_(std::max(1, std::min(input.hosts, input.ranks))), bytes_(bytes) {
        per_host_ = ranks_ / hosts_;
        gamma_ = 1 / input.reduce_bytes_per_ns;
    }

    double direct(Collective collective) const;
    double ring(Collective collective) const;
    double tree(Collective collective) const;
    double doubling(Collective collective) const;

  private:
    [[nodiscard]] double alpha() const {
        return hosts_ > 1 ? std::max(input_.near.alpha_ns, input_.far.alpha_ns) : input_.near.alpha_ns;
    }
    [[nodiscard]] double overhead() const { return input_.overhead_ns > 0 ? input_.overhead_ns : alpha() / 4; }
    /// Near and far links move at once: each rank sends `near` bytes inside its host, each host `far` bytes to others.
    [[nodiscard]] double move(double near, double far) const {
        return std::max(per_host_ > 1 ? near / input_.near.bytes_per_ns : 0,
                        hosts_ > 1 ? far / input_.far.bytes_per_ns : 0);
    }
    /// One of the steps in which a neighbour in rank order is served: one pair crosses each border between hosts.
    [[nodiscard]] double neighbour(double n) const { return move(n, n); }
    [[nodiscard]] double rounds() const { return std::ceil(std::log2(ranks_)); }
    [[nodiscard]] double part() const { return (ranks_ - 1) / ranks_; }
    [[nodiscard]] double reduced(double n) const { return n * gamma_; }

    /// Every rank sends a block of n/p to every other: each host's ranks send to all ranks elsewhere.
    [[nodiscard]] double exchange(double n) const {
        return alpha() + (ranks_ - 2) * overhead() +
               move(n * (per_host_ - 1) / ranks_, n * per_host_ * (ranks_ - per_host_) / ranks_);
    }
    /// One rank sends n to (or takes n from) every other.
    [[nodiscard]] double star(double n) const {
        return alpha() + (ranks_ - 2) * overhead() + move(n * (per_host_ - 1), n * (ranks_ - per_host_));
    }
    /// Rounds of pairs at distances 1, 2, 4, …, with `first` bytes in the first one, times `growth` in each further
    /// one. From the distance of a host's ranks on, all of them cross at once.
    [[nodiscard]] double pairs(double first, double growth) const {
        double time = 0;
        double n = first;
        for (double distance = 1; distance < ranks_; distance *= 2, n *= growth) {
            const bool crosses = hosts_ > 1 && distance >= per_host_;
            time += crosses ? input_.far.alpha_ns + n * per_host_ / input_.far.bytes_per_ns
                            : input_.near.alpha_ns + n / input_.near.bytes_per_ns;
        }
        return time;
    }
    /// Ranks beyond a power of two hand their data over first and get the result last (Thakur et al., 4.5).
    [[nodiscard]] bool odd() const { return std::exp2(rounds()) != ranks_; }

    CostInput input_;
    double ranks_;
    double hosts_;
    double bytes_;
    double per_host_;
    double gamma_;
};

double Model::direct(Collective collective) const {
    const double n = bytes_;
    switch (collective) {
        case Collective::barrier:
            return exchange(0);
        case Collective::allgather:
            return exchange(n);
        case Collective::reduce_scatter_block:
            return exchange(n) + reduced(n * part());
        case Collective::allreduce:
            return 2 * exchange(n) + reduced(n * part());
        case Collective::bcast:
            return star(n);
        case Collective::reduce:
            return star(n) + reduced(n * (ranks_ - 1));
        default:
            break;
    }
    return kNever;
}

double Model::ring(Collective collective) const {
    const double n = bytes_;
    const double steps = ranks_ - 1;
    const double piece = std::min<double>(n, static_cast<double>(input_.pipeline_bytes));
    const double phase = steps * alpha() + neighbour(n * part());
    switch (collective) {
        case Collective::barrier:
            return 2 * steps * alpha();
        case Collective::allgather:
            return phase;
        case Collective::reduce_scatter_block:
            return phase + reduced(n * part());
        case Collective::allreduce:
            return 2 * phase + reduced(n * part());
        case Collective::bcast:  // a chain: the last rank gets its first piece after p - 1 hops
            return steps * alpha() + neighbour(n) + (steps - 1) * neighbour(piece);
        case Collective::reduce:
            return steps * alpha() + neighbour(n) + (steps - 1) * (neighbour(piece) + reduced(piece)) + reduced(n);
        default:
            break;
    }
    return kNever;
}

double Model::tree(Collective collective) const {
    const double n = bytes_;
    const double piece = std::min<double>(n, static_cast<double>(input_.pipeline_bytes));
    // Half of the vector goes through each tree; a rank sends twice the half it is an inner node of, so n in all.
    const double one_way = rounds() * alpha() + neighbour(n) + (rounds() - 1) * neighbour(piece);
    switch (collective) {
        case Collective::barrier:
            return 2 * rounds() * alpha();
        case Collective::bcast:
            return one_way;
        case Collective::reduce:
            return one_way + reduced(n) + (rounds() - 1) * reduced(piece);
        case Collective::allreduce:
            return 2 * one_way + reduced(n) + (rounds() - 1) * reduced(piece);
        default:
            return kNever;
    }
}

double Model::doubling(Collective collective) const {
    const double n = bytes_;
    const double extra = odd() ? alpha() + neighbour(n) : 0;
    switch (collective) {
        case Collective::barrier:
            return pairs(0, 1) + 2 * (odd() ? alpha() : 0);
        case Collective::allgather:
            return pairs(n / ranks_, 2) + extra;
        case Collective::reduce_scatter_block:  // recursive halving, farthest pairs first
            return pairs(n / ranks_, 2) + reduced(n * part()) + extra;
        case Collective::allreduce:
            return pairs(n, 1) + rounds() * reduced(n) + 2 * extra;
        case Collective::bcast:  // binomial tree; one rank of a host sends to another one at a time
            return rounds() * (alpha() + neighbour(n));
        case Collective::reduce:
            return rounds() * (alpha() + neighbour(n) + reduced(n));
        default:
            break;
    }
    return kNever;
}

}  // namespace

double estimate_ns(Pattern pattern, Collective collective, size_t bytes, const CostInput &input) {
    if (input.ranks < 2)
        return 0;
    const Model model(bytes, input);
    switch (pattern) {
        case Pattern::direct:
            return model.direct(collective);
        case Pattern::ring:
            return model.ring(collective);
        case Pattern::double_binary_tree:
            return model.tree(collective);
        case Pattern::recursive_doubling:
            return model.doubling(collective);
    }
    return kNever;
}

}  // namespace flx::probe
