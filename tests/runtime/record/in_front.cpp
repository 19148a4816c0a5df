#include "tests/runtime/record/in_front.h"

extern "C" __attribute__((visibility("default"))) flx::record::Handover *flx_mpi_record_7() {
    return &flx::record::passed().handover();
}

namespace flx::record {

PassedCalls &passed() {
    static auto *const calls = new PassedCalls;
    return *calls;
}

CallRecord bcast(uint64_t bytes, uint32_t signature) {
    CallRecord record;
    record.collective = algorithms::Collective::bcast;
    record.bytes = bytes;
    record.signature = signature;
    record.root = 1;
    record.dtype = CallRecord::kUntold;
    record.op = CallRecord::kUntold;
    return record;
}

}  // namespace flx::record
