/// \file style.h
/// page.css and page.js, which CMake puts into a source, so that the page has them in it.
#pragma once

namespace flx::report {

extern const char *const kStyle;
extern const char *const kScript;

}  // namespace flx::report
