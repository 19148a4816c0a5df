#include "runtime/link/layout.h"

#include <fmt/format.h>

namespace flx {

std::string Layout::describe(int peer) const {
    const Member &member = members[static_cast<size_t>(peer)];
    return fmt::format("rank {} (pid {} on {})", name(peer), member.pid, member.hostname);
}

}  // namespace flx
