#include "pending.h"

#include "telemetry.h"

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
    std::vector<std::byte> &memory = asides[asides_used++];
    if (memory.size() < bytes) {
        Telemetry::count(telemetry().allocations);
        memory.resize(bytes);
    }
    return memory.data();
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
    alone = true;
    done = false;
    if (!status.ok())
        status = Status();
    asides_used = 0;
    copy_to = nullptr;
    copy_from = nullptr;
    copy_bytes = 0;
}

}  // namespace flx
