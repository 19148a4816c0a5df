#include "runtime/front/mpi/arguments/types.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "runtime/front/mpi/arguments/user_reductions.h"

// Open MPI names types of a size only where it was built with a Fortran that has them.
#ifndef MPI_INTEGER1
#define MPI_INTEGER1 MPI_DATATYPE_NULL
#endif
#ifndef MPI_INTEGER2
#define MPI_INTEGER2 MPI_DATATYPE_NULL
#endif
#ifndef MPI_INTEGER4
#define MPI_INTEGER4 MPI_DATATYPE_NULL
#endif
#ifndef MPI_INTEGER8
#define MPI_INTEGER8 MPI_DATATYPE_NULL
#endif
#ifndef MPI_REAL4
#define MPI_REAL4 MPI_DATATYPE_NULL
#endif
#ifndef MPI_REAL8
#define MPI_REAL8 MPI_DATATYPE_NULL
#endif
#ifndef MPI_COMPLEX8
#define MPI_COMPLEX8 MPI_DATATYPE_NULL
#endif
#ifndef MPI_COMPLEX16
#define MPI_COMPLEX16 MPI_DATATYPE_NULL
#endif

namespace flx::preload {
namespace {

/// MPI's groups of types (MPI 3.1, section 5.9.2), by which reductions are allowed.
enum class Kind { c_integer, fortran_integer, address, real, complex, logical, byte, pair };

struct Predefined {
    Kind kind = Kind::byte;
    flx_dtype_t dtype = FLX_INT8;
    size_t size = 1;  ///< bytes of an element; of pairs, with padding
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
            table.try_emplace(type, Predefined{kind, dtype, size_of(type)});
}

/// Those of two sizes; others, such as 16-byte reals, FLX lacks.
void add_by_size(Table &table, Kind kind, size_t single_size, flx_dtype_t single_type, flx_dtype_t double_type,
                 std::initializer_list<MPI_Datatype> types) {
    for (MPI_Datatype type : types)
        if (const size_t size = size_of(type); size == single_size || size == 2 * single_size)
            table.try_emplace(type, Predefined{kind, size == single_size ? single_type : double_type, size});
}

/// A value and an index, as flx.h has them and MPI may.
template <typename Value, typename Index>
void add_pair(Table &table, MPI_Datatype type, flx_dtype_t dtype) {
    struct Pair {
        Value value;
        Index index;
    };
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    if (size_of(type) != 0 && PMPI_Type_get_extent(type, &lower, &extent) == MPI_SUCCESS && lower == 0 &&
        extent == static_cast<MPI_Aint>(sizeof(Pair)))
        table.try_emplace(type, Predefined{Kind::pair, dtype, sizeof(Pair)});
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
    add_integers(table, Kind::logical, false, {MPI_C_BOOL, MPI_CXX_BOOL, MPI_LOGICAL});
    add_integers(table, Kind::byte, false, {MPI_BYTE});
    add_by_size(table, Kind::real, sizeof(float), FLX_F32, FLX_F64,
                {MPI_FLOAT, MPI_DOUBLE, MPI_REAL, MPI_DOUBLE_PRECISION, MPI_REAL4, MPI_REAL8});
    add_by_size(table, Kind::complex, 2 * sizeof(float), FLX_COMPLEX_F32, FLX_COMPLEX_F64,
                {MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_COMPLEX, MPI_DOUBLE_COMPLEX, MPI_COMPLEX8,
                 MPI_COMPLEX16, MPI_CXX_FLOAT_COMPLEX, MPI_CXX_DOUBLE_COMPLEX});
    add_pair<float, int32_t>(table, MPI_FLOAT_INT, FLX_F32_INT32);
    add_pair<double, int32_t>(table, MPI_DOUBLE_INT, FLX_F64_INT32);
    add_pair<int16_t, int32_t>(table, MPI_SHORT_INT, FLX_INT16_INT32);
    add_pair<int32_t, int32_t>(table, MPI_2INT, FLX_INT32_INT32);
    if (sizeof(long) == sizeof(int64_t))
        add_pair<int64_t, int32_t>(table, MPI_LONG_INT, FLX_INT64_INT32);
    if (size_of(MPI_INTEGER) == sizeof(int32_t))
        add_pair<int32_t, int32_t>(table, MPI_2INTEGER, FLX_INT32_INT32);
    if (size_of(MPI_REAL) == sizeof(float))
        add_pair<float, float>(table, MPI_2REAL, FLX_F32_F32);
    if (size_of(MPI_DOUBLE_PRECISION) == sizeof(double))
        add_pair<double, double>(table, MPI_2DOUBLE_PRECISION, FLX_F64_F64);
    return table;
}

const Predefined *predefined(MPI_Datatype type) {
    static const auto &table = *new Table(make_table());  // stays, as MPI may be finalized by a destructor
    const auto found = table.find(type);
    return found == table.end() ? nullptr : &found->second;
}

constexpr unsigned among(std::initializer_list<Kind> kinds) {
    unsigned set = 0;
    for (const Kind kind : kinds)
        set |= 1U << static_cast<unsigned>(kind);
    return set;
}

constexpr unsigned kOrdered = among({Kind::c_integer, Kind::fortran_integer, Kind::address, Kind::real});
constexpr unsigned kNumbers = kOrdered | among({Kind::complex});
constexpr unsigned kTruths = among({Kind::c_integer, Kind::logical});
constexpr unsigned kBits = among({Kind::c_integer, Kind::fortran_integer, Kind::address, Kind::byte});
constexpr unsigned kPairs = among({Kind::pair});

struct Operator {
    MPI_Op op;
    flx_op_t flx;
    unsigned kinds;  ///< that it may be given, by MPI's rules
};

bool is_of_the_program(MPI_Op op) {
    static const std::array own = {MPI_SUM,  MPI_PROD, MPI_MIN,  MPI_MAX,    MPI_LAND,   MPI_LOR,     MPI_LXOR,
                                   MPI_BAND, MPI_BOR,  MPI_BXOR, MPI_MINLOC, MPI_MAXLOC, MPI_REPLACE, MPI_NO_OP};
    return std::find(own.begin(), own.end(), op) == own.end();
}

const Operator *operator_of(MPI_Op op, Kind kind) {
    static const std::array operators = {
        Operator{MPI_SUM, FLX_SUM, kNumbers},     Operator{MPI_PROD, FLX_PROD, kNumbers},
        Operator{MPI_MIN, FLX_MIN, kOrdered},     Operator{MPI_MAX, FLX_MAX, kOrdered},
        Operator{MPI_LAND, FLX_LAND, kTruths},    Operator{MPI_LOR, FLX_LOR, kTruths},
        Operator{MPI_LXOR, FLX_LXOR, kTruths},    Operator{MPI_BAND, FLX_BAND, kBits},
        Operator{MPI_BOR, FLX_BOR, kBits},        Operator{MPI_BXOR, FLX_BXOR, kBits},
        Operator{MPI_MINLOC, FLX_MINLOC, kPairs}, Operator{MPI_MAXLOC, FLX_MAXLOC, kPairs}};
    for (const Operator &each : operators)
        if (each.op == op)
            return (each.kinds >> static_cast<unsigned>(kind) & 1) != 0 ? &each : nullptr;
    return nullptr;
}

/// What made a type; MPI_UNDEFINED where MPI does not say. MPI 4's functions of old refuse to say it of types that were
/// made with MPI_Count, those that end in _c know all types.
int combiner_of(MPI_Datatype type) {
    int combiner = MPI_COMBINER_NAMED;
#if MPI_VERSION >= 4
    std::array<MPI_Count, 4> numbers{};
    const int code = PMPI_Type_get_envelope_c(type, &numbers[0], &numbers[1], &numbers[2], &numbers[3], &combiner);
#else
    std::array<int, 3> numbers{};
    const int code = PMPI_Type_get_envelope(type, &numbers[0], &numbers[1], &numbers[2], &combiner);
#endif
    return code == MPI_SUCCESS ? combiner : MPI_UNDEFINED;
}

/// Those of MPI_Type_create_f90_real and its kin are not the program's either: nobody may free them.
bool is_predefined_by(int combiner) {
    return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
           combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
}

/// How a type was made: what its constructor got.
struct Construction {
    int combiner = MPI_UNDEFINED;
    std::vector<int> integers;
    std::vector<MPI_Aint> addresses;
    std::vector<MPI_Datatype> types;

