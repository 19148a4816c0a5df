/// What code that is compiled with -fsanitize=thread calls for each access to memory, in place of ThreadSanitizer's
/// library: accesses to the arena go to the explorer. So do copies, by --wrap, and waits.
#include <atomic>
#include <cstring>

#include "runtime/base/wait.h"
#include "tests/proof/interleave/explorer.h"

namespace {

namespace interleave = flx::interleave;
using interleave::Change;

void read_bytes(const volatile void *address, size_t bytes) {
    if (interleave::watched(address))
        interleave::note_read(address, bytes);
}
void write_bytes(const volatile void *address, size_t bytes) {
    if (interleave::watched(address))
        interleave::note_write(address, bytes);
}

template <typename T>
T load_word(const volatile T *address, int order) {
    if (interleave::watched(address))
        return static_cast<T>(interleave::load(address, sizeof(T), order));
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);
}
template <typename T>
void store_word(volatile T *address, T value, int order) {
    if (interleave::watched(address))
        interleave::store(address, sizeof(T), value, order);
    else
        __atomic_store_n(address, value, __ATOMIC_SEQ_CST);
}
template <typename T>
T update_word(volatile T *address, Change change, T operand, int order) {
    if (interleave::watched(address))
        return static_cast<T>(interleave::update(address, sizeof(T), change, operand, order));
    switch (change) {
        case Change::add:
            return __atomic_fetch_add(address, operand, __ATOMIC_SEQ_CST);
        case Change::subtract:
            return __atomic_fetch_sub(address, operand, __ATOMIC_SEQ_CST);
        case Change::unite:
            return __atomic_fetch_or(address, operand, __ATOMIC_SEQ_CST);
        case Change::set:
            break;
    }
    return __atomic_exchange_n(address, operand, __ATOMIC_SEQ_CST);
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming): the compiler's and the linker's names.
extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
void __tsan_read_range(void *address, size_t bytes) {
    read_bytes(address, bytes);
}
void __tsan_write_range(void *address, size_t bytes) {
    write_bytes(address, bytes);
}

#define FLX_ACCESS(bytes)                               \
    void __tsan_read##bytes(void *address) {            \
        read_bytes(address, bytes);                     \
    }                                                   \
    void __tsan_write##bytes(void *address) {           \
        write_bytes(address, bytes);                    \
    }                                                   \
    void __tsan_unaligned_read##bytes(void *address) {  \
        read_bytes(address, bytes);                     \
    }                                                   \
    void __tsan_unaligned_write##bytes(void *address) { \
        write_bytes(address, bytes);                    \
    }
FLX_ACCESS(1)
FLX_ACCESS(2)
FLX_ACCESS(4)
FLX_ACCESS(8)
FLX_ACCESS(16)
#undef FLX_ACCESS

#define FLX_WORD(bits, T)                                                        \
    T __tsan_atomic##bits##_load(const volatile T *address, int order) {         \
        return load_word(address, order);                                        \
    }                                                                            \
    void __tsan_atomic##bits##_store(volatile T *address, T value, int order) {  \
        store_word(address, value, order);                                       \
    }                                                                            \
    T __tsan_atomic##bits##_exchange(volatile T *address, T value, int order) {  \
        return update_word(address, Change::set, value, order);                  \
    }                                                                            \
    T __tsan_atomic##bits##_fetch_add(volatile T *address, T value, int order) { \
        return update_word(address, Change::add, value, order);                  \
    }                                                                            \
    T __tsan_atomic##bits##_fetch_sub(volatile T *address, T value, int order) { \
        return update_word(address, Change::subtract, value, order);             \
    }                                                                            \
    T __tsan_atomic##bits##_fetch_or(volatile T *address, T value, int order) {  \
        return update_word(address, Change::unite, value, order);                \
    }
FLX_WORD(8, uint8_t)
FLX_WORD(16, uint16_t)
FLX_WORD(32, uint32_t)
FLX_WORD(64, uint64_t)
#undef FLX_WORD

void *__real_memcpy(void *to, const void *from, size_t bytes);
void *__wrap_memcpy(void *to, const void *from, size_t bytes);
void *__wrap_memcpy(void *to, const void *from, size_t bytes) {
    read_bytes(from, bytes);
    write_bytes(to, bytes);
    return __real_memcpy(to, from, bytes);
}
void *__real_memmove(void *to, const void *from, size_t bytes);
void *__wrap_memmove(void *to, const void *from, size_t bytes);
void *__wrap_memmove(void *to, const void *from, size_t bytes) {
    read_bytes(from, bytes);
    write_bytes(to, bytes);
    return __real_memmove(to, from, bytes);
}
void *__real_memset(void *to, int value, size_t bytes);
void *__wrap_memset(void *to, int value, size_t bytes);
void *__wrap_memset(void *to, int value, size_t bytes) {
    write_bytes(to, bytes);
    return __real_memset(to, value, bytes);
}
}
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)

void flx_interleave_moved() {
    interleave::moved();
}

namespace flx {

/// In place of runtime/base/wait.cpp, for waits whose policy is not to spin: time passes when others do something.
Status Waiter::pause_long() {
    interleave::pause();
    return {};
}
void Waiter::disarm() {}

}  // namespace flx
