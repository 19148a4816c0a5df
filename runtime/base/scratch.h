/// \file scratch.h
/// Room that a thread uses again from call to call. A thread's own block holds a pointer to it alone: libraries that
/// are loaded late (dlopen, as Python and other languages load them) share the little room that is left in blocks of
/// threads that run already, so one that wants more than some hundred bytes there cannot be loaded.
#pragma once

#include <cstddef>

namespace flx {

/// `kBytes` of this thread for `Purpose`, aligned to a cache line; allocated at the first call, kept until the thread
/// ends. Their content is anything.
template <typename Purpose, size_t kBytes>
std::byte *scratch() {
    struct alignas(64) Room {
        std::byte bytes[kBytes];
    };
    // Apart from its owner, so that what still runs when the thread's objects are destroyed finds null, not what is
    // freed.
    static constinit thread_local Room *room = nullptr;
    if (room == nullptr) [[unlikely]] {
        struct Owner {
            Owner() = default;
            Owner(const Owner &) = delete;
            Owner &operator=(const Owner &) = delete;
            ~Owner() {
                delete room;
                room = nullptr;
            }
        };
        static thread_local const Owner owner;
        room = new Room;
    }
    return room->bytes;
}

}  // namespace flx