    Construction() = default;
    ~Construction() {
        for (MPI_Datatype &type : types)
            if (type != MPI_DATATYPE_NULL && !is_named(type))
                PMPI_Type_free(&type);
    }
    Construction(const Construction &) = delete;
    Construction &operator=(const Construction &) = delete;
    /// False where MPI does not say it, or it is long.
    bool get(MPI_Datatype type);
};

bool Construction::get(MPI_Datatype type) {
    constexpr int kMost = 64;
#if MPI_VERSION >= 4
    // Those that were made with MPI_Count have their numbers among the counts.
    MPI_Count integer_count = 0, address_count = 0, count_count = 0, type_count = 0;
    if (PMPI_Type_get_envelope_c(type, &integer_count, &address_count, &count_count, &type_count, &combiner) !=
            MPI_SUCCESS ||
        integer_count > kMost || address_count > kMost || type_count > kMost || count_count > 1 ||
        (count_count == 1 && combiner != MPI_COMBINER_CONTIGUOUS))
        return false;
    MPI_Count unused = 0;
#else
    int integer_count = 0, address_count = 0, type_count = 0;
    if (PMPI_Type_get_envelope(type, &integer_count, &address_count, &type_count, &combiner) != MPI_SUCCESS ||
        integer_count > kMost || address_count > kMost || type_count > kMost)
        return false;
#endif
    integers.resize(static_cast<size_t>(integer_count));
    addresses.resize(static_cast<size_t>(address_count));
    types.assign(static_cast<size_t>(type_count), MPI_DATATYPE_NULL);
#if MPI_VERSION >= 4
    const int code = PMPI_Type_get_contents_c(type, integer_count, address_count, count_count, type_count,
                                              integers.data(), addresses.data(), &unused, types.data());
#else
    const int code = PMPI_Type_get_contents(type, integer_count, address_count, type_count, integers.data(),
                                            addresses.data(), types.data());
#endif
    return code == MPI_SUCCESS;
}

/// Whether `count` blocks of `length(i)` elements of `layout(i)` at `at(i)` bytes lie one after the other.
template <typename Length, typename At, typename LayoutOf>
bool end_to_end(int count, Length &&length, At &&at, LayoutOf &&layout) {
    MPI_Aint end = 0;
    for (int i = 0; i < count; ++i) {
        if (length(i) == 0)
            continue;
        const Layout &block = layout(i);
        if (!block.dense || at(i) != end)
            return false;
        end += static_cast<MPI_Aint>(length(i)) * block.extent;
    }
    return true;
}

/// A type, of which so many more may be looked at to tell whether it is dense.
bool describe(MPI_Datatype type, Layout &layout, int &budget);

/// Whether data of `type` lie as its predefined elements one after the other. Only what can be said without walking
/// through type maps; of others the order is left to MPI_Pack.
bool is_dense(MPI_Datatype type, int &budget) {
    Construction made;
    const int combiner = combiner_of(type);
    if (is_predefined_by(combiner))
        return true;
    constexpr std::array kUnderstood = {MPI_COMBINER_CONTIGUOUS, MPI_COMBINER_DUP,    MPI_COMBINER_VECTOR,
                                        MPI_COMBINER_HVECTOR,    MPI_COMBINER_STRUCT, MPI_COMBINER_HINDEXED};
    if (std::find(kUnderstood.begin(), kUnderstood.end(), combiner) == kUnderstood.end() || !made.get(type))
        return false;
    std::vector<Layout> layouts(made.types.size());
    for (size_t i = 0; i < layouts.size(); ++i) {
        if (i > 0 && made.types[i] == made.types[i - 1])
            layouts[i] = layouts[i - 1];  // as members mostly are
        else if (--budget < 0 || !describe(made.types[i], layouts[i], budget))
            return false;
    }
    const std::vector<int> &numbers = made.integers;
    const auto first = [&](int) -> const Layout & { return layouts[0]; };
    switch (combiner) {
        case MPI_COMBINER_VECTOR:
        case MPI_COMBINER_HVECTOR: {
            const MPI_Aint stride =
                combiner == MPI_COMBINER_VECTOR ? numbers[2] * layouts[0].extent : made.addresses[0];
            return end_to_end(
                numbers[0], [&](int) { return numbers[1]; }, [&](int i) { return i * stride; }, first);
        }
        case MPI_COMBINER_HINDEXED:
            return end_to_end(
                numbers[0], [&](int i) { return numbers[1 + i]; }, [&](int i) { return made.addresses[i]; }, first);
        case MPI_COMBINER_STRUCT:
            return end_to_end(
                numbers[0], [&](int i) { return numbers[1 + i]; }, [&](int i) { return made.addresses[i]; },
                [&](int i) -> const Layout & { return layouts[i]; });
        default:
            return layouts[0].dense;
    }
}

bool describe(MPI_Datatype type, Layout &layout, int &budget) {
    MPI_Count size = 0;
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    if (PMPI_Type_size_x(type, &size) != MPI_SUCCESS || size == MPI_UNDEFINED ||
        PMPI_Type_get_extent(type, &lower, &extent) != MPI_SUCCESS)
        return false;
    layout = {type, static_cast<size_t>(size), extent, false};
    layout.dense =
        lower == 0 && extent == static_cast<MPI_Aint>(size) && (predefined(type) != nullptr || is_dense(type, budget));
    return true;
}

int forget_layout(MPI_Datatype, int, void *layout, void *) {
    delete static_cast<Layout *>(layout);
    return MPI_SUCCESS;
}

/// Under which a type keeps its Layout, until it ends: to take a type apart takes longer than a short call.
int layout_key() {
    static const int key = [] {
        int made = MPI_KEYVAL_INVALID;
        PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, forget_layout, &made, nullptr);
        return made;
    }();
    return key;
}

}  // namespace

