/// The public functions for memory that ranks of a host share.
#include "runtime/api/api.h"
#include "runtime/shm/memory/shared_heap.h"

using flx::Status;
using flx::shm::SharedHeap;
using namespace flx::api;

flx_status_t flx_malloc(size_t bytes, void **memory) {
    return guarded([&]() -> Status {
        FLX_TRY(need(memory, "memory"));
        return SharedHeap::of_process().allocate(bytes, *memory);
    });
}

flx_status_t flx_free(void *memory) {
    return guarded([&]() -> Status { return SharedHeap::of_process().free(memory); });
}
