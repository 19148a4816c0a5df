/// \file kept_links.h
/// What the ranks of a communicator measured of its links, kept for the next program that makes such a communicator.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/kept/kept_file.h"
#include "runtime/link/slot.h"

namespace flx {

/// Of one rank: by link, within its host and then between hosts.
using LinksMeasured = std::array<LinkMeasured, 2 * kMaxLinks>;

class KeptLinks {
  public:
    /// `folder`: empty: nothing is kept. `now`: seconds since 1970; what is older than a day is passed over: what was
    /// measured while others had the wires and cores must not be believed for long.
    KeptLinks(const std::string &folder, int64_t now);

    /// Of a communicator of `ranks` that is described by `key`. False: nothing is known; state() says why.
    bool find(const std::string &key, size_t ranks, std::vector<LinksMeasured> &all);
    /// Replaces what is known of it, by rank, and drops what is too old, and some of others where there are many.
    void keep(const std::string &key, const std::vector<LinksMeasured> &all);

    /// One sentence for people.
    [[nodiscard]] const std::string &state() const { return state_; }

  private:
    [[nodiscard]] bool is_of_today(int64_t when) const;

    KeptFile file_;
    int64_t now_;
    std::string state_;
};

/// Only links that answered; also what ranks exchange.
nlohmann::json to_json(const std::vector<LinksMeasured> &all);
/// Throws where it is not of `ranks` or has numbers that no link has.
std::vector<LinksMeasured> links_from_json(const nlohmann::json &text, size_t ranks);

/// What speaks against links that only answered, `now`, being what they were, `then`: one answers that did not work, or
/// does not that did. Empty: nothing does. `names`: of the links.
std::string what_changed(const std::vector<LinksMeasured> &then, const std::vector<LinksMeasured> &now,
                         const std::vector<std::string> &names);

}  // namespace flx
