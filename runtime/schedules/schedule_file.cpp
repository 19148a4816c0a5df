#include "runtime/schedules/schedule_file.h"

#include <algorithm>
#include <cctype>

#include "runtime/schedules/names.h"

namespace flx::schedules {

std::string place_text(const algorithms::Place &place) {
    switch (place.buffer) {
        case algorithms::Buffer::none:
            break;
        case algorithms::Buffer::input:
            return "input";
        case algorithms::Buffer::output:
            return "output";
        case algorithms::Buffer::scratch:
            return fmt::format("scratch {}", place.slot);
    }
    return "";
}

std::string_view name_of(algorithms::StepKind kind) {
    return name_in(kKindNames, kind);
}

std::string_view name_of(algorithms::BitClass bits) {
    return name_in(kBitsNames, bits);
}

bool is_name(std::string_view name) {
    constexpr size_t kLongest = 64;
    return !name.empty() && name.size() <= kLongest && std::ranges::all_of(name, [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
    });
}

uint64_t hash_of(std::string_view text) {
    // FNV-1a (Fowler, Noll, Vo), whose upper half is mixed well enough to tell files apart.
    uint64_t hash = 0xCBF29CE484222325U;
    for (const char byte : text)
        hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3U;
    constexpr uint64_t kBeyondRegistry = uint64_t{1} << 63;
    return hash | kBeyondRegistry;
}

Status read_schedule(std::string_view text, const std::string &name, algorithms::Written &result) {
    const size_t begin = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
    if (begin == std::string_view::npos)
        return fail(Fault::schedule_file, "there is nothing in it");
    FLX_TRY(text[begin] == '<' ? read_msccl(text, name, result) : read_json(text, result));
    result.identity = hash_of(text);
    return {};
}

}  // namespace flx::schedules
