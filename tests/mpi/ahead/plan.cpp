#include "tests/mpi/ahead/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "tests/mpi/random.h"

namespace flx::test::ahead {
namespace {

constexpr std::array kNames = {
    "barrier",        "bcast",     "scatter",    "scatterv", "reduce",    "gather",
    "gatherv",        "message",   "scan",       "exscan",   "allreduce", "reduce_scatter_block",
    "reduce_scatter", "allgather", "allgatherv", "alltoall", "alltoallv", "shift"};
constexpr std::array kTypeNames = {"u8", "i16", "i32", "u64", "f32", "f64"};
constexpr std::array kReductionNames = {"sum", "min", "max", "bxor", "avg", "compose"};
constexpr std::array kManners = {"blocking", "non-blocking", "persistent", "grouped"};

/// Fused operations show up to so many bytes with a rank's board, in a short place, in a page, and more in a ring
/// (runtime/shm/ways/fused.cpp).
constexpr std::array<size_t, 5> kPlaces = {1, 112, 256, 4096, 12000};
/// Other lengths at which FLX goes another way. Of messages: in a short slot, on the spot, exposed, longer than a slot
/// (runtime/shm/ways/channel.cpp, runtime/execute/eager.h). Of vectors: where the nearest of the sizes for which ways
/// were tried changes (runtime/plan/ways.h), FLX_FUSED_BYTES, and where ranks show each other where shared buffers lie.
constexpr std::array<size_t, 11> kEdges = {8, 64, 80, 2048, 8192, 11585, 16384, 23170, 32768, 46340, 65536};

/// Draws the operations of one episode.
class Draw {
  public:
    Draw(const Choice &choice, const std::vector<Group> &groups, uint64_t index, uint64_t first_number)
        : choice_(choice),
          groups_(groups),
          random_(Random::mix(Random::mix(choice.seed * 1000003 + static_cast<uint64_t>(choice.thread)) + index)),
          next_(first_number) {
        episode_.index = index;
        episode_.seed = random_.next();
        const size_t memory = random_.below(10);
        episode_.memory = memory < 7 ? Memory::own : memory < 9 ? Memory::shared : Memory::mixed;
    }

    Episode episode() {
        const size_t style = random_.below(100);
        if (style < 60)
            runs();
        else if (style < 78)
            mixed();
        else if (style < 90 || !choice_.groups)
            pending();
        else
            grouped();
        return std::move(episode_);
    }

  private:
    [[nodiscard]] int size(size_t group) const { return static_cast<int>(groups_[group].ranks.size()); }

    size_t draw_group() {
        size_t all = 0;
        for (const Group &group : groups_)
            all += group.weight;
        size_t at = random_.below(all);
        size_t index = 0;
        while (at >= groups_[index].weight)
            at -= groups_[index++].weight;
        return index;
    }

    /// A length in bytes. What fused operations show in one kind of place is as likely as what they show in another,
    /// and half of all lengths lie beside a limit.
    size_t draw_bytes(size_t most) {
        const size_t kind = random_.below(16);
        const size_t rare = random_.below(64);
        size_t bytes = 0;
        if (kind < 12) {
            const size_t place = kind / 3;
            const size_t edge = random_.below(6);
            bytes = edge < 2    ? kPlaces[place] - edge
                    : edge == 2 ? kPlaces[place + 1] + 1
                                : kPlaces[place] + 1 + random_.below(kPlaces[place + 1] - kPlaces[place]);
        } else if (kind < 14) {
            bytes = kEdges[random_.below(kEdges.size())] - 1 + random_.below(3);
        } else if (kind == 14) {
            bytes = 1 + random_.below(rare == 0 ? choice_.longest : rare < 8 ? 300'000 : 40'000);
        }
        return std::min(bytes, most);
    }

    /// So many elements that what `blocks` of them take lies where draw_bytes says.
    size_t draw_count(size_t element, size_t blocks, size_t most) {
        const size_t bytes = draw_bytes(most);
        const size_t count = bytes / (element * blocks);
        return bytes % (element * blocks) != 0 && random_.below(2) == 0 ? count + 1 : count;
    }

