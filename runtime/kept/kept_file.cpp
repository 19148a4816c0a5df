#include "runtime/kept/kept_file.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "runtime/base/text.h"

namespace flx {
namespace {

using nlohmann::json;

/// A file that is longer was not written by FLX.
constexpr uintmax_t kLongest = 16U << 20U;

/// FNV-1a: only a file's name depends on it; the identity is compared in full.
uint64_t hash_of(const std::string &text) {
    uint64_t hash = 14695981039346656037ULL;
    for (const char c : text)
        hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    return hash;
}

bool write_all(int descriptor, const std::string &text) {
    size_t written = 0;
    while (written < text.size()) {
        const ssize_t now = ::write(descriptor, text.data() + written, text.size() - written);
        if (now < 0 && errno == EINTR)
            continue;
        if (now <= 0)
            return false;
        written += static_cast<size_t>(now);
    }
    return true;
}

}  // namespace

KeptFile::KeptFile(std::string folder, std::string_view kind, std::string identity, int format)
    : folder_(std::move(folder)), kind_(kind), identity_(std::move(identity)), format_(format) {
    if (!folder_.empty())
        path_ = fmt::format("{}/{}-{:016x}.json", folder_, kind_, hash_of(identity_));
}

bool KeptFile::load(json &content, std::string &why) const {
    std::error_code error;
    const uintmax_t size = std::filesystem::file_size(path_, error);
    if (error == std::errc::no_such_file_or_directory)
        return false;
    if (error || size > kLongest) {
        why = error ? error.message() : fmt::format("it has {} bytes, at most {} are read", size, kLongest);
        return false;
    }
    std::ifstream in(path_);
    std::stringstream text;
    text << in.rdbuf();
    if (!in) {
        why = std::strerror(errno);
        return false;
    }
    try {
        json found = json::parse(text.str());
        if (found.at("format").get<int>() != format_) {
            why = fmt::format("it has format {}, and this is {}", found.at("format").dump(), format_);
            return false;
        }
        if (found.at("identity").get<std::string>() != identity_) {
            why = "it is of another machine, build or set of knobs";
            return false;
        }
        content = std::move(found);
        return true;
    } catch (const std::exception &wrong) {
        why = damaged(wrong.what());
        return false;
    }
}

bool KeptFile::replace(json content, std::string &why) const {
    content["format"] = format_;
    content["identity"] = identity_;
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    std::string temporary = path_ + ".XXXXXX";
    const int descriptor = error ? -1 : mkostemp(temporary.data(), O_CLOEXEC);
    if (descriptor < 0) {
        why = error ? error.message() : std::strerror(errno);
        return false;
    }
    const bool complete = write_all(descriptor, content.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
    if (close(descriptor) != 0 || !complete || rename(temporary.c_str(), path_.c_str()) != 0) {
        why = std::strerror(errno);
        unlink(temporary.c_str());
        return false;
    }
    remove_old_ones();
    return true;
}

/// Those of builds and machines that are no more.
void KeptFile::remove_old_ones() const {
    constexpr auto kOldest = std::chrono::hours(24 * 31);
    const auto now = std::filesystem::file_time_type::clock::now();
    std::error_code error;
    for (const auto &entry : std::filesystem::directory_iterator(folder_, error)) {
        const std::string name = entry.path().filename();
        const auto written = entry.last_write_time(error);
        if (!error && name.rfind(kind_ + "-", 0) == 0 && name.find(".json") != std::string::npos &&
            now - written > kOldest)
            std::filesystem::remove(entry.path(), error);
    }
}

std::string damaged(const char *what) {
    return fmt::format("it is damaged ({})", what);
}

std::string cache_folder(const std::string &knob) {
    // Whoever runs with another's rights must not write where a variable says.
    if (knob == "none" || getauxval(AT_SECURE) != 0)
        return {};
    if (!knob.empty()) {
        std::error_code error;
        const std::filesystem::path folder = std::filesystem::absolute(knob, error);
        return error ? std::string{} : folder.string();
    }
    const char *cache = secure_getenv("XDG_CACHE_HOME");
    if (cache != nullptr && *cache == '/')
        return fmt::format("{}/flx", cache);
    const char *home = secure_getenv("HOME");
    return home != nullptr && *home == '/' ? fmt::format("{}/.cache/flx", home) : std::string{};
}

std::string this_machine() {
    std::set<std::string> devices;
    if (ifaddrs *all = nullptr; getifaddrs(&all) == 0) {
        for (const ifaddrs *each = all; each != nullptr; each = each->ifa_next)
            if (access(fmt::format("/sys/class/net/{}/device", each->ifa_name).c_str(), F_OK) == 0)
                devices.insert(each->ifa_name);
        freeifaddrs(all);
    }
    std::string text = fmt::format("host {}, {} cores, devices", host_name(), sysconf(_SC_NPROCESSORS_ONLN));
    for (const std::string &device : devices)
        text += ' ' + device;
    return text;
}

std::string build_of(const void *symbol) {
    Dl_info library{};
    return dladdr(symbol, &library) != 0 ? build_of(std::string(library.dli_fname)) : "unknown";
}

std::string build_of(const std::string &path) {
    struct stat file {};
    if (stat(path.c_str(), &file) != 0)
        return "unknown";
    return fmt::format("{} bytes at {}.{:09}", file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
}

bool is_of_this_month(int64_t when, int64_t now) {
    constexpr int64_t kDayS = 24 * 3600;
    return when >= now - 30 * kDayS && when <= now + kDayS;
}

}  // namespace flx