bool layout_of(MPI_Datatype type, Layout &layout) {
    constexpr int kMostTypes = 64;
    if (type == MPI_DATATYPE_NULL)
        return false;
    int budget = kMostTypes;
    if (predefined(type) != nullptr)
        return describe(type, layout, budget);
    void *known = nullptr;
    int found = 0;
    if (PMPI_Type_get_attr(type, layout_key(), static_cast<void *>(&known), &found) != MPI_SUCCESS)
        return false;
    if (found != 0) {
        layout = *static_cast<const Layout *>(known);
        return true;
    }
    if (!describe(type, layout, budget))
        return false;
    if (is_named(type))
        return true;
    // Of threads that come at once the first one keeps it: what another may be reading must not be replaced.
    static std::mutex mutex;
    const std::lock_guard guard(mutex);
    if (PMPI_Type_get_attr(type, layout_key(), static_cast<void *>(&known), &found) == MPI_SUCCESS && found == 0) {
        auto kept = std::make_unique<Layout>(layout);
        if (PMPI_Type_set_attr(type, layout_key(), kept.get()) == MPI_SUCCESS)
            (void)kept.release();  // forget_layout() deletes it
    }
    return true;
}

bool is_named(MPI_Datatype type) {
    const int combiner = combiner_of(type);
    return is_predefined_by(combiner) || combiner == MPI_UNDEFINED;
}

bool Reduction::make_known() {
    return user == nullptr || UserReductions::instance().make_known(*user, dtype, op);
}

Reduction reduction_of(MPI_Datatype type, MPI_Op op) {
    Reduction reduction;
    if (type == MPI_DATATYPE_NULL || op == MPI_OP_NULL)
        return reduction;
    if (is_of_the_program(op)) {
        reduction.user = UserReductions::instance().find(op, type);
        if (reduction.user == nullptr)
            return reduction;
        reduction.layout = reduction.user->layout;
        reduction.size = reduction.layout.size;
    } else {
        const Predefined *element = predefined(type);
        const Operator *found = element == nullptr ? nullptr : operator_of(op, element->kind);
        if (found == nullptr)
            return reduction;
        reduction.dtype = element->dtype;
        reduction.op = found->flx;
        reduction.size = element->size;
        reduction.layout = {type, reduction.size, static_cast<MPI_Aint>(reduction.size), true};
    }
    reduction.known = true;
    return reduction;
}

}  // namespace flx::preload
