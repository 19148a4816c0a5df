#include "apps/common/text_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace flx::apps {

bool write_text(const std::string &path, const std::string &text) {
    std::FILE *file = path == "-" ? stdout : std::fopen(path.c_str(), "wb");
    if (file == nullptr)
        return false;
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    return (file == stdout ? std::fflush(file) : std::fclose(file)) == 0 && written;
}

bool replace_text(const std::string &path, const std::string &text) {
    const std::string beside = path + "." + std::to_string(getpid()) + ".new";
    std::remove(beside.c_str());
    std::FILE *file = std::fopen(beside.c_str(), "wbx");
    if (file == nullptr)
        return false;
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    const bool closed = std::fclose(file) == 0;
    if (written && closed && std::rename(beside.c_str(), path.c_str()) == 0)
        return true;
    const int why = errno;
    std::remove(beside.c_str());
    errno = why;
    return false;
}

}  // namespace flx::apps
