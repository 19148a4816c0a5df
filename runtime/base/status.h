/// \file status.h
/// Errors as values. Whoever detects an error makes the sentence and logs it once; callers pass it on.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/faults.h"
#include "runtime/include/flx.h"

namespace flx {

/// What ends a sentence about it: ` [FLX-E101]`.
[[gnu::cold]] inline std::string mark_of(Fault fault) {
    return fmt::format(" [FLX-E{}]", number_of(fault));
}
inline constexpr size_t kMarkBytes = std::string_view(" [FLX-E101]").size();

/// The mark at the end of `sentence`; empty where it has none.
constexpr std::string_view mark_in(std::string_view sentence) {
    const size_t at = sentence.size() - std::min(sentence.size(), kMarkBytes);
    const std::string_view end = sentence.substr(at);
    return end.starts_with(" [FLX-E") && end.ends_with("]") ? end : std::string_view();
}

/// `sentence` in at most `most` bytes, of which there are enough for its mark: it loses words, and keeps that.
inline std::string shortened(std::string_view sentence, size_t most) {
    if (sentence.size() <= most)
        return std::string(sentence);
    const std::string_view mark = mark_in(sentence);
    return std::string(sentence.substr(0, most - mark.size())).append(mark);
}

/// What is wrong: its kind, and one sentence that says what happened, to whom, and what is allowed or what to do.
/// Success is a null pointer: a small call returns a dozen of them.
class [[nodiscard]] Status {
  public:
    Status() = default;
    /// `words`: the sentence without its mark. One of somebody else may end with a mark, which goes.
    [[gnu::cold]] Status(Fault fault, std::string_view words)
        : error_(new Error{fault, std::string(words.substr(0, words.size() - mark_in(words).size()))}) {}
    Status(const Status &other) : error_(other.ok() ? nullptr : new Error(*other.error_)) {}
    Status(Status &&) noexcept = default;
    Status &operator=(const Status &other) {
        if (this != &other)
            *this = Status(other);
        return *this;
    }
    Status &operator=(Status &&) noexcept = default;
    ~Status() = default;

    [[nodiscard]] bool ok() const { return error_ == nullptr; }
    [[nodiscard]] flx_status_t code() const { return ok() ? FLX_SUCCESS : status_of(error_->fault); }
    /// Not of success.
    [[nodiscard]] Fault fault() const { return error_->fault; }
    /// 0: success.
    [[nodiscard]] uint16_t number() const { return ok() ? uint16_t{0} : number_of(error_->fault); }
    /// As users read it: its mark is at the end. Empty: success.
    [[nodiscard]] const std::string &sentence() const {
        static const std::string none;
        return ok() ? none : error_->sentence;
    }
    /// The same without the mark, for sentences in which it is a part.
    [[nodiscard]] std::string words() const {
        return ok() ? std::string() : error_->sentence.substr(0, error_->sentence.size() - kMarkBytes);
    }
    /// The same fault, with `before` before its sentence. Not of success.
    [[nodiscard]] Status behind(std::string_view before) const {
        return {error_->fault, std::string(before) + words()};
    }

  private:
    struct Error {
        Fault fault;
        std::string sentence;
        Error(Fault what, std::string words) : fault(what), sentence(std::move(words) + mark_of(what)) {}
    };
    std::unique_ptr<const Error> error_;
};

/// `FLX_ERR_PEER`; empty: none of these.
constexpr std::string_view name_of(flx_status_t status) {
    constexpr std::array<std::string_view, 9> kNames = {"FLX_SUCCESS",         "FLX_ERR_ARGUMENT", "FLX_ERR_CONFIG",
                                                        "FLX_ERR_UNSUPPORTED", "FLX_ERR_MISMATCH", "FLX_ERR_LINK",
                                                        "FLX_ERR_PEER",        "FLX_ERR_COMM",     "FLX_ERR_SYSTEM"};
    const auto index = static_cast<size_t>(status);
    return index < kNames.size() ? kNames[index] : std::string_view();
}

/// `return fail(Fault::count_too_large, "count {} is …", count);`
template <typename... Args>
[[gnu::cold]] Status fail(Fault fault, fmt::format_string<Args...> format, Args &&...args) {
    return {fault, fmt::format(format, std::forward<Args>(args)...)};
}

/// What an exception says, of `what` that it ended.
[[gnu::cold]] inline Status thrown(const std::exception &error, std::string_view what) {
    if (dynamic_cast<const std::bad_alloc *>(&error) != nullptr)
        return fail(Fault::no_memory, "{} failed: there is no memory for what it needs ({})", what, error.what());
    return fail(Fault::unexpected, "{} failed: {}", what, error.what());
}

/// The status of `part()`; where it throws, what the exception says.
template <typename Part>
Status caught(std::string_view what, Part &&part) {
    try {
        return part();
    } catch (const std::exception &error) {
        return thrown(error, what);
    }
}

}  // namespace flx

/// Returns the status of `expression` from the enclosing function unless it is success.
#define FLX_TRY(expression)                                                     \
    do {                                                                        \
        if (::flx::Status flx_try_ = (expression); !flx_try_.ok()) [[unlikely]] \
            return flx_try_;                                                    \
    } while (false)
