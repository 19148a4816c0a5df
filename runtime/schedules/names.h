/// \file names.h
/// Private to the room: how the JSON calls what the schedules have numbers for.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "algorithms/registry.h"
#include "algorithms/schedule.h"

namespace flx::schedules {

inline constexpr std::array kKindNames = {
    std::pair{algorithms::StepKind::send, std::string_view("send")},
    std::pair{algorithms::StepKind::recv, std::string_view("recv")},
    std::pair{algorithms::StepKind::recv_reduce, std::string_view("recv_reduce")},
    std::pair{algorithms::StepKind::gather_reduce, std::string_view("gather_reduce")},
    std::pair{algorithms::StepKind::copy, std::string_view("copy")}};

inline constexpr std::array kBitsNames = {std::pair{algorithms::BitClass::none, std::string_view("none")},
                                          std::pair{algorithms::BitClass::rank_order, std::string_view("rank_order")},
                                          std::pair{algorithms::BitClass::ring, std::string_view("ring")},
                                          std::pair{algorithms::BitClass::tree, std::string_view("tree")},
                                          std::pair{algorithms::BitClass::doubling, std::string_view("doubling")},
                                          std::pair{algorithms::BitClass::chain, std::string_view("chain")},
                                          std::pair{algorithms::BitClass::halving, std::string_view("halving")},
                                          std::pair{algorithms::BitClass::tiers, std::string_view("tiers")},
                                          std::pair{algorithms::BitClass::own, std::string_view("own")}};

template <typename Pairs>
constexpr auto find_name(const Pairs &pairs, std::string_view name)
    -> std::optional<typename Pairs::value_type::first_type> {
    for (const auto &[value, called] : pairs)
        if (called == name)
            return value;
    return std::nullopt;
}

template <typename Pairs, typename Value>
constexpr std::string_view name_in(const Pairs &pairs, Value value) {
    for (const auto &[one, called] : pairs)
        if (one == value)
            return called;
    return "";
}

}  // namespace flx::schedules
