// Reductions of integers, for every SIMD target.
#include "runtime/elements/reduce_table.h"
#include "runtime/elements/reduce_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/elements/reduce_integer.cpp"
#include <hwy/foreach_target.h>
// Per target, hence after it.
#include "runtime/elements/reduce_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace flx::HWY_NAMESPACE {

void fill_integers(ReduceTable &table) {
    fill_lanes<IntegerLanes<int8_t>>(table, FLX_INT8);
    fill_lanes<IntegerLanes<uint8_t>>(table, FLX_UINT8);
    fill_lanes<IntegerLanes<int16_t>>(table, FLX_INT16);
    fill_lanes<IntegerLanes<uint16_t>>(table, FLX_UINT16);
    fill_lanes<IntegerLanes<int32_t>>(table, FLX_INT32);
    fill_lanes<IntegerLanes<uint32_t>>(table, FLX_UINT32);
    fill_lanes<IntegerLanes<int64_t>>(table, FLX_INT64);
    fill_lanes<IntegerLanes<uint64_t>>(table, FLX_UINT64);
    table.copy = copy_bypassing;
}

}  // namespace flx::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace flx {
HWY_EXPORT(fill_integers);

void fill_integer_kernels(ReduceTable &table) {
    HWY_DYNAMIC_DISPATCH(fill_integers)(table);
}
}  // namespace flx
#endif
