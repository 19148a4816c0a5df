#include "apps/flx_report/data/summary.h"

#include <fmt/format.h>

#include "apps/flx_report/text.h"

namespace flx::report {
namespace {

constexpr double kFirstEdge = 64;
constexpr double kFactor = 4;
constexpr int kLastClass = 20;

}  // namespace

int size_class(double bytes) {
    if (!(bytes > 0))
        return 0;
    int size = 1;
    for (double edge = kFirstEdge; bytes > edge && size < kLastClass; edge *= kFactor)
        ++size;
    return size;
}

std::string size_class_text(int size) {
    if (size < 0)
        return "–";
    if (size == 0)
        return "0 B";
    uint64_t edge = 64;
    for (int i = 1; i < size; ++i)
        edge *= 4;
    return fmt::format("≤\u00a0{}", size_text(edge));
}

bool is_near(const std::string &link) {
    return link == "shm" || link == "nvlink" || link == "pcie" || link == "lo";
}

}  // namespace flx::report
