#include "apps/common/text_file.h"

#include <cstdio>

namespace flx::apps {

bool write_text(const std::string &path, const std::string &text) {
    std::FILE *file = path == "-" ? stdout : std::fopen(path.c_str(), "wb");
    if (file == nullptr)
        return false;
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    return (file == stdout ? std::fflush(file) : std::fclose(file)) == 0 && written;
}

}  // namespace flx::apps
