/// \file partition.h
/// The partition vector and how it cuts a block. Plain data and pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/link/link.h"

namespace flx {

/// Shares of the links, in fixed point: weights of the links that exist sum to exactly kWhole.
struct PartitionVector {
    static constexpr uint32_t kWhole = 1u << 16;
    std::array<uint32_t, kMaxLinks> weight{};
    int links = 0;

    [[nodiscard]] double share(int link) const { return static_cast<double>(weight[link]) / kWhole; }
    /// The link that has everything; -1 where none has.
    [[nodiscard]] int only() const {
        for (int link = 0; link < links; ++link)
            if (weight[link] != 0)
                return weight[link] == kWhole ? link : -1;
        return -1;
    }
    friend bool operator==(const PartitionVector &, const PartitionVector &) = default;
};

/// From non-negative shares of any scale: rounds by largest remainder so that the sum is exact. A share of 0 (or one
/// that is negative or not finite) stays 0. Where no share is positive every weight is 0: no link may carry anything.
/// No allocation.
PartitionVector make_partition(std::span<const double> shares);

/// One link's part of a block: `count` cells from cell `offset`.
struct Slice {
    int link;
    uint32_t offset;
    uint32_t count;
    friend bool operator==(const Slice &, const Slice &) = default;
};

/// Cuts `cells` cells by `vector` into at most `vector.links` slices, in order of link, without gap or overlap; links
/// with no cell have no slice. Every slice is within one cell of its exact share. Returns the number written to
/// `slices` (0 where `cells` is 0 or every weight is 0). No allocation.
int cut(const PartitionVector &vector, uint32_t cells, std::span<Slice, kMaxLinks> slices);

/// Cuts a long block piece by piece: what rounding kept from a link in one piece it gets in a later one, so that its
/// slices of all pieces together are within one cell of its exact share, however short the pieces. What is owed in the
/// end may be carried on to the next block, so that blocks of few cells keep shares on average.
class PieceCutter {
  public:
    /// By link, cells · kWhole; of links that have a share it sums to 0.
    using Owed = std::array<int64_t, kMaxLinks>;

    explicit PieceCutter(const PartitionVector &vector) : vector_(vector) {}
    /// `owed` is of a vector with the same links, or counts for nothing.
    PieceCutter(const PartitionVector &vector, const Owed &owed);
    /// The next `cells` cells, which begin at `first`, as cut() does. No allocation.
    int next(uint32_t first, uint32_t cells, std::span<Slice, kMaxLinks> slices);
    [[nodiscard]] const Owed &owed() const { return owed_; }

  private:
    const PartitionVector vector_;
    Owed owed_{};
};

/// Parses `name:share,name:share` (the last `:` separates; shares ≥ 0, any scale, sum > 0) against `links`. Names not
/// among `links` are an error that lists them; links not named get 0. FLX_ERR_CONFIG leaves `vector` as it was.
Status parse_partition(const std::string &text, std::span<const std::string> links, PartitionVector &vector);

/// The items of such a text that name one of `links`, and the others: texts of the same form.
struct SplitPartition {
    std::string named;
    std::string rest;
};
SplitPartition split_partition(const std::string &text, std::span<const std::string> links);

/// `shm .90, eth0 .10`: for logs and reports; links without a share are left out.
std::string to_string(const PartitionVector &vector, std::span<const std::string> links);

}  // namespace flx
