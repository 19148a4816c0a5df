/// \file command_line.h
/// The part of their command lines that programs that measure share: what is to be called, and how a program answers a
/// command line that it does not take.
#pragma once

#include <optional>
#include <string>

#include "apps/bench/call_options.h"
#include "apps/common/command_line.h"

namespace flx::bench {

/// What a command line came to: options to run with, or a text to show (help: to stdout, else to stderr) and the exit
/// code that goes with it.
template <typename Options>
struct Parsed {
    std::optional<Options> options;
    std::string text;
    int exit_code = 0;
};

/// Prints nothing. Used once.
class CommandLine {
  public:
    /// Has the options of `call`, which are read into it and must outlive this. `what`: the program's purpose.
    CommandLine(const std::string &program, const std::string &what, CallOptions &call);
    ~CommandLine() = default;
    CommandLine(const CommandLine &) = delete;
    CommandLine &operator=(const CommandLine &) = delete;

    /// To add the program's own options to.
    [[nodiscard]] apps::CommandLine &own() { return line_; }

    /// True if all is well; else text() and exit_code() say what to do. `ranks` is what `--root` is checked against.
    bool parse(int argc, const char *const *argv, int ranks);
    /// Makes text() and exit_code() those of a refusal, in one sentence.
    void refuse(const std::string &why);

    [[nodiscard]] const std::string &text() const { return text_; }
    [[nodiscard]] int exit_code() const { return exit_code_; }

  private:
    [[nodiscard]] std::string read(int ranks);

    std::string program_;
    apps::CommandLine line_;
    CallOptions &call_;
    std::string collective_;
    std::string sizes_ = "8:64M";
    std::string dtype_ = "f32";
    std::string op_ = "sum";
    std::string pattern_ = "uniform";
    std::string text_;
    int exit_code_ = 0;
};

}  // namespace flx::bench
