/// \file table.h
/// Tables as HTML that a screen reader can follow: a caption, titles with a scope, and the first cell of a row as its
/// title.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace flx::report {

struct Column {
    std::string title;
    bool is_number = false;
    bool wraps = false;  ///< long texts go over several lines
};

class Table {
  public:
    /// `caption` and titles are HTML.
    Table(std::string caption, std::vector<Column> columns)
        : caption_(std::move(caption)), columns_(std::move(columns)) {}

    /// The next cell, of HTML, and what the column is sorted by where it is no text.
    Table &cell(const std::string &html, std::optional<double> order = std::nullopt);
    [[nodiscard]] bool empty() const { return cells_ == 0; }
    /// Its caption is only for those who cannot see what the table stands under.
    Table &hide_caption() {
        is_caption_hidden_ = true;
        return *this;
    }
    /// Wide ones scroll by themselves. Titles can be made buttons that sort by their column (page.js).
    [[nodiscard]] std::string html() const;

  private:
    std::string caption_;
    std::vector<Column> columns_;
    std::string rows_;
    size_t cells_ = 0;
    bool is_caption_hidden_ = false;
};

/// A part of 1 as a bar, with the number beside it.
[[nodiscard]] std::string barred(double part);
/// Two parts of 1, one after the other; the second one is hatched.
[[nodiscard]] std::string run_bar(double part, double hatched);

}  // namespace flx::report
