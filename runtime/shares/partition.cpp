#include "runtime/shares/partition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>
#include <string_view>

namespace flx {
namespace {

bool positive(double share) {
    return std::isfinite(share) && share > 0;
}

std::string_view trim(std::string_view text) {
    const auto first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos)
        return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

PartitionVector make_partition(std::span<const double> shares) {
    assert(shares.size() <= kMaxLinks);
    PartitionVector vector;
    vector.links = static_cast<int>(std::min<size_t>(shares.size(), kMaxLinks));

    // Scaled by the largest share first, so that neither huge nor tiny shares leave the range of a double.
    double largest = 0;
    for (int i = 0; i < vector.links; ++i)
        if (positive(shares[i]))
            largest = std::max(largest, shares[i]);
    if (largest == 0)
        return vector;
    std::array<double, kMaxLinks> remainder{};
    double sum = 0;
    for (int i = 0; i < vector.links; ++i) {
        remainder[i] = positive(shares[i]) ? shares[i] / largest : 0;
        sum += remainder[i];
    }

    // Floors first. Each floor is at most its exact value and the exact values sum to kWhole up to rounding errors far
    // below 1, so the floors sum to kWhole at most; less than one unit is missing per positive share.
    const double scale = PartitionVector::kWhole / sum;
    uint32_t left = PartitionVector::kWhole;
    for (int i = 0; i < vector.links; ++i) {
        const double exact = remainder[i] * scale;
        vector.weight[i] = static_cast<uint32_t>(exact);
        left -= vector.weight[i];
        remainder[i] = exact - vector.weight[i];
    }
    // The missing units go to the largest remainders, ties to the first link. A share of zero has remainder 0 and is
    // passed over even where rounding left every remainder 0.
    while (left > 0) {
        int best = -1;
        for (int i = 0; i < vector.links; ++i)
            if (positive(shares[i]) && (best < 0 || remainder[i] > remainder[best]))
                best = i;
        ++vector.weight[best];
        remainder[best] -= 1;
        --left;
    }
    return vector;
}

int cut(const PartitionVector &vector, uint32_t cells, std::span<Slice, kMaxLinks> slices) {
    // Slice i ends at its cumulative weight, W_i·cells / kWhole, rounded to the nearest cell (halves up).
    // - Tiling: slice i+1 begins where slice i ends; W of the last link is kWhole, whose boundary is exactly `cells`.
    //   Cumulative weights do not fall and rounding is monotonic, so no slice is negative.
    // - Error: a rounded boundary lies in (-1/2, +1/2] cells of the exact one, so a difference of two lies within
    //   (-1, +1) of the exact share. Rounding each share by itself would not tile.
    // - A weight of 0 repeats the boundary: no slice. A share of a whole cell or more always gets a cell.
    // - W_i ≤ 2^16 and cells < 2^32, so the product fits 64 bits.
    constexpr uint64_t half = PartitionVector::kWhole / 2;
    uint64_t cumulative = 0;
    uint32_t begin = 0;
    int count = 0;
    for (int i = 0; i < vector.links; ++i) {
        cumulative += vector.weight[i];
        const auto end = static_cast<uint32_t>((cumulative * cells + half) / PartitionVector::kWhole);
        slices[count] = {i, begin, end - begin};
        count += end != begin;
        begin = end;
    }
    return count;
}

PieceCutter::PieceCutter(const PartitionVector &vector, const Owed &owed) : vector_(vector), owed_(owed) {
    for (int i = 0; i < kMaxLinks; ++i)
        if (owed[i] != 0 && (i >= vector.links || vector.weight[i] == 0)) {
            owed_ = {};
            return;
        }
}

int PieceCutter::next(uint32_t first, uint32_t cells, std::span<Slice, kMaxLinks> slices) {
    // Every link gets the whole cells that it is owed, and those that are left over go to the links that are owed most.
    // What is owed stays within (-1, 1) cells: it sums to 0 after each piece, and only links that are owed something
    // are given a cell more. There are fewer left over than such links.
    std::array<uint32_t, kMaxLinks> count{};
    uint64_t left = cells;
    for (int i = 0; i < vector_.links; ++i) {
        owed_[i] += static_cast<int64_t>(uint64_t{vector_.weight[i]} * cells);
        if (owed_[i] <= 0)
            continue;
        count[i] = static_cast<uint32_t>(std::min<uint64_t>(owed_[i] / PartitionVector::kWhole, left));
        owed_[i] -= static_cast<int64_t>(uint64_t{count[i]} * PartitionVector::kWhole);
        left -= count[i];
    }
    const bool any = std::any_of(vector_.weight.begin(), vector_.weight.begin() + vector_.links,
                                 [](uint32_t weight) { return weight != 0; });
    for (; any && left != 0; --left) {
        const auto most = std::max_element(owed_.begin(), owed_.begin() + vector_.links) - owed_.begin();
        ++count[most];
        owed_[most] -= PartitionVector::kWhole;
    }
    int slice = 0;
    for (int i = 0; i < vector_.links; ++i) {
        if (count[i] == 0)
            continue;
        slices[slice++] = {i, first, count[i]};
        first += count[i];
    }
    return slice;
}

Status parse_partition(const std::string &text, std::span<const std::string> links, PartitionVector &vector) {
    const auto allowed = [&] { return fmt::format("{}", fmt::join(links, ", ")); };
    if (links.size() > kMaxLinks)
        return fail(Fault::too_many_links,
                    "{} links are more than the {} that a partition can have; FLX_LINKS or FLX_RAILS must name fewer",
                    links.size(), kMaxLinks);
    std::array<double, kMaxLinks> shares{};
    std::array<bool, kMaxLinks> named{};
    double sum = 0;
    std::string_view rest = text;
    while (true) {
        const auto comma = rest.find(',');
        const std::string_view item = trim(rest.substr(0, comma));
        // The last colon separates, since names of RDMA ports have one (mlx5_0:1).
        const auto colon = item.rfind(':');
        if (colon == std::string_view::npos || colon == 0)
            return fail(Fault::partition_text, "partition \"{}\": \"{}\" is not name:share; the links are {}", text,
                        item, allowed());
        const std::string_view name = trim(item.substr(0, colon));
        const std::string_view number = trim(item.substr(colon + 1));
        const auto found = std::find(links.begin(), links.end(), name);
        if (found == links.end())
            return fail(Fault::partition_text, "partition \"{}\": there is no link \"{}\"; the links are {}", text,
                        name, allowed());
        const auto index = found - links.begin();
        if (named[index])
            return fail(Fault::partition_text, "partition \"{}\" names link \"{}\" twice; each may be named once", text,
                        name);
        double share = 0;
        const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), share);
        if (error != std::errc{} || end != number.data() + number.size() || !std::isfinite(share) || share < 0)
            return fail(Fault::partition_text, "partition \"{}\": share \"{}\" of {} is not a number of 0 or more",
                        text, number, name);
        named[index] = true;
        shares[index] = share;
        sum += share;
        if (comma == std::string_view::npos)
            break;
        rest = rest.substr(comma + 1);
    }
    if (!(sum > 0))
        return fail(Fault::partition_text, "partition \"{}\": at least one share must be more than 0", text);
    vector = make_partition(std::span<const double>(shares.data(), links.size()));
    return {};
}

SplitPartition split_partition(const std::string &text, std::span<const std::string> links) {
    SplitPartition split;
    for (std::string_view rest = text; !rest.empty();) {
        const auto comma = rest.find(',');
        const std::string_view item = rest.substr(0, comma);
        const bool named = std::find(links.begin(), links.end(), trim(item.substr(0, item.rfind(':')))) != links.end();
        std::string &side = named ? split.named : split.rest;
        side += fmt::format("{}{}", side.empty() ? "" : ",", item);
        rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    }
    return split;
}

std::string to_string(const PartitionVector &vector, std::span<const std::string> links) {
    std::string text;
    for (int i = 0; i < vector.links && i < static_cast<int>(links.size()); ++i) {
        if (vector.weight[i] == 0)
            continue;
        // Shares that two digits would show as .00 get five, enough for the smallest weight.
        std::string share = fmt::format("{:.{}f}", vector.share(i), vector.share(i) < 0.005 ? 5 : 2);
        if (share.front() == '0')
            share.erase(0, 1);
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", links[i], share);
    }
    return text;
}

}  // namespace flx
