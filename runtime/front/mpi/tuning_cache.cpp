#include "runtime/front/mpi/tuning_cache.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <mpi.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <system_error>

#include "runtime/include/flx.h"

namespace flx::preload {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
/// A file that is longer was not written by FLX.
constexpr uintmax_t kLongest = 16U << 20U;
/// Times of a file beyond these are damage.
constexpr double kShortestS = 1e-9;
constexpr double kLongestS = 1e5;

/// FNV-1a: only a file's name depends on it; the identity is compared in full.
uint64_t hash_of(const std::string &text) {
    uint64_t hash = 14695981039346656037ULL;
    for (const char c : text)
        hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    return hash;
}

double checked(const json &number) {
    const auto seconds = number.get<double>() * 1e-6;
    if (!(seconds >= kShortestS && seconds <= kLongestS))
        throw std::out_of_range(fmt::format("{} us", number.dump()));
    return seconds;
}

}  // namespace

std::string Shape::name() const {
    return fmt::format("{} ranks on {} hosts, at most {} on one", ranks, hosts, most);
}

TuningCache::TuningCache(std::string folder, std::string identity, int64_t now)
    : folder_(std::move(folder)), identity_(std::move(identity)), now_(now) {
    if (folder_.empty())
        state_ = "none is kept";
    else
        path_ = fmt::format("{}/mpi-{:016x}.json", folder_, hash_of(identity_));
}

/// Machines change in the course of time, and so do their loads. What is of times to come was written while the clock
/// was wrong, and would never be replaced.
bool TuningCache::is_of_this_month(int64_t when) const {
    constexpr int64_t kDayS = 24 * 3600;
    return when >= now_ - 30 * kDayS && when <= now_ + kDayS;
}

bool TuningCache::parse(const std::string &text, Shapes &shapes, std::string &why) const {
    try {
        const json file = json::parse(text);
        if (file.at("format").get<int>() != kFormat) {
            why = fmt::format("it has format {}, and this is {}", file.at("format").dump(), kFormat);
            return false;
        }
        if (file.at("identity").get<std::string>() != identity_) {
            why = "it is of another machine, build or set of knobs";
            return false;
        }
        for (const auto &[name, shape] : file.at("shapes").items()) {
            Kept &kept = shapes[name];
            kept.entry.experience.resize(CallClass::kCount);
            if (shape.contains("price_us")) {
                const auto when = shape.at("price_when").get<int64_t>();
                const double price = checked(shape.at("price_us"));
                if (is_of_this_month(when)) {
                    kept.entry.price_s = price;
                    kept.price_when = when;
                }
            }
            if (shape.contains("unpaid_us"))
                kept.entry.unpaid_s = checked(shape.at("unpaid_us"));
            for (const auto &[class_name, times] : shape.at("classes").items()) {
                CallClass which(0);
                const auto when = times.at("when").get<int64_t>();
                if (!CallClass::from_name(class_name, which))
                    throw std::out_of_range(class_name);
                if (!is_of_this_month(when))
                    continue;
                kept.entry.experience[which.index()] = {checked(times.at("mpi_us")), checked(times.at("flx_us"))};
                kept.when[which.index()] = when;
            }
        }
        return true;
    } catch (const std::exception &error) {
        why = fmt::format("it is damaged ({})", error.what());
        return false;
    }
}

/// False: there is no file, and `why` is empty, or it cannot be used.
bool TuningCache::load(Shapes &shapes, std::string &why) const {
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
    Shapes found;
    if (!parse(text.str(), found, why))
        return false;
    shapes = std::move(found);
    return true;
}

void TuningCache::read() {
    if (path_.empty())
        return;
    std::string why;
    if (load(shapes_, why))
        state_ = fmt::format("{}: times of {} kinds of communicators were read", path_, shapes_.size());
    else if (why.empty())
        state_ = fmt::format("{}: there is none yet", path_);
    else
        state_ = fmt::format("{} is not used: {}", path_, why);
}

const TuningCache::Entry *TuningCache::find(const Shape &shape) const {
    const auto found = shapes_.find(shape.name());
    return found == shapes_.end() ? nullptr : &found->second.entry;
}

TuningCache::Kept &TuningCache::kept(const std::string &shape) {
    Kept &kept = shapes_[shape];
    kept.entry.experience.resize(CallClass::kCount);
    return kept;
}

void TuningCache::learn(const Shape &shape, CallClass which, const Times &times, int64_t now) {
    Kept &kept = this->kept(shape.name());
    kept.entry.experience[which.index()] = times;
    kept.when[which.index()] = now;
    learned_ = true;
}

void TuningCache::learn_price(const Shape &shape, double price_s, int64_t now) {
    Kept &kept = this->kept(shape.name());
    kept.entry.price_s = kept.entry.price_s > 0 ? std::min(kept.entry.price_s, price_s) : price_s;
    kept.price_when = now;
    learned_ = true;
}

