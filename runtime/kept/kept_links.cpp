#include "runtime/kept/kept_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace flx {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
/// Communicators that a file tells of.
constexpr size_t kMost = 64;

std::string identity() {
    return fmt::format("{}; FLX of {}", this_machine(), build_of(&kMost));
}

double checked(const json &number) {
    constexpr double kMostOfAll = 1e12;
    const auto value = number.get<double>();
    if (!(value >= 0 && value <= kMostOfAll))
        throw std::out_of_range(number.dump());
    return value;
}

}  // namespace

json to_json(const std::vector<LinksMeasured> &all) {
    json ranks = json::array();
    for (const LinksMeasured &links : all) {
        json &rank = ranks.emplace_back(json::array());
        for (size_t place = 0; place < links.size(); ++place)
            if (const LinkMeasured &link = links[place]; link.answered)
                rank.push_back({place, link.latency_ns, link.bytes_per_ns, link.together_bytes_per_ns, link.send_ns,
                                link.done ? 1 : 0});
    }
    return ranks;
}

std::vector<LinksMeasured> links_from_json(const json &text, size_t ranks) {
    if (!text.is_array() || text.size() != ranks)
        throw std::out_of_range(fmt::format("it is not of {} ranks", ranks));
    std::vector<LinksMeasured> all(ranks);
    for (size_t rank = 0; rank < ranks; ++rank)
        for (const json &link : text.at(rank)) {
            LinkMeasured &measured = all[rank].at(link.at(0).get<size_t>());
            measured.answered = true;
            measured.latency_ns = checked(link.at(1));
            measured.bytes_per_ns = checked(link.at(2));
            measured.together_bytes_per_ns = checked(link.at(3));
            measured.send_ns = checked(link.at(4));
            measured.done = link.at(5).get<int>() != 0;
            if (measured.done && (measured.bytes_per_ns <= 0 || measured.latency_ns <= 0))
                throw std::out_of_range(link.dump());
        }
    return all;
}

KeptLinks::KeptLinks(const std::string &folder, int64_t now)
    : file_(folder, "links", folder.empty() ? std::string() : identity(), kFormat), now_(now) {}

bool KeptLinks::find(const std::string &key, size_t ranks, std::vector<LinksMeasured> &all) {
    if (file_.path().empty()) {
        state_ = "nothing is kept";
        return false;
    }
    std::string why;
    try {
        json content;
        if (file_.load(content, why)) {
            const json &communicators = content.at("communicators");
            if (!communicators.contains(key)) {
                state_ = fmt::format("{} knows no such communicator yet", file_.path());
                return false;
            }
            const json &found = communicators.at(key);
            const auto when = found.at("when").get<int64_t>();
            if (!is_of_today(when)) {
                state_ = fmt::format("what {} has is too old", file_.path());
                return false;
            }
            all = links_from_json(found.at("ranks"), ranks);
            constexpr int64_t kHourS = 3600;
            state_ =
                fmt::format("measured {} hours ago, by {}", std::max<int64_t>(now_ - when, 0) / kHourS, file_.path());
            return true;
        }
    } catch (const std::exception &error) {
        why = damaged(error.what());
    }
    state_ = why.empty() ? fmt::format("{} is not there yet", file_.path())
                         : fmt::format("{} is not used: {}", file_.path(), why);
    return false;
}

bool KeptLinks::is_of_today(int64_t when) const {
    constexpr int64_t kDayS = 24 * 3600;
    return when >= now_ - kDayS && when <= now_ + kDayS;
}

void KeptLinks::keep(const std::string &key, const std::vector<LinksMeasured> &all) {
    if (file_.path().empty())
        return;
    std::string why;
    try {
        json communicators = json::object();
        communicators[key] = {{"when", now_}, {"ranks", to_json(all)}};
        json content;
        if (file_.load(content, why) && content.contains("communicators") && content["communicators"].is_object())
            for (auto &[name, each] : content["communicators"].items())
                if (name != key && communicators.size() < kMost && each.is_object() &&
                    is_of_today(each.value("when", int64_t{0})))
                    communicators[name] = std::move(each);
        state_ = file_.replace({{"communicators", std::move(communicators)}}, why)
                     ? fmt::format("measured now, and kept in {}", file_.path())
                     : fmt::format("measured now; {} is not written: {}", file_.path(), why);
    } catch (const std::exception &error) {
        state_ = fmt::format("measured now; {} is not written: {}", file_.path(), error.what());
    }
}

std::string what_changed(const std::vector<LinksMeasured> &then, const std::vector<LinksMeasured> &now,
                         const std::vector<std::string> &names) {
    for (size_t rank = 0; rank < then.size(); ++rank)
        for (size_t place = 0; place < 2 * kMaxLinks; ++place)
            if (then[rank][place].answered != now[rank][place].answered)
                return fmt::format("{} {} rank {} now",
                                   place % kMaxLinks < names.size() ? names[place % kMaxLinks] : "an unknown link",
                                   now[rank][place].answered ? "answers" : "does not answer", rank);
    return {};
}

}  // namespace flx
