// Reductions of floats, for every SIMD target.
#include "runtime/elements/reduce_table.h"
#include "runtime/elements/reduce_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/elements/reduce_float.cpp"
#include <hwy/foreach_target.h>
// Per target, hence after it.
#include "runtime/elements/reduce_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace flx::HWY_NAMESPACE {

void fill_floats(ReduceTable &table) {
    fill_lanes<F16Lanes, OrderedLanes<int16_t, 0x7C00, 0x7E00>>(table, FLX_F16);
    fill_lanes<Bf16Lanes, OrderedLanes<int16_t, 0x7F80, 0x7FC0>>(table, FLX_BF16);
    fill_lanes<FloatLanes<float>>(table, FLX_F32);
    fill_lanes<FloatLanes<double>>(table, FLX_F64);
    table.target = hwy::TargetName(HWY_TARGET);
}

}  // namespace flx::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace flx {
HWY_EXPORT(fill_floats);

void fill_float_kernels(ReduceTable &table) {
    HWY_DYNAMIC_DISPATCH(fill_floats)(table);
}
}  // namespace flx
#endif
