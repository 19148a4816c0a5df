#include "apps/traces/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <type_traits>

namespace flx::traces {
namespace {

constexpr std::string_view kBlank = " \t\r\n";
/// Of what stands before the events, and behind them: a job of 10,000 ranks with ten links each says less.
constexpr size_t kLongestHeader = size_t{64} << 20;
constexpr size_t kMostNotes = 20;
/// Of microseconds: numbers beyond are no times, and whole ones below are exact.
constexpr double kLatest = 4e15;

std::string_view trimmed(std::string_view text) {
    const size_t from = text.find_first_not_of(kBlank);
    return from == std::string_view::npos ? std::string_view{}
                                          : text.substr(from, text.find_last_not_of(kBlank) - from + 1);
}

/// Takes an event apart as it is read, and builds nothing else.
class EventHandler : public nlohmann::json_sax<nlohmann::json> {
  public:
    explicit EventHandler(Event &event) : event_(event) {
        event_.phase = 0;
        event_.category.clear();
        event_.name.clear();
        event_.id.clear();
        event_.pid = event_.tid = -1;
        event_.at_us = event_.for_us = 0;
        event_.argument_count = 0;
    }

    bool null() override { return true; }
    bool boolean(bool value) override { return number(value ? 1 : 0); }
    bool number_integer(number_integer_t value) override { return number(static_cast<double>(value)); }
    bool number_unsigned(number_unsigned_t value) override { return number(static_cast<double>(value)); }
    bool number_float(number_float_t value, const string_t & /*text*/) override { return number(value); }
    bool binary(binary_t & /*value*/) override { return false; }

    bool string(string_t &value) override {
        if (in_arguments()) {
            Argument &argument = add();
            argument.is_text = true;
            argument.text = value;
            return true;
        }
        if (depth_ != 1)
            return depth_ > 1 || refuse("it is a text");
        if (is("ph"))
            event_.phase = value.size() == 1 ? value[0] : '?';
        else if (is("cat"))
            event_.category = value;
        else if (is("name"))
            event_.name = value;
        else if (is("id"))
            event_.id = value;
        else if (is("pid") || is("tid") || is("ts") || is("dur"))
            return refuse(fmt::format("its \"{}\" is a text", key_));
        return true;
    }

    bool start_object(size_t /*elements*/) override {
        ++depth_;
        if (depth_ == 2 && is("args"))
            in_args_ = true;
        return true;
    }
    bool end_object() override {
        if (--depth_ == 1)
            in_args_ = false;
        return true;
    }
    bool start_array(size_t /*elements*/) override {
        if (depth_ == 0)
            return refuse("it is a list");
        ++depth_;
        return true;
    }
    bool end_array() override {
        --depth_;
        return true;
    }
    bool key(string_t &name) override {
        key_ = name;
        return true;
    }
    bool parse_error(size_t position, const std::string & /*token*/,
                     const nlohmann::detail::exception &error) override {
        // What nlohmann says begins with a number and a place of its own.
        const std::string_view said = error.what();
        const size_t colon = said.find(": ");
        return refuse(
            fmt::format("column {}: {}", position, colon == std::string_view::npos ? said : said.substr(colon + 2)));
    }

    [[nodiscard]] const std::string &why() const { return why_; }

  private:
    [[nodiscard]] bool is(std::string_view name) const { return key_ == name; }
    [[nodiscard]] bool in_arguments() const { return in_args_ && depth_ == 2; }

    bool number(double value) {
        if (in_arguments()) {
            Argument &argument = add();
            argument.is_text = false;
            argument.number = value;
            return true;
        }
        if (depth_ != 1)
            return depth_ > 1 || refuse("it is a number");
        if (is("ts") || is("dur")) {
            // Written so that it is false of what is no number, too.
            if (!(std::abs(value) <= kLatest && (value >= 0 || is("ts"))))
                return refuse(fmt::format("its \"{}\" is {}, which is no time", key_, value));
            (is("ts") ? event_.at_us : event_.for_us) = value;
        } else if (is("pid") || is("tid")) {
            if (!(std::abs(value) <= kLatest))
                return refuse(fmt::format("its \"{}\" is {}", key_, value));
            (is("pid") ? event_.pid : event_.tid) = static_cast<int64_t>(value);
        } else if (is("id")) {
            event_.id = fmt::format("{}", value);
        }
        return true;
    }

