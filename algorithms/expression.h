/// \file expression.h
/// Private to the verifier: symbolic values. Equal expressions have equal ids, so comparing them costs nothing.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace flx::algorithms {

using ExpressionId = uint32_t;
inline constexpr ExpressionId kNothing = 0;  ///< memory that was never written

/// A table of expressions over the contributions of `size` ranks: x0, op(x0, x1), op(…)/n, …
class Expressions {
  public:
    explicit Expressions(int size);

    [[nodiscard]] ExpressionId contribution(int rank) const { return static_cast<ExpressionId>(rank) + 1; }
    /// op(left, right); kNothing if either is.
    ExpressionId combine(ExpressionId left, ExpressionId right);
    /// What FLX_AVG does at the end.
    ExpressionId divide(ExpressionId sum);

    /// The sum that was divided; kNothing if the last thing done to it was not a division.
    [[nodiscard]] ExpressionId undivided(ExpressionId expression) const;
    /// Whether it is (((x_a + x_b) + x_c) + …) for the ranks in `order`.
    [[nodiscard]] bool is_left_fold(ExpressionId expression, const std::vector<int> &order) const;
    /// Whether every rank contributes exactly once and nothing was divided.
    [[nodiscard]] bool is_complete(ExpressionId expression) const;
    /// The ranks whose contributions it combines, from left to right.
    [[nodiscard]] std::vector<int> order(ExpressionId expression) const;
    /// The expression as text for messages, e.g. `((x0+x1)+x2)/n`; long ones are cut.
    [[nodiscard]] std::string text(ExpressionId expression) const;

  private:
    struct Node {
        ExpressionId left;
        ExpressionId right;  ///< kNothing: left divided
        uint32_t leaves;     ///< of the tree, with repetition, capped
    };
    ExpressionId intern(ExpressionId left, ExpressionId right, uint32_t leaves);
    [[nodiscard]] bool is_leaf(ExpressionId expression) const { return expression <= static_cast<uint32_t>(size_); }
    void append(ExpressionId expression, std::string &text) const;

    int size_;
    std::vector<Node> nodes_;
    std::unordered_map<uint64_t, ExpressionId> ids_;
};

}  // namespace flx::algorithms
