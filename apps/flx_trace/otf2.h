/// \file otf2.h
/// A trace as an archive of OTF2, which Vampir and the tools of Score-P read.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

namespace flx::trace {

/// What an archive was made of.
struct ArchiveMade {
    size_t ranks = 0;
    uint64_t calls = 0;
    std::vector<std::string> notes;  ///< sentences on what is not as it should be
};

/// Empty where archives can be written; else a sentence that says why not.
[[nodiscard]] std::string why_no_archives();

/// Reads a trace (trace_json.h), whose name in sentences is `name`, and writes the archive `folder`/traces.otf2.
/// `folder` must not be there. False: `problem` is a sentence that says why, and there is no folder.
[[nodiscard]] bool write_archive(std::istream &trace, const std::string &name, const std::string &folder,
                                 ArchiveMade &made, std::string &problem);

}  // namespace flx::trace
