#include "apps/bench/traffic.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

namespace flx::bench {

std::optional<Traffic> parse_traffic(std::string_view text) {
    if (text == "uniform") {
        return Traffic{};
    }
    if (text == "one-pair") {
        return Traffic{Traffic::Kind::kOnePair, 0};
    }
    constexpr std::string_view kZipf = "zipf:";
    if (!text.starts_with(kZipf)) {
        return std::nullopt;
    }
    text.remove_prefix(kZipf.size());
    Traffic traffic{Traffic::Kind::kZipf, 0};
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), traffic.exponent);
    if (error != std::errc() || rest != text.data() + text.size() || !(traffic.exponent >= 0)) {
        return std::nullopt;
    }
    return traffic;
}

std::vector<size_t> traffic_matrix(const Traffic &traffic, size_t elements, int ranks) {
    const auto n = static_cast<size_t>(ranks);
    std::vector<size_t> matrix(n * n);
    if (traffic.kind == Traffic::Kind::kUniform) {
        std::fill(matrix.begin(), matrix.end(), elements / n);
        return matrix;
    }
    if (traffic.kind == Traffic::Kind::kOnePair || n == 1) {
        matrix[n / 2] = elements;
        return matrix;
    }
    std::vector<size_t> pairs;
    for (size_t i = 0; i < n * n; ++i) {
        if (i / n != i % n) {
            pairs.push_back(i);
        }
    }
    // The same order in every run: a linear congruential generator (Knuth, MMIX) and Fisher and Yates' shuffle.
    uint64_t state = 1;
    for (size_t i = pairs.size() - 1; i > 0; --i) {
        constexpr int kUpper = 33;
        state = state * 6364136223846793005U + 1442695040888963407U;
        std::swap(pairs[i], pairs[(state >> kUpper) % (i + 1)]);
    }
    double sum = 0;
    for (size_t k = 1; k <= pairs.size(); ++k) {
        sum += std::pow(static_cast<double>(k), -traffic.exponent);
    }
    for (size_t k = 1; k <= pairs.size(); ++k) {
        const double part = std::pow(static_cast<double>(k), -traffic.exponent) / sum;
        matrix[pairs[k - 1]] = static_cast<size_t>(part * static_cast<double>(elements * n));
    }
    return matrix;
}

std::vector<size_t> ring_matrix(size_t elements, int ranks) {
    const auto n = static_cast<size_t>(ranks);
    std::vector<size_t> matrix(n * n);
    for (size_t rank = 0; rank < n; ++rank) {
        matrix[rank * n + (rank + 1) % n] = elements;
    }
    return matrix;
}

Counts::Counts(const std::vector<size_t> &matrix, int rank, int ranks) {
    size_t sent = 0;
    size_t received = 0;
    for (int peer = 0; peer < ranks; ++peer) {
        send.push_back(matrix[static_cast<size_t>(rank) * ranks + peer]);
        receive.push_back(matrix[static_cast<size_t>(peer) * ranks + rank]);
        send_at.push_back(sent);
        receive_at.push_back(received);
        sent += send.back();
        received += receive.back();
    }
    int_send.assign(send.begin(), send.end());
    int_send_at.assign(send_at.begin(), send_at.end());
    int_receive.assign(receive.begin(), receive.end());
    int_receive_at.assign(receive_at.begin(), receive_at.end());
}

}  // namespace flx::bench
