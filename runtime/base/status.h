/// \file status.h
/// Errors as values. Whoever detects an error makes the sentence and logs it once; callers pass it on.
#pragma once

#include <fmt/core.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/include/flx.h"

namespace flx {

/// A status code and, where it is not success, one sentence that says what is wrong and what is allowed. Success is a
/// null pointer: a small call returns a dozen of them.
class [[nodiscard]] Status {
  public:
    Status() = default;
    Status(flx_status_t code, std::string sentence)
        : error_(code == FLX_SUCCESS ? nullptr : new Error{code, std::move(sentence)}) {}
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
    [[nodiscard]] flx_status_t code() const { return ok() ? FLX_SUCCESS : error_->code; }
    [[nodiscard]] const std::string &sentence() const {
        static const std::string none;
        return ok() ? none : error_->sentence;
    }

  private:
    struct Error {
        flx_status_t code;
        std::string sentence;
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

/// `return fail(FLX_ERR_ARGUMENT, "count {} is …", count);`
template <typename... Args>
[[gnu::cold]] Status fail(flx_status_t code, fmt::format_string<Args...> format, Args &&...args) {
    return {code, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace flx

/// Returns the status of `expression` from the enclosing function unless it is success.
#define FLX_TRY(expression)                                                     \
    do {                                                                        \
        if (::flx::Status flx_try_ = (expression); !flx_try_.ok()) [[unlikely]] \
            return flx_try_;                                                    \
    } while (false)
