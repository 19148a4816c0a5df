#include "runtime/front/mpi/routing/tuning_cache.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <exception>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "runtime/include/flx.h"

namespace flx::preload {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
/// Times of a file beyond these are damage.
constexpr double kShortestS = 1e-9;
constexpr double kLongestS = 1e5;

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
    : file_(std::move(folder), "mpi", std::move(identity), kFormat), now_(now) {
    if (file_.path().empty())
        state_ = "none is kept";
}

bool TuningCache::parse(const json &file, Shapes &shapes, std::string &why) const {
    try {
        for (const auto &[name, shape] : file.at("shapes").items()) {
            Kept &kept = shapes[name];
            kept.entry.experience.resize(CallClass::kCount);
            if (shape.contains("price_us")) {
                const auto when = shape.at("price_when").get<int64_t>();
                const double price = checked(shape.at("price_us"));
                if (is_of_this_month(when, now_)) {
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
                if (!is_of_this_month(when, now_))
                    continue;
                kept.entry.experience[which.index()] = {checked(times.at("mpi_us")), checked(times.at("flx_us"))};
                kept.when[which.index()] = when;
            }
        }
        return true;
    } catch (const std::exception &error) {
        why = damaged(error.what());
        return false;
    }
}

/// False: there is no file, and `why` is empty, or it cannot be used.
bool TuningCache::load(Shapes &shapes, std::string &why) const {
    json content;
    Shapes found;
    if (!file_.load(content, why) || !parse(content, found, why))
        return false;
    shapes = std::move(found);
    return true;
}

void TuningCache::read() {
    if (path().empty())
        return;
    std::string why;
    if (load(shapes_, why))
        state_ = fmt::format("{}: times of {} kinds of communicators were read", path(), shapes_.size());
    else if (why.empty())
        state_ = fmt::format("{}: there is none yet", path());
    else
        state_ = fmt::format("{} is not used: {}", path(), why);
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
    constexpr double kMostGrowth = 2;
    Kept &kept = this->kept(shape.name());
    kept.entry.price_s = kept.entry.price_s > 0 ? std::min(kMostGrowth * kept.entry.price_s, price_s) : price_s;
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
    if (path().empty() || !learned_)
        return true;
    // Others may have written meanwhile.
    Shapes shapes;
    std::string why;
    load(shapes, why);
    add_what_was_learned(shapes);
    if (file_.replace(content_of(shapes), why)) {
        state_ += "; what was learned is in it now";
        return true;
    }
    state_ = fmt::format("{} is not written: {}", path(), why);
    return false;
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

json TuningCache::content_of(const Shapes &shapes) {
    json file = {{"shapes", json::object()}};
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
    return file;
}

std::string machine_and_builds(const std::string &library) {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
    int length = 0;
    PMPI_Get_library_version(version.data(), &length);
    return fmt::format("{}; FLX {}.{}.{} of {}; {}", this_machine(), FLX_VERSION_MAJOR, FLX_VERSION_MINOR,
                       FLX_VERSION_PATCH, build_of(library), version.data());
}

}  // namespace flx::preload
