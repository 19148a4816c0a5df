#include "runtime/execute/pending.h"

#include <new>

namespace flx {
namespace {

// Copied by clear(): what is put together on the stack and read at once waits until all that was written before, also
// for other cores, is in the cache.
const Operation kNoOperation{};
const Choice kNoChoice{};

}  // namespace

std::byte *Pending::aside(size_t bytes) {
    if (asides_used == asides.size())
        asides.emplace_back();
    std::byte *memory = asides[asides_used++].take(bytes);
    if (memory == nullptr && bytes != 0)
        throw std::bad_alloc();
    return memory;
}

void Pending::clear() {
    operation = kNoOperation;
    choice = kNoChoice;
    blocks = Blocks();
    plan = nullptr;
    exchange.clear();
    executor = nullptr;
    bytes = 0;
    first_sequence = 0;
    call = last_call = recorded = 0;
    alone = true;
    lends = false;
    done = false;
    if (!status.ok())
        status = Status();
    for (; asides_used < asides.size(); ++asides_used)
        (void)asides[asides_used].take(0);
    asides_used = 0;
    phases.clear();
    copy_to = nullptr;
    copy_from = nullptr;
    copy_bytes = 0;
}

}  // namespace flx