    /// What one episode takes has a limit, so that no rank runs out of memory or time.
    size_t budget(size_t blocks) {
        const size_t left = kMostBytes - std::min(taken_, kMostBytes);
        return std::max<size_t>(left / 4 / std::max<size_t>(blocks, 1), 64);
    }

    Operation &add(Collective collective, size_t group, Manner manner) {
        Operation &operation = episode_.operations.emplace_back();
        operation.number = next_++;
        operation.collective = collective;
        operation.group = group;
        operation.manner = manner;
        const auto ranks = static_cast<size_t>(size(group));
        operation.root = static_cast<int>(random_.below(ranks));
        operation.peer = static_cast<int>(random_.below(ranks));
        operation.in_place = random_.below(4) == 0;
        operation.type = static_cast<Type>(random_.below(kTypes));
        if (collective == Collective::message && manner != Manner::grouped && operation.peer == operation.root)
            operation.peer = (operation.root + 1) % size(group);
        if (reduces(collective))
            draw_reduction(operation);
        draw_counts(operation, ranks);
        for (const size_t count : operation.counts)
            taken_ += 2 * count * size_of(operation.type) * (operation.counts.size() == 1 ? ranks : 1);
        return operation;
    }

    void draw_reduction(Operation &operation) {
        const bool scans = operation.collective == Collective::scan || operation.collective == Collective::exscan;
        do {
            operation.reduction = static_cast<Reduction>(random_.below(kReductions));
        } while (operation.reduction == Reduction::avg && (scans || !choice_.average));
        const bool floats = operation.type == Type::f32 || operation.type == Type::f64;
        if (operation.reduction == Reduction::compose)
            operation.type = Type::u64;
        else if (operation.reduction == Reduction::bxor && floats)
            operation.type = Type::u64;
        else if (operation.reduction == Reduction::avg && (operation.type == Type::u8 || operation.type == Type::i16))
            operation.type = Type::i32;  // the sum must fit
        else if (operation.reduction == Reduction::sum && size_of(operation.type) < 4 && !choice_.short_sums)
            operation.type = Type::i32;
        const bool is_extreme = operation.reduction == Reduction::min || operation.reduction == Reduction::max;
        const bool is_unsigned = operation.type == Type::u8 || operation.type == Type::u64;
        if (is_extreme && is_unsigned && !choice_.unsigned_extremes)
            operation.type = Type::i32;
    }

    void draw_counts(Operation &operation, size_t ranks) {
        const size_t element = size_of(operation.type);
        switch (operation.collective) {
            case Collective::barrier:
                operation.counts = {0};
                return;
            case Collective::scatterv:
            case Collective::gatherv:
            case Collective::allgatherv:
            case Collective::reduce_scatter:
                for (size_t rank = 0; rank < ranks; ++rank)
                    operation.counts.push_back(draw_ragged(element, budget(ranks)));
                return;
            case Collective::alltoallv:
                operation.counts.resize(ranks * ranks);
                for (size_t from = 0; from < ranks; ++from)
                    for (size_t to = 0; to < ranks; ++to)
                        operation.counts[from * ranks + to] = operation.in_place && to < from
                                                                  ? operation.counts[to * ranks + from]
                                                                  : draw_ragged(element, budget(ranks * ranks));
                return;
            case Collective::scatter:
            case Collective::gather:
            case Collective::allgather:
            case Collective::alltoall:
            case Collective::reduce_scatter_block: {
                const std::array<size_t, 3> blocks = {1, ranks, std::max<size_t>(ranks - 1, 1)};
                const size_t most = budget(ranks);
                operation.counts = {std::min(draw_count(element, blocks[random_.below(3)], most), most / element)};
                return;
            }
            default:
                operation.counts = {draw_count(element, 1, budget(1))};
                return;
        }
    }

