/// \file errors.h
/// What docs/errors.md says of an error code, without the network.
#pragma once

#include <string>
#include <string_view>

/// docs/errors.md as it was when this program was built.
extern const std::string_view kErrorsPage;

/// The section of `page` on a code: `FLX-E601`, `E601` or `601`, whatever the case. Empty: it has none.
std::string section_of(std::string_view page, std::string_view code);

/// A line for each code of `page`: `FLX-E601  A rank died`.
std::string codes_of(std::string_view page);
