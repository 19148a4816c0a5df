/// \file command_line.h
/// The command lines of the programs in apps/. CLI11 reads them, behind this header: its own take longer to compile
/// than any of FLX's files.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 names it
class App;
class Option;
}  // namespace CLI

namespace flx::apps {

/// What is wrong with a value, as a sentence; empty if nothing is.
using Check = std::function<std::string(const std::string &value)>;

/// An option or a positional argument that was added; to be used as long as its CommandLine is there.
class Option {
  public:
    explicit Option(CLI::Option *option) : option_(option) {}

    Option &required();
    /// Help shows what the variable is before anything is read, or `text`.
    Option &shows_default();
    Option &shows_default(const std::string &text);
    /// What help calls the value.
    Option &names_value(const std::string &name);
    /// Both ends are allowed. For variables of whole numbers, for those of other ones.
    Option &in_range(int least, int most);
    Option &in_range(size_t least, size_t most);
    Option &in_range(double least, double most);
    Option &one_of(std::vector<std::string> words);
    Option &checked(Check check);
    /// Of a number of bytes: 64K, 1M.
    Option &as_size();
    /// The values stand in one argument, with commas between.
    Option &as_list();
    /// It may be given several times, with one value each.
    Option &repeats();
    Option &excludes(const Option &other);
    Option &needs(const Option &other);
    /// Was it given? Once the line was read.
    [[nodiscard]] bool given() const;

  private:
    CLI::Option *option_;
};

/// Used once. Prints nothing by itself.
class CommandLine {
  public:
    CommandLine(const std::string &program, const std::string &purpose);
    ~CommandLine();
    CommandLine(const CommandLine &) = delete;
    CommandLine &operator=(const CommandLine &) = delete;

    /// `names`: `--name`, or a word for an argument that has none. `value` must outlive this; it is left as it is where
    /// the line does not have the option. Of T there are std::string, int, unsigned, int64_t, size_t, double, and
    /// vectors of std::string and int.
    template <typename T>
    Option option(const std::string &names, T &value, const std::string &help);
    /// `take` is given the value and says what is wrong with it.
    Option option(const std::string &names, Check take, const std::string &help);
    Option flag(const std::string &names, bool &value, const std::string &help);
    Option flag(const std::string &names, std::function<void()> done, const std::string &help);
    /// `--version` shows it.
    void version(const std::string &text);
    /// Where the help's second column begins.
    void help_from_column(size_t column);

    /// True: go on. False: text() is to be shown, and the program to end with exit_code().
    [[nodiscard]] bool parse(int argc, const char *const *argv);
    /// As parse() leaves it where an option's value is wrong; false. `option`: its name.
    bool refuse(const std::string &option, const std::string &why);
    /// As where something that is needed is not there; false.
    bool lacks(const std::string &what);

    /// Help, a version, or what is wrong and how to get help; with a new line at its end.
    [[nodiscard]] const std::string &text() const { return text_; }
    /// Only what is wrong. Empty where help or the version was asked for.
    [[nodiscard]] const std::string &problem() const { return problem_; }
    /// 0 where help or the version was asked for.
    [[nodiscard]] int exit_code() const { return exit_code_; }
    /// Writes text() to standard output, or where something is wrong to standard error. Returns exit_code().
    [[nodiscard]] int say() const;

  private:
    template <typename Error>
    bool ended(const Error &error);

    std::unique_ptr<CLI::App> app_;
    std::string text_;
    std::string problem_;
    int exit_code_ = 0;
};

}  // namespace flx::apps
