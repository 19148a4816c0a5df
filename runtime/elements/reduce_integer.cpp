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

namespace {

/// Sums and products wrap, so a signed type has those of the unsigned one.
template <class Signed>
void fill_width(ReduceTable &table, flx_dtype_t dtype, flx_dtype_t unsigned_dtype) {
    using Unsigned = std::make_unsigned_t<Signed>;
    fill_lanes<IntegerLanes<Unsigned>>(table, unsigned_dtype);
    for (const flx_op_t op : {FLX_SUM, FLX_PROD}) {
        table.pair[dtype][op] = table.pair[unsigned_dtype][op];
        table.many[dtype][op] = table.many[unsigned_dtype][op];
    }
    fill_mean<IntegerLanes<Signed>>(table, dtype);
    fill_order<IntegerLanes<Signed>>(table, dtype);
}

}  // namespace

void fill_integers(ReduceTable &table) {
    fill_width<int8_t>(table, FLX_INT8, FLX_UINT8);
    fill_width<int16_t>(table, FLX_INT16, FLX_UINT16);
    fill_width<int32_t>(table, FLX_INT32, FLX_UINT32);
    fill_width<int64_t>(table, FLX_INT64, FLX_UINT64);
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
