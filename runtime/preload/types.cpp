#include "types.h"

#include <array>
#include <unordered_map>
#include <vector>

namespace flx::preload {
namespace {

/// MPI's groups of types (MPI 3.1, section 5.9.2), by which reductions are allowed.
enum class Kind { c_integer, fortran_integer, address, real, complex, logical, byte, pair };

struct Predefined {
    Kind kind = Kind::byte;
    flx_dtype_t dtype = FLX_INT8;
};

constexpr auto kNoDtype = static_cast<flx_dtype_t>(-1);

flx_dtype_t integer_of(size_t size, bool is_signed) {
    switch (size) {
        case 1:
            return is_signed ? FLX_INT8 : FLX_UINT8;
        case 2:
            return is_signed ? FLX_INT16 : FLX_UINT16;
        case 4:
            return is_signed ? FLX_INT32 : FLX_UINT32;
        case 8:
            return is_signed ? FLX_INT64 : FLX_UINT64;
        default:
            return kNoDtype;
    }
}

size_t size_of(MPI_Datatype type) {
    int size = 0;
    if (type != MPI_DATATYPE_NULL)
        PMPI_Type_size(type, &size);
    return static_cast<size_t>(size);
}

using Table = std::unordered_map<MPI_Datatype, Predefined>;

void add_integers(Table &table, Kind kind, bool is_signed, std::initializer_list<MPI_Datatype> types) {
    for (MPI_Datatype type : types)
        if (const flx_dtype_t dtype = integer_of(size_of(type), is_signed); dtype != kNoDtype)
            table.try_emplace(type, Predefined{kind, dtype});
}

void add_reals(Table &table, std::initializer_list<MPI_Datatype> types) {
    for (MPI_Datatype type : types)
        if (const size_t size = size_of(type); size == sizeof(float) || size == sizeof(double))
            table.try_emplace(type, Predefined{Kind::real, size == sizeof(float) ? FLX_F32 : FLX_F64});
}

/// Types that reductions take. Sizes are asked for: Fortran's depend on the compiler.
Table make_table() {
    Table table;
    add_integers(table, Kind::c_integer, true,
                 {MPI_SIGNED_CHAR, MPI_SHORT, MPI_INT, MPI_LONG, MPI_LONG_LONG, MPI_INT8_T, MPI_INT16_T, MPI_INT32_T,
                  MPI_INT64_T});
    add_integers(table, Kind::c_integer, false,
                 {MPI_UNSIGNED_CHAR, MPI_UNSIGNED_SHORT, MPI_UNSIGNED, MPI_UNSIGNED_LONG, MPI_UNSIGNED_LONG_LONG,
                  MPI_UINT8_T, MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T});
    add_integers(table, Kind::fortran_integer, true,
                 {MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4, MPI_INTEGER8});
    add_integers(table, Kind::address, true, {MPI_AINT, MPI_OFFSET, MPI_COUNT});
    add_integers(table, Kind::logical, false, {MPI_C_BOOL, MPI_LOGICAL});
    add_integers(table, Kind::byte, false, {MPI_BYTE});
    add_reals(table, {MPI_FLOAT, MPI_DOUBLE, MPI_REAL, MPI_DOUBLE_PRECISION, MPI_REAL4, MPI_REAL8});
    return table;
}

const Predefined *predefined(MPI_Datatype type) {
    static const Table table = make_table();
    const auto found = table.find(type);
    return found == table.end() ? nullptr : &found->second;
}

struct Operator {
    MPI_Op op;
    flx_op_t flx;
};

/// Those of FLX that `kind` may be given, by MPI's rules.
const Operator *operator_of(MPI_Op op, Kind kind) {
    static const std::array<Operator, 4> operators = {Operator{MPI_SUM, FLX_SUM}, Operator{MPI_PROD, FLX_PROD},
                                                      Operator{MPI_MIN, FLX_MIN}, Operator{MPI_MAX, FLX_MAX}};
    const bool number =
        kind == Kind::c_integer || kind == Kind::fortran_integer || kind == Kind::address || kind == Kind::real;
    for (const Operator &each : operators)
        if (each.op == op && number)
            return &each;
    return nullptr;
}

/// Whether data of `type` lie as its predefined elements one after the other. Only what can be said without walking
/// through type maps; of others the order is left to MPI_Pack.
bool is_dense(MPI_Datatype type) {
    int integers = 0;
    int addresses = 0;
    int types = 0;
    int combiner = MPI_COMBINER_NAMED;
    if (PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS)
        return false;
    if (combiner == MPI_COMBINER_NAMED)
        return true;
    if (combiner != MPI_COMBINER_CONTIGUOUS && combiner != MPI_COMBINER_DUP)
        return false;
    std::vector<int> integer(integers);
    std::vector<MPI_Aint> address(addresses);
    MPI_Datatype inner = MPI_DATATYPE_NULL;
    if (types != 1 ||
        PMPI_Type_get_contents(type, integers, addresses, types, integer.data(), address.data(), &inner) != MPI_SUCCESS)
        return false;
    Layout layout;
    const bool dense = layout_of(inner, layout) && layout.dense;
    if (PMPI_Type_get_envelope(inner, &integers, &addresses, &types, &combiner) == MPI_SUCCESS &&
        combiner != MPI_COMBINER_NAMED)
        PMPI_Type_free(&inner);
    return dense;
}

}  // namespace

bool layout_of(MPI_Datatype type, Layout &layout) {
    if (type == MPI_DATATYPE_NULL)
        return false;
    MPI_Count size = 0;
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    if (PMPI_Type_size_x(type, &size) != MPI_SUCCESS || size == MPI_UNDEFINED ||
        PMPI_Type_get_extent(type, &lower, &extent) != MPI_SUCCESS)
        return false;
    layout = {type, static_cast<size_t>(size), extent, false};
    layout.dense =
        lower == 0 && extent == static_cast<MPI_Aint>(size) && (predefined(type) != nullptr || is_dense(type));
    return true;
}

Reduction reduction_of(MPI_Datatype type, MPI_Op op) {
    const Predefined *element = predefined(type);
    if (element == nullptr)
        return {};
    const Operator *found = operator_of(op, element->kind);
    if (found == nullptr)
        return {};
    return {true, element->dtype, found->flx, size_of(type)};
}

}  // namespace flx::preload
