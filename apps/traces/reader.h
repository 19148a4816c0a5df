/// \file reader.h
/// Reads a trace line by line: each event stands on a line of its own, so a trace of any length takes the memory of its
/// longest line.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <string_view>

#include "apps/traces/event.h"

namespace flx::traces {

class TraceReader {
  public:
    /// `name` is what sentences call the file. The stream must outlive this.
    TraceReader(std::istream &stream, std::string name) : stream_(stream), name_(std::move(name)) {}

    /// Reads what stands before the events. False: see problem().
    bool begin(Header &header);
    /// The next event; null at the end, and where there is a problem(). With `having`, only lines with this text in
    /// them are looked at, which is much quicker. It is valid until the next call.
    const Event *next(std::string_view having = {});
    /// A sentence that says why the event that was read last cannot be used.
    [[nodiscard]] std::string refused(const std::string &why) const;
    /// Back to the first event.
    void rewind();

    /// What is wrong with the trace, as a sentence with file and line; empty: nothing.
    [[nodiscard]] const std::string &problem() const { return problem_; }
    /// The trace has no closing bracket: what wrote it was ended. All its whole lines were read.
    [[nodiscard]] bool truncated() const { return truncated_; }

  private:
    bool read_line();
    bool parse_event(std::string_view text);
    bool finish(std::string_view rest);
    bool refuse(const std::string &why);

    std::istream &stream_;
    std::string name_;
    std::string line_;
    uint64_t number_ = 0;       ///< of line_, from 1
    bool whole_ = false;        ///< line_ ended with its newline
    bool wants_comma_ = false;  ///< an event stands before, with no comma behind it
    bool after_comma_ = false;
    bool ended_ = false;
    bool truncated_ = false;
    std::streampos events_at_ = 0;
    uint64_t events_number_ = 0;  ///< lines before the first event
    std::string problem_;
    Event event_;
};

}  // namespace flx::traces
