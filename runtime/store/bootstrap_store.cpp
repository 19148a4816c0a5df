#include "runtime/store/bootstrap_store.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/store/line.h"

namespace flx::store {
namespace {

/// A whole number of the environment, from `least` to `most`.
Status read_number(const char *variable, int least, int most, int &number) {
    const char *text = std::getenv(variable);
    if (text == nullptr)
        return fail(Fault::wrong_place,
                    "{} is not set; flx_comm_create_from_store needs an address, a port, a rank and a size, as "
                    "arguments or as MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE",
                    variable);
    const std::string_view all = text;
    const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), number);
    if (error != std::errc() || end != all.data() + all.size() || number < least || number > most)
        return fail(Fault::wrong_place, "{} is \"{}\"; it has to be a number from {} to {}", variable, text, least,
                    most);
    return {};
}

class StoreBootstrap final : public Bootstrap {
  public:
    /// `members`: ranks of the store, in the order of this group.
    StoreBootstrap(std::shared_ptr<Line> line, uint64_t group, std::vector<uint32_t> members)
        : line_(std::move(line)), group_(group), members_(std::move(members)) {
        const auto own = static_cast<uint32_t>(line_->place().rank);
        rank_ = static_cast<int>(std::find(members_.begin(), members_.end(), own) - members_.begin());
    }
    ~StoreBootstrap() override {
        [[maybe_unused]] const Status status = line_->send(Kind::leave, group_, 0, {});  // to whoever still hears it
    }

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return static_cast<int>(members_.size()); }

    Status allgather(const void *mine, size_t bytes, void *all) override {
        return gather({static_cast<const std::byte *>(mine), bytes}, all, {});
    }
    Status barrier() override { return gather({}, nullptr, {}); }
    Status meet(const std::function<Status()> &meanwhile) override { return gather({}, nullptr, meanwhile); }
    void progress() override {}  // the program has no traffic that FLX could move
    [[nodiscard]] int ranks_on_host() const override {
        for (const char *name : {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
            if (const char *text = std::getenv(name); text != nullptr)
                return static_cast<int>(std::strtol(text, nullptr, 10));
        return 0;
    }
    [[nodiscard]] int ranks_of_program() const override { return line_->place().size; }

    Status split(int color, int key, std::unique_ptr<Bootstrap> &result) override {
        struct Wish {
            int color, key;
            uint64_t id;  // for the group, should this rank be its first
        };
        const Wish mine{color, key, line_->new_id()};
        std::vector<Wish> all(members_.size());
        FLX_TRY(allgather(&mine, sizeof mine, all.data()));
        std::vector<size_t> chosen;  // of this group
        for (size_t rank = 0; rank < all.size(); ++rank)
            if (color >= 0 && all[rank].color == color)
                chosen.push_back(rank);
        std::stable_sort(chosen.begin(), chosen.end(), [&](size_t a, size_t b) { return all[a].key < all[b].key; });
        result.reset();
        if (!chosen.empty()) {
            std::vector<uint32_t> members;
            members.reserve(chosen.size());
            for (const size_t rank : chosen)
                members.push_back(members_[rank]);
            const uint64_t id = all[chosen.front()].id;
            auto made = std::make_unique<StoreBootstrap>(line_, id, std::move(members));
            FLX_TRY(line_->send(Kind::group, id, static_cast<uint32_t>(made->rank_),
                                std::as_bytes(std::span(made->members_))));
            result = std::move(made);
        }
        return barrier();  // now the store knows all members, and who of them goes
    }
    Status dup(std::unique_ptr<Bootstrap> &result) override { return split(0, rank_, result); }

  private:
    Status gather(std::span<const std::byte> mine, void *all, const std::function<Status()> &meanwhile) {
        FLX_TRY(line_->send(Kind::gather, group_, static_cast<uint32_t>(rank_), mine));
        Frame answer;
        FLX_TRY(line_->receive(group_, meanwhile, answer));
        if (answer.header.kind != Kind::gathered || answer.payload.size() != mine.size() * members_.size())
            return fail(Fault::not_readable, "the store at {} answered something else than it was asked",
                        line_->place().text());
        if (all != nullptr && !answer.payload.empty())
            std::memcpy(all, answer.payload.data(), answer.payload.size());
        return {};
    }

    std::shared_ptr<Line> line_;
    uint64_t group_;
    std::vector<uint32_t> members_;
    int rank_ = 0;
};

}  // namespace

Status find_place(const char *address, int port, int rank, int size, Place &place) {
    constexpr int kMostRanks = 1 << 20;
    constexpr int kMostPort = 65535;
    const char *const said = address != nullptr ? address : std::getenv("MASTER_ADDR");
    if (said == nullptr || *said == '\0')
        return fail(
            Fault::wrong_place,
            "MASTER_ADDR is not set; flx_comm_create_from_store needs an address, a port, a rank and a size, as "
            "arguments or as MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE");
    place.address = said;
    place.port = port;
    place.rank = rank;
    place.size = size;
    if (port == 0)
        FLX_TRY(read_number("MASTER_PORT", 1, kMostPort, place.port));
    if (size == 0)
        FLX_TRY(read_number("WORLD_SIZE", 1, kMostRanks, place.size));
    if (rank == -1)
        FLX_TRY(read_number("RANK", 0, kMostRanks, place.rank));
    if (place.port < 1 || place.port > kMostPort)
        return fail(Fault::wrong_place, "port is {}; ports are 1 to {}", place.port, kMostPort);
    if (place.size < 1 || place.size > kMostRanks)
        return fail(Fault::wrong_place, "size is {}; there are 1 to {} ranks", place.size, kMostRanks);
    if (place.rank < 0 || place.rank >= place.size)
        return fail(Fault::wrong_place, "rank is {}; of {} ranks it is 0 to {}", place.rank, place.size,
                    place.size - 1);
    return {};
}

Status make_store_bootstrap(const Place &place, std::unique_ptr<Bootstrap> &result,
                            const std::function<Status()> &meanwhile) {
    std::shared_ptr<Line> line;
    uint64_t group = 0;
    FLX_TRY(Line::join(place, meanwhile, line, group));
    std::vector<uint32_t> members(static_cast<size_t>(place.size));
    for (uint32_t rank = 0; rank < members.size(); ++rank)
        members[rank] = rank;
    auto made = std::make_unique<StoreBootstrap>(std::move(line), group, std::move(members));
    FLX_TRY(made->meet(meanwhile));
    result = std::move(made);
    return {};
}

}  // namespace flx::store
