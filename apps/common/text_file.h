/// \file text_file.h
/// Texts that a program writes when all of them is known.
#pragma once

#include <string>

namespace flx::apps {

/// The file is made, or made anew; `-`: standard output. False, with errno set: it could not be written.
bool write_text(const std::string &path, const std::string &text);

}  // namespace flx::apps
