#include "algorithms/expression.h"

#include <algorithm>

namespace flx::algorithms {

namespace {
constexpr uint32_t kMostLeaves = 1u << 20;
constexpr size_t kLongestText = 400;
}  // namespace

Expressions::Expressions(int size) : size_(size) {
    nodes_.resize(static_cast<size_t>(size) + 1, Node{kNothing, kNothing, 1});
    nodes_[kNothing].leaves = 0;
}

ExpressionId Expressions::intern(ExpressionId left, ExpressionId right, uint32_t leaves) {
    const uint64_t key = static_cast<uint64_t>(left) << 32 | right;
    const auto [entry, added] = ids_.try_emplace(key, static_cast<ExpressionId>(nodes_.size()));
    if (added)
        nodes_.push_back({left, right, leaves});
    return entry->second;
}

ExpressionId Expressions::combine(ExpressionId left, ExpressionId right) {
    if (left == kNothing || right == kNothing)
        return kNothing;
    return intern(left, right, std::min(kMostLeaves, nodes_[left].leaves + nodes_[right].leaves));
}

ExpressionId Expressions::divide(ExpressionId sum) {
    return sum == kNothing ? kNothing : intern(sum, kNothing, nodes_[sum].leaves);
}

ExpressionId Expressions::undivided(ExpressionId expression) const {
    if (is_leaf(expression) || nodes_[expression].right != kNothing)
        return kNothing;
    return nodes_[expression].left;
}

bool Expressions::is_left_fold(ExpressionId expression, const std::vector<int> &order) const {
    for (size_t i = order.size(); i-- > 1;) {
        if (is_leaf(expression) || nodes_[expression].right != contribution(order[i]))
            return false;
        expression = nodes_[expression].left;
    }
    return expression == contribution(order[0]);
}

std::vector<int> Expressions::order(ExpressionId expression) const {
    std::vector<int> ranks;
    std::vector<ExpressionId> todo{expression};
    while (!todo.empty()) {
        const ExpressionId at = todo.back();
        todo.pop_back();
        if (at == kNothing)
            continue;
        if (is_leaf(at)) {
            ranks.push_back(static_cast<int>(at) - 1);
            continue;
        }
        todo.push_back(nodes_[at].right);
        todo.push_back(nodes_[at].left);
    }
    return ranks;
}

bool Expressions::is_complete(ExpressionId expression) const {
    // The number of leaves bounds the walk, however often subexpressions are shared.
    if (nodes_[expression].leaves != static_cast<uint32_t>(size_))
        return false;
    std::vector<bool> seen(static_cast<size_t>(size_) + 1);
    std::vector<ExpressionId> todo{expression};
    while (!todo.empty()) {
        const ExpressionId at = todo.back();
        todo.pop_back();
        if (is_leaf(at)) {
            if (at == kNothing || seen[at])
                return false;
            seen[at] = true;
            continue;
        }
        todo.push_back(nodes_[at].left);
        todo.push_back(nodes_[at].right);
    }
    return true;
}

void Expressions::append(ExpressionId expression, std::string &text) const {
    if (text.size() > kLongestText)
        return;
    if (expression == kNothing) {
        text += "nothing";
    } else if (is_leaf(expression)) {
        text += 'x';
        text += std::to_string(expression - 1);
    } else if (nodes_[expression].right == kNothing) {
        append(nodes_[expression].left, text);
        text += "/n";
    } else {
        text += '(';
        append(nodes_[expression].left, text);
        text += '+';
        append(nodes_[expression].right, text);
        text += ')';
    }
}

std::string Expressions::text(ExpressionId expression) const {
    std::string text;
    append(expression, text);
    if (text.size() > kLongestText)
        text.replace(kLongestText, std::string::npos, "…");
    return text;
}

}  // namespace flx::algorithms
