#include "apps/flx_report/page/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/flx_report/text.h"

namespace flx::report {

Table &Table::cell(const std::string &html, std::optional<double> order) {
    const size_t column = cells_++ % columns_.size();
    if (column == 0)
        rows_ += "<tr>";
    const char *name = column == 0 ? "th scope=\"row\"" : "td";
    rows_ += fmt::format("<{}{}{}>{}</{}>", name,
                         columns_[column].is_number ? " class=\"n\""
                         : columns_[column].wraps   ? " class=\"text\""
                                                    : "",
                         order ? fmt::format(" data-v=\"{:.9g}\"", *order) : "", html, column == 0 ? "th" : "td");
    if (column + 1 == columns_.size())
        rows_ += "</tr>\n";
    return *this;
}

std::string Table::html() const {
    std::string titles;
    for (const Column &column : columns_)
        titles += fmt::format("<th scope=\"col\"{}>{}</th>", column.is_number ? " class=\"n\"" : "", column.title);
    return fmt::format(
        "<div "
        "class=\"scroll\"><table><caption{}><span>{}</span></caption>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</"
        "tbody></table>"
        "</div>\n",
        is_caption_hidden_ ? " class=\"unseen\"" : "", caption_, titles, rows_);
}

std::string barred(double part) {
    return fmt::format(
        "<span class=\"bar\" aria-hidden=\"true\"><i style=\"width:{:.1f}%\"></i></span><span class=\"part\">{}</span>",
        100 * std::clamp(part, 0.0, 1.0), percent_text(part));
}

std::string run_bar(double part, double hatched) {
    part = std::clamp(part, 0.0, 1.0);
    hatched = std::clamp(hatched, 0.0, 1 - part);
    return fmt::format(
        "<span class=\"bar wide\" aria-hidden=\"true\"><i style=\"width:{:.1f}%\"></i><b style=\"width:{:.1f}%\"></b>"
        "</span>",
        100 * part, 100 * hatched);
}

}  // namespace flx::report
