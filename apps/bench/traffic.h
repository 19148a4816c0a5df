/// \file traffic.h
/// Who sends how much to whom in an uneven exchange. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace flx::bench {

struct Traffic {
    enum class Kind {
        kUniform,  ///< every rank to every rank, itself too, alike
        kOnePair,  ///< rank 0 to the rank half way round, one way
        kZipf      ///< the k-th of the pairs, in a fixed random order, gets a part in proportion to 1 / k^exponent
    };
    Kind kind = Kind::kUniform;
    double exponent = 1.0;
};

/// `uniform`, `one-pair` or `zipf:S` with S ≥ 0.
[[nodiscard]] std::optional<Traffic> parse_traffic(std::string_view text);

/// Elements from rank s to rank r at [s · ranks + r]. A rank sends `elements` on average (one-pair: the one sends so
/// many).
[[nodiscard]] std::vector<size_t> traffic_matrix(const Traffic &traffic, size_t elements, int ranks);

/// Every rank to the next one on the circle, as nccl-tests' sendrecv does.
[[nodiscard]] std::vector<size_t> ring_matrix(size_t elements, int ranks);

/// One rank's part of a matrix: counts and where blocks begin, packed in order of rank.
struct Counts {
    std::vector<size_t> send, send_at, receive, receive_at;
    std::vector<int> int_send, int_send_at, int_receive, int_receive_at;  ///< the same, as MPI counts
    Counts() = default;
    Counts(const std::vector<size_t> &matrix, int rank, int ranks);
};

}  // namespace flx::bench