    size_t draw_ragged(size_t element, size_t most) {
        if (random_.below(6) == 0)
            return 0;
        return draw_count(element, 1, std::min<size_t>(most, 40'000));
    }

    /// Of operations whose data flows away from one rank, towards one rank, or along ranks.
    void one_way_run(size_t group) {
        static constexpr std::array kOut = {Collective::bcast,   Collective::bcast,    Collective::bcast,
                                            Collective::scatter, Collective::scatterv, Collective::message};
        static constexpr std::array kIn = {Collective::reduce, Collective::reduce, Collective::gather,
                                           Collective::gatherv, Collective::message};
        static constexpr std::array kAlong = {Collective::scan, Collective::exscan};
        const size_t length = random_.below(10);
        const size_t many = 1 + (length < 7 ? random_.below(9) : length < 9 ? random_.below(40) : random_.below(90));
        const size_t direction = random_.below(16);
        const auto ranks = static_cast<size_t>(size(group));
        const int root = static_cast<int>(random_.below(ranks));
        const bool varied = random_.below(2) == 0;
        const Collective alone = kOut[random_.below(4)];
        for (size_t i = 0; i < many; ++i) {
            Collective collective = direction < 9    ? varied ? kOut[random_.below(kOut.size())] : alone
                                    : direction < 14 ? kIn[random_.below(kIn.size())]
                                                     : kAlong[random_.below(kAlong.size())];
            if (collective == Collective::message && ranks == 1)
                collective = Collective::bcast;
            Operation &operation = add(collective, group, Manner::blocking);
            operation.lateness = i != 0           ? Lateness::none
                                 : direction < 9  ? Lateness::others
                                 : direction < 14 ? Lateness::root
                                                  : Lateness::any;
            operation.root = root;
            if (collective != Collective::message)
                continue;
            const int other = (root + 1 + static_cast<int>(random_.below(ranks - 1))) % size(group);
            operation.root = direction < 9 ? root : other;
            operation.peer = direction < 9 ? other : root;
        }
    }

    /// For which ranks wait for each other, more or less.
    Collective draw_closing() {
        static constexpr std::array kClosing = {
            Collective::allgatherv, Collective::allgatherv,     Collective::allgatherv,
            Collective::allgatherv, Collective::reduce_scatter, Collective::reduce_scatter,
            Collective::alltoallv,  Collective::allreduce,      Collective::allgather,
            Collective::alltoall,   Collective::barrier,        Collective::scan,
            Collective::exscan,     Collective::shift,          Collective::reduce_scatter_block};
        return kClosing[random_.below(kClosing.size())];
    }

    void runs() {
        const size_t group = draw_group();
        const size_t many = 1 + random_.below(4);
        for (size_t run = 0; run < many; ++run) {
            one_way_run(group);
            const size_t closing = 1 + random_.below(2);
            for (size_t i = 0; i < closing; ++i)
                add(draw_closing(), group, Manner::blocking);
        }
    }

    Collective draw_any(size_t group) {
        const auto collective = static_cast<Collective>(random_.below(kCollectives));
        return collective == Collective::message && size(group) == 1 ? Collective::bcast : collective;
    }

    void add_in_flight(size_t group, bool may_block) {
        const Collective collective = draw_any(group);
        const bool message = collective == Collective::message || collective == Collective::shift;
        const size_t drawn = random_.below(6);
        Manner manner = drawn < 2 && may_block ? Manner::blocking
                        : drawn < 4            ? Manner::non_blocking
                                               : Manner::persistent;
        if (collective == Collective::message && choice_.messages_in_flight && manner == Manner::persistent)
            manner = Manner::non_blocking;
        else if (message ? collective == Collective::shift || !choice_.messages_in_flight : !choice_.pending)
            manner = Manner::blocking;
        if (manner == Manner::blocking && !may_block)
            return;
        add(collective, group, manner);
        if (episode_.operations.back().manner == Manner::persistent)
            persistent_.push_back(episode_.operations.size() - 1);
        // One that was begun before begins again: as often as one likes, each time with other data.
        if (!persistent_.empty() && random_.below(4) == 0) {
            Operation again = episode_.operations[persistent_[random_.below(persistent_.size())]];
            again.again = again.number;
            again.number = next_++;
            episode_.operations.push_back(std::move(again));
        }
    }

    void mixed() {
        episode_.in_flight = 1 + random_.below(8);
        const size_t many = 4 + random_.below(24);
        for (size_t i = 0; i < many; ++i)
            add_in_flight(draw_group(), true);
        begin();
    }

    void pending() {
        episode_.in_flight = 2 + random_.below(16);
        const std::array groups = {draw_group(), draw_group()};
        const size_t many = 4 + random_.below(30);
        for (size_t i = 0; i < many; ++i)
            add_in_flight(groups[random_.below(2)], false);
        begin();
    }

    void grouped() {
        static constexpr std::array kGrouped = {Collective::message,  Collective::message,   Collective::message,
                                                Collective::shift,    Collective::allreduce, Collective::allreduce,
                                                Collective::alltoall, Collective::alltoallv};
        episode_.in_flight = 4;
        const size_t many = 1 + random_.below(4);
        for (size_t i = 0; i < many; ++i) {
            const size_t group = draw_group();
            const size_t members = 1 + random_.below(10);
            for (size_t member = 0; member < members; ++member) {
                Operation &operation = add(kGrouped[random_.below(kGrouped.size())], group, Manner::grouped);
                operation.bracket = static_cast<uint32_t>(i + 1);
            }
            if (random_.below(2) == 0)
                add_in_flight(draw_group(), true);
        }
        begin();
    }

    void begin() {
        if (!episode_.operations.empty())
            episode_.operations.front().lateness = Lateness::any;
    }

    static constexpr size_t kMostBytes = size_t{12} << 20;

    const Choice &choice_;
    const std::vector<Group> &groups_;
    Random random_;
    uint64_t next_;
    size_t taken_ = 0;
    Episode episode_;
    std::vector<size_t> persistent_;
};

}  // namespace

const char *name_of(Collective collective) {
    return kNames[static_cast<size_t>(collective)];
}

bool reduces(Collective collective) {
    switch (collective) {
        case Collective::reduce:
        case Collective::scan:
        case Collective::exscan:
        case Collective::allreduce:
        case Collective::reduce_scatter_block:
        case Collective::reduce_scatter:
            return true;
        default:
            return false;
    }
}

size_t size_of(Type type) {
    constexpr std::array<size_t, kTypes> kSizes = {1, 2, 4, 8, 4, 8};
    return kSizes[static_cast<size_t>(type)];
}

std::string to_string(const Operation &operation) {
    std::string text =
        fmt::format("{} of {}", name_of(operation.collective), kTypeNames[static_cast<size_t>(operation.type)]);
    if (reduces(operation.collective))
        text += fmt::format(" ({})", kReductionNames[static_cast<size_t>(operation.reduction)]);
    text += fmt::format(", {} elements", fmt::join(operation.counts, "+"));
    if (operation.collective == Collective::message)
        text += fmt::format(", from {} to {}", operation.root, operation.peer);
    else if (operation.collective == Collective::shift)
        text += fmt::format(", {} ranks on", operation.peer);
    else if (operation.collective <= Collective::gatherv)
        text += fmt::format(", root {}", operation.root);
    text +=
        fmt::format(", {}{}", operation.in_place ? "in place, " : "", kManners[static_cast<size_t>(operation.manner)]);
    return text;
}

std::vector<Group> make_groups(int world_size, uint64_t seed) {
    std::vector<int> world(static_cast<size_t>(world_size));
    std::iota(world.begin(), world.end(), 0);
    std::vector<Group> groups = {{world, 0, 8}, {world, 1, 3}, {{world.rbegin(), world.rend()}, 2, 2}};
    // Rows and columns of a grid of two columns; those of one rank are of little interest.
    for (const bool rows : {true, false}) {
        for (int part = 0; part < (rows ? (world_size + 1) / 2 : std::min(world_size, 2)); ++part) {
            Group group{{}, rows ? 3U : 4U, 1};
            for (const int rank : world)
                if ((rows ? rank / 2 : rank % 2) == part)
                    group.ranks.push_back(rank);
            group.weight = group.ranks.size() > 1 ? 2 : 0;
            groups.push_back(std::move(group));
        }
    }
    // All but one.
    Group most{{}, 5, world_size > 2 ? size_t{2} : size_t{0}};
    const auto left_out = static_cast<int>(Random::mix(seed) % static_cast<uint64_t>(world_size));
    for (const int rank : world)
        if (rank != left_out || world_size == 1)
            most.ranks.push_back(rank);
    groups.push_back(std::move(most));
    return groups;
}

Episode make_episode(const Choice &choice, const std::vector<Group> &groups, uint64_t index, uint64_t first_number) {
    return Draw(choice, groups, index, first_number).episode();
}

}  // namespace flx::test::ahead
