/// \file result_file.h
/// A file that results go to.
#pragma once

#include <fstream>
#include <string>
#include <string_view>

namespace flx::apps {

/// Opened before anything is measured, so that a bad path costs no run. Without a path nothing is written.
class ResultFile {
  public:
    explicit ResultFile(const std::string &path);

    void write(std::string_view text);
    void flush();
    void close();
    /// What kept it from being written, as a sentence with a newline; or an empty text.
    [[nodiscard]] const std::string &problem() const { return problem_; }

  private:
    void note();

    std::string path_;
    std::ofstream file_;
    std::string problem_;
};

}  // namespace flx::apps
