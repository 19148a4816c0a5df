#include "apps/common/result_file.h"

#include <fmt/format.h>

#include <cerrno>

namespace flx::apps {

ResultFile::ResultFile(const std::string &path) : path_(path) {
    if (!path.empty()) {
        file_.open(path);
        note();
    }
}

void ResultFile::write(std::string_view text) {
    if (file_.is_open()) {
        file_ << text;
    }
}

void ResultFile::flush() {
    file_.flush();
}

void ResultFile::close() {
    if (file_.is_open()) {
        file_.close();
        note();
    }
}

void ResultFile::note() {
    if (!file_) {
        problem_ = fmt::format("{}: cannot write '{}'\n", program_invocation_short_name, path_);
    }
}

}  // namespace flx::apps
