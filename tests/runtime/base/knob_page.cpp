// Prints docs/knobs.md, or compares a file with it: knob_page [FILE]
#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "runtime/base/config.h"

namespace {

using namespace flx;

/// Bars end cells of a table.
std::string cell(std::string_view text) {
    std::string escaped;
    for (const char c : text) {
        if (c == '|')
            escaped += '\\';
        escaped += c;
    }
    return escaped;
}

std::string page() {
    std::string text =
        "# Knobs\n\n"
        "Environment variables that set what FLX does. A name or a value that is not known is an error that says what\n"
        "is allowed. `flx_info` prints the values in force and where each comes from. Sizes take K, M and G, which "
        "are\n"
        "powers of 1024. This page is made by `build/release/bin/knob_page >docs/knobs.md` from\n"
        "`runtime/base/config.cpp`.\n\n"
        "The last column says which ranks must have the same value: all of a communicator, or those whose GPUs are\n"
        "used; where it is empty, each rank may have its own.\n";
    for (const KnobTier tier : {KnobTier::user, KnobTier::expert}) {
        text += tier == KnobTier::user ? "\n## For users\n\n" : "\n## For experts\n\n";
        text += "| knob | default | allowed | what it does | equal on |\n|---|---|---|---|---|\n";
        for (const Knob &knob : knobs()) {
            if (knob.tier != tier)
                continue;
            const char *scope = knob.scope == KnobScope::communicator || knob.scope == KnobScope::program
                                    ? "a communicator"
                                : knob.scope == KnobScope::gpus ? "GPUs of a communicator"
                                                                : "";
            text += fmt::format("| `{}` | {} | {} | {} | {} |\n", knob.name,
                                knob.fallback.empty() ? "" : fmt::format("`{}`", knob.fallback),
                                cell(what_is_allowed(knob)), cell(knob.doc), scope);
        }
    }
    return text;
}

}  // namespace

int main(int argc, char **argv) {
    if (argc == 1) {
        std::cout << page();
        return 0;
    }
    std::ifstream file(argv[1]);
    std::ostringstream there;
    there << file.rdbuf();
    if (file && there.str() == page())
        return 0;
    std::cerr << argv[1]
              << " is not what the registry of knobs makes; run: build/release/bin/knob_page >docs/knobs.md\n";
    return 1;
}
