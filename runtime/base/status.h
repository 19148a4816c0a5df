/// \file status.h
/// Errors as values. Whoever detects an error makes the sentence and logs it once; callers pass it on.
#pragma once

#include <fmt/core.h>

#include <memory>
#include <string>
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
