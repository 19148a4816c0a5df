/// \file sharing.h
/// Which links divide what carries them, as two functions of one card or two rails of one switch do: seen from their
/// rates alone and together.
#pragma once

#include <cstdint>
#include <span>

namespace flx::probe {

struct Rates {
    double alone = 0;     ///< bytes/ns; 0: not measured
    double together = 0;  ///< while all links were loaded; 0: not measured
};

/// The links, as a bit mask, that together carry about what one of them carries alone; 0: there are none, or they
/// cannot be told from several such groups. Of at most 32 links.
uint32_t links_that_share(std::span<const Rates> links);

}  // namespace flx::probe
