/// \file kept_file.h
/// A file of JSON in which a program leaves what it measured for the next one. It is never trusted: one that is
/// damaged, or of another machine or build, is as none, with the reason.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace flx {

/// Any thread, one at a time.
class KeptFile {
  public:
    /// `folder`: empty: there is no file. `kind`: `mpi` makes it mpi-HASH.json. `identity` says what the content is of:
    /// each has a file of its own. Files of another `format` are not read.
    KeptFile(std::string folder, std::string_view kind, std::string identity, int format);

    /// Empty: there is none.
    [[nodiscard]] const std::string &path() const { return path_; }
    /// False: there is no file, and `why` is empty, or it cannot be used.
    bool load(nlohmann::json &content, std::string &why) const;
    /// Whoever reads the file meanwhile finds the old one or the new one, whole; of several who write at once one may
    /// lose what it learned. `content`: an object. Removes files of this kind that nobody wrote for a month. False: it
    /// is not written.
    bool replace(nlohmann::json content, std::string &why) const;

  private:
    void remove_old_ones() const;

    std::string folder_;
    std::string kind_;
    std::string path_;
    std::string identity_;
    int format_;
};

/// A damaged file's sentence, from what an exception says.
std::string damaged(const char *what);

/// The folder that FLX_CACHE names, with its whole path; empty for `none`, where there is no home, and where the
/// process has another's rights.
std::string cache_folder(const std::string &knob);
/// This machine, for KeptFile: its name, cores and network cards, whose rates are measured.
std::string this_machine();
/// A library or program, or the one that holds `symbol`: its size and the time at which it was written.
std::string build_of(const std::string &path);
std::string build_of(const void *symbol);
/// Machines change in the course of time, and so do their loads. What is of times to come was written while the clock
/// was wrong, and would never be replaced. Both are in seconds since 1970.
bool is_of_this_month(int64_t when, int64_t now);

}  // namespace flx
