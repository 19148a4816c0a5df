/// \file status.h
/// Errors as values. Whoever detects an error makes the sentence and logs it once; callers pass it on.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "flx.h"

namespace flx {

/// A status code and, where it is not success, one sentence that says what is wrong and what is allowed.
class [[nodiscard]] Status {
  public:
    Status() = default;
    Status(flx_status_t code, std::string sentence) : code_(code), sentence_(std::move(sentence)) {}

    [[nodiscard]] bool ok() const { return code_ == FLX_SUCCESS; }
    [[nodiscard]] flx_status_t code() const { return code_; }
    [[nodiscard]] const std::string &sentence() const { return sentence_; }

  private:
    flx_status_t code_ = FLX_SUCCESS;
    std::string sentence_;
};

/// `return fail(FLX_ERR_ARGUMENT, "count {} is …", count);`
template <typename... Args>
Status fail(flx_status_t code, fmt::format_string<Args...> format, Args &&...args) {
    return {code, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace flx

/// Returns the status of `expression` from the enclosing function unless it is success.
#define FLX_TRY(expression)                                        \
    do {                                                           \
        if (::flx::Status flx_try_ = (expression); !flx_try_.ok()) \
            return flx_try_;                                       \
    } while (false)
