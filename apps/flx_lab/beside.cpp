#include "apps/flx_lab/beside.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/bench/sizes.h"
#include "apps/bench/timing.h"

namespace flx::bench::lab {
namespace {

double median_of(const std::vector<double> &values) {
    return summarise(values).median;
}

const char *text_of(Side side) {
    switch (side) {
        case Side::flx:
            return "FLX";
        case Side::spare:
            return "FLX, spare";
        case Side::peer:
            return "NCCL";
    }
    return "";
}

double slower(double beside, double alone) {
    return alone > 0 ? beside / alone - 1 : 0;
}

}  // namespace

double pieces_between(const std::vector<double> &marks, double begin, double end) {
    double pieces = 0;
    for (size_t i = 1; i < marks.size(); ++i) {
        const double length = marks[i] - marks[i - 1];
        const double within = std::min(marks[i], end) - std::max(marks[i - 1], begin);
        if (length > 0 && within > 0)
            pieces += within / length;
    }
    return pieces;
}

double both(const Beside &size, const BesideSide &side) {
    const double call = median_of(side.beside);
    const double product = median_of(side.product);
    return call > 0 && product > 0 ? median_of(side.alone) / call + median_of(size.product) / product : 0;
}

std::string beside_header(const Options &options, const BesideResults &results) {
    return fmt::format(
        "{} of {} on streams, while bf16 products of {}x{} matrices run on another, {} rounds\n"
        "machine: {}\n"
        "FLX: {}; spare: with FLX_CUDA_BLOCKS=0\n"
        "peer: {}\n"
        "alone and beside: a call, a product; both: the sum of their speeds beside each other over those alone\n\n"
        "{:>9}  {:<11}{:<9}{:>11}{:>11}{:>8}{:>13}{:>13}{:>8}{:>7}{:>7}\n",
        name_of(options.collective), name_of(options.dtype), results.product_side, results.product_side, kBesideRounds,
        results.machine.text, settings_text(results.machine.flx_settings),
        results.machine.mpi.empty() ? "none" : results.machine.mpi, "size", "side", "way", "alone us", "beside us",
        "slower", "product us", "beside us", "slower", "both", "wrong");
}

std::string beside_rows(const Beside &size) {
    constexpr double kUs = 1e6;
    std::string text;
    const double product = median_of(size.product);
    for (const BesideSide &side : size.sides) {
        const double alone = median_of(side.alone);
        const double beside = median_of(side.beside);
        const double slowed = median_of(side.product);
        text += fmt::format("{:>9}  {:<11}{:<9}{:>11.1f}{:>11.1f}{:>7.0f}%{:>13.1f}{:>13.1f}{:>7.1f}%{:>7.2f}{:>7}\n",
                            size_text(size.bytes), text_of(side.side), side.algorithm, alone * kUs, beside * kUs,
                            100 * slower(beside, alone), product * kUs, slowed * kUs, 100 * slower(slowed, product),
                            both(size, side), side.wrong);
    }
    return text;
}

nlohmann::ordered_json beside_json(const Options &options, const BesideResults &results) {
    constexpr double kUs = 1e6;
    nlohmann::ordered_json json = head_of(results.machine, "beside product");
    json["collective"] = name_of(options.collective);
    json["dtype"] = name_of(options.dtype);
    json["in_place"] = options.in_place;
    json["product"] = fmt::format("bf16 {0}x{0}x{0}", results.product_side);
    json["rounds"] = kBesideRounds;
    json["results"] = nlohmann::ordered_json::array();
    for (const Beside &size : results.sizes) {
        const double product = median_of(size.product);
        for (const BesideSide &side : size.sides) {
            json["results"].push_back({{"bytes", size.bytes},
                                       {"side", text_of(side.side)},
                                       {"algorithm", side.algorithm},
                                       {"alone_us", kUs * median_of(side.alone)},
                                       {"beside_us", kUs * median_of(side.beside)},
                                       {"product_alone_us", kUs * product},
                                       {"product_beside_us", kUs * median_of(side.product)},
                                       {"product_tflops", product > 0 ? results.product_flops / product / 1e12 : 0},
                                       {"both", both(size, side)},
                                       {"wrong", side.wrong}});
        }
    }
    return json;
}

}  // namespace flx::bench::lab
