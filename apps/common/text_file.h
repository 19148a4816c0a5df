/// \file text_file.h
/// Texts that a program writes when all of them is known.
#pragma once

#include <string>

namespace flx::apps {

/// The file is made, or made anew; `-`: standard output. False, with errno set: it could not be written.
bool write_text(const std::string &path, const std::string &text);
/// Writes it beside the file and puts it in the file's place, so that what was there stays until all of it is written.
/// In /tmp others may have put a link beside it, which is not followed. False, with errno set: it could not be written.
bool replace_text(const std::string &path, const std::string &text);

}  // namespace flx::apps