void TuningCache::learn_unpaid(const Shape &shape, double unpaid_s) {
    Kept &kept = this->kept(shape.name());
    if (kept.entry.price_s > 0)
        return;
    kept.added_s += unpaid_s;
    learned_ = true;
}

bool TuningCache::write() {
    if (path_.empty() || !learned_)
        return true;
    // Others may have written meanwhile.
    Shapes shapes;
    std::string why;
    load(shapes, why);
    add_what_was_learned(shapes);
    return replace_file(text_of(shapes));
}

void TuningCache::add_what_was_learned(Shapes &shapes) const {
    for (const auto &[name, mine] : shapes_) {
        Kept &kept = shapes[name];
        kept.entry.experience.resize(CallClass::kCount);
        for (size_t c = 0; c < CallClass::kCount; ++c)
            if (mine.when[c] >= kept.when[c] && mine.when[c] != 0) {
                kept.entry.experience[c] = mine.entry.experience[c];
                kept.when[c] = mine.when[c];
            }
        kept.entry.unpaid_s += mine.added_s;
        if (mine.price_when >= kept.price_when && mine.entry.price_s > 0) {
            kept.entry.price_s = mine.entry.price_s;
            kept.price_when = mine.price_when;
        }
    }
}

std::string TuningCache::text_of(const Shapes &shapes) const {
    json file = {{"format", kFormat}, {"identity", identity_}, {"shapes", json::object()}};
    for (const auto &[name, kept] : shapes) {
        json &shape = file["shapes"][name];
        shape["classes"] = json::object();
        if (kept.entry.price_s > 0) {
            shape["price_us"] = kept.entry.price_s * 1e6;
            shape["price_when"] = kept.price_when;
        }
        if (kept.entry.unpaid_s > 0 && kept.entry.price_s == 0)
            shape["unpaid_us"] = kept.entry.unpaid_s * 1e6;
        for (size_t c = 0; c < CallClass::kCount; ++c)
            if (const Times &times = kept.entry.experience[c]; kept.when[c] != 0 && times.known())
                shape["classes"][CallClass(c).name()] = {
                    {"mpi_us", times.mpi * 1e6}, {"flx_us", times.flx * 1e6}, {"when", kept.when[c]}};
    }
    return file.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

bool TuningCache::replace_file(const std::string &text) {
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    std::string temporary = path_ + ".XXXXXX";
    const int descriptor = error ? -1 : mkostemp(temporary.data(), O_CLOEXEC);
    if (descriptor < 0) {
        state_ = fmt::format("{} is not written: {}", path_, error ? error.message() : std::strerror(errno));
        return false;
    }
    size_t written = 0;
    while (written < text.size()) {
        const ssize_t now = ::write(descriptor, text.data() + written, text.size() - written);
        if (now < 0 && errno == EINTR)
            continue;
        if (now <= 0)
            break;
        written += static_cast<size_t>(now);
    }
    const bool complete = written == text.size();
    if (close(descriptor) != 0 || !complete || rename(temporary.c_str(), path_.c_str()) != 0) {
        state_ = fmt::format("{} is not written: {}", path_, std::strerror(errno));
        unlink(temporary.c_str());
        return false;
    }
    return true;
}

std::string cache_folder(const std::string &knob) {
    if (knob == "none")
        return {};
    if (!knob.empty())
        return knob;
    // Whoever runs with another's rights must not write where a variable says.
    const char *cache = secure_getenv("XDG_CACHE_HOME");
    if (cache != nullptr && *cache == '/')
        return fmt::format("{}/flx", cache);
    const char *home = secure_getenv("HOME");
    return home != nullptr && *home == '/' ? fmt::format("{}/.cache/flx", home) : std::string{};
}

std::string machine_and_builds() {
    std::array<char, HOST_NAME_MAX + 1> host{};
    gethostname(host.data(), host.size() - 1);
    // Which network devices there are; what they deliver is measured.
    std::set<std::string> devices;
    if (ifaddrs *all = nullptr; getifaddrs(&all) == 0) {
        for (const ifaddrs *each = all; each != nullptr; each = each->ifa_next)
            devices.insert(each->ifa_name);
        freeifaddrs(all);
    }
    std::string identity = fmt::format("host {}, {} cores, devices", host.data(), sysconf(_SC_NPROCESSORS_ONLN));
    for (const std::string &device : devices)
        identity += ' ' + device;
    Dl_info library{};
    struct stat file {};
    if (dladdr(reinterpret_cast<const void *>(&flx_version), &library) != 0 && stat(library.dli_fname, &file) == 0)
        identity += fmt::format("; FLX {} of {} bytes at {}.{:09}", flx_version(), file.st_size, file.st_mtim.tv_sec,
                                file.st_mtim.tv_nsec);
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
    int length = 0;
    PMPI_Get_library_version(version.data(), &length);
    identity += fmt::format("; {}", version.data());
    return identity;
}

}  // namespace flx::preload
