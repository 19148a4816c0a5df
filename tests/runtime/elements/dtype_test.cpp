#include "runtime/elements/dtype.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

namespace flx {
namespace {

TEST(Dtype, SizesAreThoseOfTheCTypes) {
    EXPECT_EQ(size_of(FLX_INT8), sizeof(int8_t));
    EXPECT_EQ(size_of(FLX_UINT8), sizeof(uint8_t));
    EXPECT_EQ(size_of(FLX_INT16), sizeof(int16_t));
    EXPECT_EQ(size_of(FLX_UINT16), sizeof(uint16_t));
    EXPECT_EQ(size_of(FLX_INT32), sizeof(int32_t));
    EXPECT_EQ(size_of(FLX_UINT32), sizeof(uint32_t));
    EXPECT_EQ(size_of(FLX_INT64), sizeof(int64_t));
    EXPECT_EQ(size_of(FLX_UINT64), sizeof(uint64_t));
    EXPECT_EQ(size_of(FLX_F16), 2u);
    EXPECT_EQ(size_of(FLX_BF16), 2u);
    EXPECT_EQ(size_of(FLX_F8E4M3), 1u);
    EXPECT_EQ(size_of(FLX_F8E5M2), 1u);
    EXPECT_EQ(size_of(FLX_F32), sizeof(float));
    EXPECT_EQ(size_of(FLX_F64), sizeof(double));
    struct ShortAndInt {
        int16_t value;
        int32_t index;
    };
    struct DoubleAndInt {
        double value;
        int32_t index;
    };
    EXPECT_EQ(size_of(FLX_INT16_INT32), sizeof(ShortAndInt));
    EXPECT_EQ(size_of(FLX_F64_INT32), sizeof(DoubleAndInt));
    EXPECT_EQ(size_of(FLX_COMPLEX_F64), 2 * sizeof(double));
}

TEST(Dtype, NamesAreDistinctAndParseBack) {
    std::set<std::string_view> names;
    for (int i = 0; i < kAllDtypes; ++i) {
        const auto dtype = static_cast<flx_dtype_t>(i);
        EXPECT_TRUE(valid(dtype));
        EXPECT_TRUE(names.insert(name_of(dtype)).second);
        EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
    }
    for (int i = 0; i < kAllOps; ++i) {
        const auto op = static_cast<flx_op_t>(i);
        EXPECT_TRUE(valid(op));
        EXPECT_TRUE(names.insert(name_of(op)).second);
        EXPECT_EQ(parse_op(name_of(op)), op);
    }
    EXPECT_EQ(name_of(FLX_BF16), "bf16");
    EXPECT_EQ(name_of(FLX_UINT64), "u64");
    EXPECT_EQ(name_of(FLX_AVG), "avg");
}

TEST(Dtype, RejectsWhatIsNotOne) {
    for (const int value : {-1, static_cast<int>(kAllDtypes), 1000}) {
        EXPECT_FALSE(valid(static_cast<flx_dtype_t>(value))) << value;
    }
    for (const int value : {-1, static_cast<int>(kAllOps), 1000}) {
        EXPECT_FALSE(valid(static_cast<flx_op_t>(value))) << value;
    }
    for (const char *name : {"", "f", "f3", "f320", "F32", "float", " f32", "sum"}) {
        EXPECT_FALSE(parse_dtype(name).has_value()) << name;
    }
    for (const char *name : {"", "su", "sums", "SUM", "f32"}) {
        EXPECT_FALSE(parse_op(name).has_value()) << name;
    }
}

}  // namespace
}  // namespace flx
