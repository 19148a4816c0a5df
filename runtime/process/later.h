/// \file later.h
/// What a process can only free some time later, when something else has ended that nobody may wait for. A thread asks
/// now and then; there is one while there is something left.
#pragma once

#include <functional>

namespace flx {

/// `done` is called by a thread of FLX's own until it returns true, at first every millisecond, then less and less
/// often; then it is destroyed there. It must not block for long, as others' bodies wait meanwhile; what throws counts
/// as done. A process that ends waits for the body that is being asked, for a second at most, and asks no more. A
/// forked child asks none of its parent's, whose GPUs it does not have. Thread-safe.
void do_later(std::function<bool()> done);

}  // namespace flx
