/// \file tuning_cache.h
/// What earlier programs measured of FLX and MPI on this machine, in a file: JSON, one for each machine, build, MPI and
/// set of knobs. It only decides where a program begins: each class of calls is measured again.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/front/mpi/routing/routes.h"
#include "runtime/kept/kept_file.h"

namespace flx::preload {

/// What times depend on, of a communicator.
struct Shape {
    int ranks = 0;
    int hosts = 0;
    int most = 0;  ///< ranks of the host that has most
    /// `8 ranks on 2 hosts, at most 4 on one`
    [[nodiscard]] std::string name() const;
};

class TuningCache {
  public:
    struct Entry {
        Experience experience;  ///< not empty
        double price_s = 0;     ///< of making FLX's communicator; 0: not known
        double unpaid_s = 0;    ///< what FLX would have saved programs that were over before it paid, until it was made
    };

    /// `folder`: where files are; empty: none are read or written. `identity` says what the times are of: machine,
    /// builds, knobs. What is older than a month at `now` (seconds since 1970), or of a day after it, is passed over.
    TuningCache(std::string folder, std::string identity, int64_t now);

    /// Reads the file, if there is one. A damaged one, or one of something else, is as none: state() says why.
    void read();
    /// Null: nothing is known.
    [[nodiscard]] const Entry *find(const Shape &shape) const;
    /// The newest times of a shape; `now`: seconds since 1970.
    void learn(const Shape &shape, CallClass which, const Times &times, int64_t now);
    /// A price that is known grows by a factor of two at most at once: a greater one may include what held the ranks
    /// up.
    void learn_price(const Shape &shape, double price_s, int64_t now);
    /// A program ended in which FLX would have saved so much and was not tried. That is a guess, and counts until FLX
    /// was made once for such a communicator: from then on what it saves is known of what occurs often, and what occurs
    /// a few times in each run would have it made again and again for nothing.
    void learn_unpaid(const Shape &shape, double unpaid_s);
    /// Writes what was learned beside what is in the file by now. Whoever reads it meanwhile finds the old file or the
    /// new one, whole; of several who write at once, one may lose what it learned. False: state() says why.
    bool write();

    [[nodiscard]] const std::string &path() const { return file_.path(); }
    /// One line for people.
    [[nodiscard]] const std::string &state() const { return state_; }

  private:
    struct Kept {
        Entry entry;
        std::array<int64_t, CallClass::kCount> when{};  ///< seconds since 1970; 0: not known
        int64_t price_when = 0;
        double added_s = 0;  ///< to `unpaid_s`, by this program
    };
    using Shapes = std::map<std::string, Kept>;

    Kept &kept(const std::string &shape);
    bool parse(const nlohmann::json &file, Shapes &shapes, std::string &why) const;
    bool load(Shapes &shapes, std::string &why) const;
    void add_what_was_learned(Shapes &shapes) const;
    static nlohmann::json content_of(const Shapes &shapes);

    KeptFile file_;
    std::string state_ = "not read yet";
    int64_t now_;
    Shapes shapes_;
    bool learned_ = false;
};

/// This machine, the build of FLX in the file `library` and this MPI, for TuningCache.
std::string machine_and_builds(const std::string &library);

}  // namespace flx::preload