    Argument &add() {
        if (event_.argument_count == event_.arguments.size())
            event_.arguments.emplace_back();
        Argument &argument = event_.arguments[event_.argument_count++];
        argument.name = key_;
        return argument;
    }

    bool refuse(const std::string &why) {
        why_ = why;
        return false;
    }

    Event &event_;
    std::string key_;
    int depth_ = 0;
    bool in_args_ = false;
    std::string why_;
};

/// A member of the header; one that is missing or of another kind leaves what was there.
template <typename T>
void take(const nlohmann::json &from, const char *name, T &to) {
    const auto found = from.find(name);
    if (found == from.end())
        return;
    if constexpr (std::is_same_v<T, std::string>) {
        if (found->is_string())
            to = found->template get<std::string>();
    } else if (found->is_number()) {
        const auto value = found->template get<double>();
        if (std::abs(value) <= kLatest && (value >= 0 || std::is_signed_v<T>))
            to = static_cast<T>(value);
    }
}

Header header_of(const nlohmann::json &other) {
    Header header;
    if (!other.is_object())
        return header;
    take(other, "flx", header.flx);
    take(other, "command", header.command);
    take(other, "job", header.job);
    take(other, "began", header.began);
    take(other, "began_since_1970_s", header.began_s);
    if (const auto whole_s = static_cast<std::time_t>(header.began_s); whole_s > 0)
        if (std::tm utc{}; gmtime_r(&whole_s, &utc) != nullptr)
            header.began = fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                                       utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
    if (const auto notes = other.find("notes"); notes != other.end() && notes->is_array())
        for (const nlohmann::json &note : *notes)
            if (note.is_string() && header.notes.size() < kMostNotes)
                header.notes.push_back(note.get<std::string>());
    take(other, "ranks", header.ranks);
    take(other, "hosts", header.hosts);
    take(other, "calls", header.calls);
    take(other, "lost_calls", header.lost_calls);
    const auto each = [&](const char *name, const auto &add) {
        const auto list = other.find(name);
        if (list != other.end() && list->is_array())
            for (const nlohmann::json &entry : *list)
                if (entry.is_object())
                    add(entry);
    };
    each("clocks", [&](const nlohmann::json &entry) {
        TraceClock &clock = header.clocks.emplace_back();
        take(entry, "host", clock.host);
        take(entry, "offset_us", clock.offset_us);
        take(entry, "drift_ppm", clock.drift_ppm);
        take(entry, "error_us", clock.error_us);
    });
    each("links", [&](const nlohmann::json &entry) {
        TraceLink &link = header.links.emplace_back();
        take(entry, "rank", link.rank);
        take(entry, "host", link.host);
        take(entry, "name", link.name);
        take(entry, "rate_MBps", link.rate_MBps);
        take(entry, "latency_us", link.latency_us);
        link.rate_MBps = std::max(0.0, link.rate_MBps);
    });
    return header;
}

}  // namespace

std::string TraceReader::refused(const std::string &why) const {
    return fmt::format("{}:{}: {}", name_, number_, why);
}

bool TraceReader::refuse(const std::string &why) {
    problem_ = refused(why);
    return false;
}

bool TraceReader::read_line() {
    if (!std::getline(stream_, line_))
        return false;
    whole_ = !stream_.eof();
    ++number_;
    return true;
}

bool TraceReader::begin(Header &header) {
    constexpr std::string_view kEvents = "\"traceEvents\"";
    std::string text;
    number_ = 0;
    while (read_line()) {
        text += line_;
        text += '\n';
        const std::string_view line = trimmed(line_);
        const size_t key = line.rfind(kEvents);
        if (key != std::string_view::npos) {
            std::string rest;  // `: [` and no more
            for (const char c : line.substr(key + kEvents.size()))
                if (kBlank.find(c) == std::string_view::npos)
                    rest += c;
            const bool empty = rest == ":[]" || rest == ":[]}";
            if (rest != ":[" && !empty)
                return refuse("the events do not begin on the next line, each on one of its own");
            text.resize(text.find_last_not_of("]}\n \t\r") + 1);
            const nlohmann::json whole = nlohmann::json::parse(text + "]}", nullptr, false);
            if (whole.is_discarded() || !whole.is_object())
                return refuse("what stands before the events is no JSON");
            if (const auto other = whole.find("otherData"); other != whole.end())
                header = header_of(*other);
            ended_ = empty;
            events_at_ = stream_.tellg();
            events_number_ = number_;
            return true;
        }
        if (text.size() > kLongestHeader)
            return refuse("this is no trace: there are no \"traceEvents\"");
    }
    number_ = std::max<uint64_t>(number_, 1);
    return refuse(text.empty() ? "the file is empty" : "this is no trace, or its beginning alone: no \"traceEvents\"");
}

void TraceReader::rewind() {
    if (events_at_ == std::streampos(-1))
        return;  // the stream ended with the header
    stream_.clear();
    stream_.seekg(events_at_);
    number_ = events_number_;
    wants_comma_ = after_comma_ = ended_ = truncated_ = false;
}

bool TraceReader::parse_event(std::string_view text) {
    EventHandler handler(event_);
    if (nlohmann::json::sax_parse(text.begin(), text.end(), &handler)) {
        if (event_.phase != 0)
            return true;
        return refuse("this event has no \"ph\"");
    }
    return refuse("this is no event: " + handler.why());
}

/// `rest` begins with the closing bracket. After it only the other end of the object may come, maybe with more members.
bool TraceReader::finish(std::string_view rest) {
    if (after_comma_)
        return refuse("a comma stands before the closing bracket");
    std::string text = "{\"events\":[";
    text += rest;
    while (text.size() < kLongestHeader && read_line()) {
        text += line_;
        text += '\n';
    }
    ended_ = true;
    const std::string_view all = trimmed(text);
    if (all == "{\"events\":[]") {
        truncated_ = true;  // all events are there, the object's own end is not
        return true;
    }
    if (nlohmann::json::accept(all))
        return true;
    return refuse("this is no end of a trace");
}

const Event *TraceReader::next(std::string_view having) {
    while (!ended_ && problem_.empty()) {
        if (!read_line()) {
            ended_ = truncated_ = true;
            return nullptr;
        }
        std::string_view text = trimmed(line_);
        if (text.empty())
            continue;
        if (text.front() == ',' && (wants_comma_ || !having.empty())) {
            wants_comma_ = false;
            after_comma_ = having.empty();
            text = trimmed(text.substr(1));
            if (text.empty())
                continue;
        }
        if (text.front() == ']') {
            if (!whole_ && text != "]" && text != "]}") {
                ended_ = truncated_ = true;
                return nullptr;
            }
            finish(text);
            return nullptr;
        }
        if (!having.empty() && text.find(having) == std::string_view::npos)
            continue;
        const bool comma = text.back() == ',';
        if (comma)
            text = trimmed(text.substr(0, text.size() - 1));
        const bool had_comma = !wants_comma_;
        if (!parse_event(text)) {
            if (!whole_) {  // cut off within it
                problem_.clear();
                ended_ = truncated_ = true;
            }
            return nullptr;
        }
        if (having.empty() && !had_comma) {
            refuse("a comma is missing before this event");
            return nullptr;
        }
        wants_comma_ = having.empty() && !comma;
        after_comma_ = having.empty() && comma;
        return &event_;
    }
    return nullptr;
}

}  // namespace flx::traces
