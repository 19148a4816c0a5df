/// A libcuda.so.1 for machines without a GPU, to be preloaded: whoever asks for the driver gets this one. Its GPU's
/// memory is a file that is mapped twice. The addresses that programs get cannot be read or written there, so that a
/// library which takes them for host memory crashes; copies go through the other mapping. CUDA_STAND_IN_IN_USE=1: every
/// program uses it from the beginning.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kInvalid = 1, kNoMemory = 2, kNotInitialised = 3, kNoContext = 201 };
enum { kContext = 1, kMemoryType = 2, kManaged = 8, kOrdinal = 9 };

static const size_t kBytes = 256UL << 20;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int initialised;
static char *shown;   ///< what programs get
static char *hidden;  ///< the same memory
static size_t used;
static char context;  ///< its address is the one context's handle
static char stream;
static _Thread_local void *stack[16];
static _Thread_local int depth;

int cuInit(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&mutex);
    if (!initialised) {
        const int file = memfd_create("gpu", 0);
        if (file < 0 || ftruncate(file, (off_t)kBytes) != 0)
            _exit(1);
        shown = mmap(NULL, kBytes, PROT_NONE, MAP_SHARED, file, 0);
        hidden = mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        initialised = 1;
    }
    pthread_mutex_unlock(&mutex);
    return 0;
}

__attribute__((constructor)) static void begin(void) {
    if (getenv("CUDA_STAND_IN_IN_USE") != NULL)
        cuInit(0);
}

int cuDeviceGetCount(int *count) {
    *count = 1;
    return initialised ? 0 : kNotInitialised;
}

int cuDevicePrimaryCtxRetain(void **made, int device) {
    *made = &context;
    return device == 0 ? 0 : kInvalid;
}

int cuCtxSetCurrent(void *wanted) {
    depth = 1;
    stack[0] = wanted;
    return 0;
}

int cuCtxGetCurrent(void **found) {
    *found = depth > 0 ? stack[depth - 1] : NULL;
    return initialised ? 0 : kNotInitialised;
}

int cuCtxPushCurrent_v2(void *wanted) {
    if (wanted != &context || depth == 16)
        return kNoContext;
    stack[depth++] = wanted;
    return 0;
}

int cuCtxPopCurrent_v2(void **popped) {
    if (depth == 0)
        return kNoContext;
    *popped = stack[--depth];
    return 0;
}

static int current(void) {
    return depth > 0 && stack[depth - 1] == &context;
}

static int is_shown(uint64_t address) {
    return address >= (uint64_t)(uintptr_t)shown && address < (uint64_t)(uintptr_t)shown + kBytes;
}

int cuMemAlloc_v2(unsigned long long *made, size_t bytes) {
    if (!current())
        return kNoContext;
    pthread_mutex_lock(&mutex);
    const size_t whole = (bytes + 511) / 512 * 512;
    const int fits = used + whole <= kBytes;
    if (fits) {
        *made = (uint64_t)(uintptr_t)(shown + used);
        used += whole;
    }
    pthread_mutex_unlock(&mutex);
    return fits ? 0 : kNoMemory;
}

/// Nothing is used again: an address that was freed would be noticed.
int cuMemFree_v2(unsigned long long memory) {
    return current() && is_shown(memory) ? 0 : kInvalid;
}

int cuPointerGetAttributes(unsigned count, int *attributes, void **values, unsigned long long address) {
    const int mine = initialised && is_shown(address);
    for (unsigned i = 0; i < count; ++i) {
        switch (attributes[i]) {
            case kContext:
                *(void **)values[i] = mine ? &context : NULL;
                break;
            case kMemoryType:
                *(unsigned *)values[i] = mine ? 2 : 0;
                break;
            case kManaged:
            case kOrdinal:
                *(int *)values[i] = 0;
                break;
            default:
                return kInvalid;
        }
    }
    return initialised ? 0 : kNotInitialised;
}

int cuPointerGetAttribute(void *value, int attribute, unsigned long long address) {
    return initialised && is_shown(address) ? cuPointerGetAttributes(1, &attribute, &value, address) : kInvalid;
}

static char *reachable(uint64_t address) {
    return is_shown(address) ? hidden + (address - (uint64_t)(uintptr_t)shown) : (char *)(uintptr_t)address;
}

int cuMemcpy(unsigned long long to, unsigned long long from, size_t bytes) {
    if (!current())
        return kNoContext;
    memmove(reachable(to), reachable(from), bytes);
    return 0;
}

int cuStreamCreate(void **made, unsigned flags) {
    *made = &stream;
    return current() && flags == 0 ? 0 : kInvalid;
}

int cuStreamSynchronize(void *wanted) {
    return current() && (wanted == &stream || wanted == NULL) ? 0 : kInvalid;
}

int cuMemcpyAsync(unsigned long long to, unsigned long long from, size_t bytes, void *wanted) {
    return wanted == &stream ? cuMemcpy(to, from, bytes) : kInvalid;
}

struct Side {
    size_t x;
    size_t y;
    unsigned type;
    const void *host;
    unsigned long long address;
    void *array;
    size_t pitch;
};
struct Copy2D {
    struct Side from;
    struct Side to;
    size_t width;
    size_t height;
};

int cuMemcpy2DAsync_v2(const struct Copy2D *copy, void *wanted) {
    if (!current() || wanted != &stream || copy->from.type != 4 || copy->to.type != 4 ||
        copy->from.pitch < copy->width || copy->to.pitch < copy->width)
        return kInvalid;
    for (size_t row = 0; row < copy->height; ++row)
        memcpy(reachable(copy->to.address + row * copy->to.pitch),
               reachable(copy->from.address + row * copy->from.pitch), copy->width);
    return 0;
}
