#include "apps/common/command_line.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <iostream>
#include <sstream>

namespace flx::apps {

Option &Option::required() {
    option_->required();
    return *this;
}
Option &Option::shows_default() {
    option_->capture_default_str();
    return *this;
}
Option &Option::shows_default(const std::string &text) {
    option_->default_str(text);
    return *this;
}
Option &Option::names_value(const std::string &name) {
    option_->type_name(name);
    return *this;
}
Option &Option::in_range(int least, int most) {
    option_->check(CLI::Range(least, most));
    return *this;
}
Option &Option::in_range(size_t least, size_t most) {
    option_->check(CLI::Range(least, most));
    return *this;
}
Option &Option::in_range(double least, double most) {
    option_->check(CLI::Range(least, most));
    return *this;
}
Option &Option::one_of(std::vector<std::string> words) {
    option_->check(CLI::IsMember(std::move(words)));
    return *this;
}
Option &Option::checked(Check check) {
    option_->check(std::move(check));
    return *this;
}
Option &Option::as_size() {
    option_->transform(CLI::AsSizeValue(false));
    return *this;
}
Option &Option::as_list() {
    option_->delimiter(',');
    return *this;
}
Option &Option::repeats() {
    option_->allow_extra_args(false);
    return *this;
}
Option &Option::excludes(const Option &other) {
    option_->excludes(other.option_);
    return *this;
}
Option &Option::needs(const Option &other) {
    option_->needs(other.option_);
    return *this;
}
bool Option::given() const {
    return option_->count() != 0;
}

CommandLine::CommandLine(const std::string &program, const std::string &purpose)
    : app_(std::make_unique<CLI::App>(purpose, program)) {}
CommandLine::~CommandLine() = default;

template <typename T>
Option CommandLine::option(const std::string &names, T &value, const std::string &help) {
    return Option(app_->add_option(names, value, help));
}
template Option CommandLine::option(const std::string &, std::string &, const std::string &);
template Option CommandLine::option(const std::string &, int &, const std::string &);
template Option CommandLine::option(const std::string &, unsigned &, const std::string &);
template Option CommandLine::option(const std::string &, int64_t &, const std::string &);
template Option CommandLine::option(const std::string &, size_t &, const std::string &);
template Option CommandLine::option(const std::string &, double &, const std::string &);
template Option CommandLine::option(const std::string &, std::vector<std::string> &, const std::string &);
template Option CommandLine::option(const std::string &, std::vector<int> &, const std::string &);

Option CommandLine::option(const std::string &names, Check take, const std::string &help) {
    return Option(app_->add_option_function<std::string>(
        names,
        [take = std::move(take)](const std::string &value) {
            if (const std::string wrong = take(value); !wrong.empty())
                throw CLI::ValidationError(wrong);
        },
        help));
}
Option CommandLine::flag(const std::string &names, bool &value, const std::string &help) {
    return Option(app_->add_flag(names, value, help));
}
Option CommandLine::flag(const std::string &names, std::function<void()> done, const std::string &help) {
    return Option(app_->add_flag_callback(names, std::move(done), help));
}
void CommandLine::version(const std::string &text) {
    app_->set_version_flag("--version", text);
}
void CommandLine::help_from_column(size_t column) {
    app_->get_formatter()->column_width(column);
}

bool CommandLine::parse(int argc, const char *const *argv) {
    try {
        app_->parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        return ended(error);
    }
    return true;
}
bool CommandLine::refuse(const std::string &option, const std::string &why) {
    return ended(CLI::ValidationError(option, why));
}
bool CommandLine::lacks(const std::string &what) {
    return ended(CLI::RequiredError(what));
}

template <typename Error>
bool CommandLine::ended(const Error &error) {
    std::ostringstream text;
    exit_code_ = app_->exit(error, text, text);
    text_ = text.str();
    problem_.clear();
    if (exit_code_ != 0) {
        problem_ = error.what();
        text_ = app_->get_name() + ": " + problem_ + "\n" + app_->get_name() + " --help lists the options.\n";
    }
    return false;
}

int CommandLine::say() const {
    (exit_code_ == 0 ? std::cout : std::cerr) << text_ << std::flush;
    return exit_code_;
}

}  // namespace flx::apps
