#include "runtime/base/boot_id.h"

#include <fmt/format.h>

#include <fstream>

#include "runtime/base/text.h"

namespace flx {
namespace {

/// The first line of a file; empty where there is none.
std::string line_of(const char *path) {
    std::string line;
    std::getline(std::ifstream(path), line);
    return line;
}

}  // namespace

std::string boot_id(const char *kernels_word) {
    if (std::string word = line_of(kernels_word); !word.empty())
        return word;
    return fmt::format("{} {}", host_name(), line_of("/etc/machine-id"));
}

}  // namespace flx
