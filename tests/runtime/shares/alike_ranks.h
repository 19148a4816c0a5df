/// \file alike_ranks.h
/// What tests of routes have in place of other ranks and of links to them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "runtime/link/bootstrap.h"
#include "runtime/link/link.h"
#include "runtime/shares/routes.h"

namespace flx {

/// A link over which nothing goes: what it has carried is what its kin say.
class IdleLink : public Link {
  public:
    IdleLink(std::string name, LinkKind kind) : name_(std::move(name)), kind_(kind) {}

    [[nodiscard]] const std::string &name() const override { return name_; }
    [[nodiscard]] LinkKind kind() const override { return kind_; }
    [[nodiscard]] size_t max_chunk() const override { return 256 << 10; }
    [[nodiscard]] size_t good_chunk(size_t bytes) const override { return std::min(bytes, max_chunk()); }
    SendResult send(int /*peer*/, const ChunkHeader & /*header*/, const void * /*data*/) override {
        return SendResult::busy;
    }
    bool receive(int /*peer*/, Arrival & /*arrival*/) override { return false; }
    void release(const Arrival & /*arrival*/) override {}
    bool completed(Completion & /*completion*/) override { return false; }
    bool progress() override { return false; }
    [[nodiscard]] size_t outstanding() const override { return 0; }
    [[nodiscard]] size_t unacknowledged(int /*peer*/) const override { return 0; }
    [[nodiscard]] LinkState state(int /*peer*/) const override { return LinkState::up; }
    [[nodiscard]] Status error(int /*peer*/) const override { return {}; }

  private:
    const std::string name_;
    const LinkKind kind_;
};

/// Where all ranks have what this one has.
class AlikeBootstrap final : public Bootstrap {
  public:
    AlikeBootstrap(int rank, int size) : rank_(rank), size_(size) {}

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return size_; }
    Status allgather(const void *mine, size_t bytes, void *all) override {
        for (int rank = 0; rank < size_; ++rank)
            std::memcpy(static_cast<std::byte *>(all) + rank * bytes, mine, bytes);
        return {};
    }
    Status barrier() override { return {}; }
    void progress() override {}
    Status split(int /*color*/, int /*key*/, std::unique_ptr<Bootstrap> & /*result*/) override {
        return fail(Fault::no_memory, "there is one group");
    }
    Status dup(std::unique_ptr<Bootstrap> & /*result*/) override {
        return fail(Fault::no_memory, "there is one group");
    }

  private:
    int rank_;
    int size_;
};

/// Rank 0 of hosts with as many ranks each, a process a rank.
inline Layout alike_layout(int hosts, int per_host) {
    Layout layout;
    layout.size = hosts * per_host;
    layout.hosts = hosts;
    layout.here = layout.most_per_host = per_host;
    for (int rank = 0; rank < layout.size; ++rank) {
        Member member;
        member.host = rank / per_host;
        member.local = rank % per_host;
        member.process = rank;
        layout.members.push_back(member);
    }
    return layout;
}

/// As a communicator makes them, with other ranks that have what this one has, and no rails lent.
inline Status make_routes(Routes &routes, const Layout &layout, const Config &config) {
    AlikeBootstrap bootstrap(layout.rank, layout.size);
    FLX_TRY(routes.exchange_links(bootstrap));
    FLX_TRY(routes.choose_own_rail(config, nullptr));
    FLX_TRY(routes.exchange_owners(bootstrap));
    FLX_TRY(routes.make(config, {}));
    return routes.exchange(bootstrap);
}

}  // namespace flx
