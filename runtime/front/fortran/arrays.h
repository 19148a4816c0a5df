/// \file arrays.h
/// Fortran's arrays as the bindings of module flx take them: C descriptors (ISO_Fortran_binding.h), which say type,
/// size and strides.
#pragma once

#include <ISO_Fortran_binding.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/front/fortran/call.h"

#pragma GCC visibility push(default)
extern "C" {
extern int flx_fortran_in_place;
}
#pragma GCC visibility pop

namespace flx::fortran {

/// A Fortran array (or scalar) as elements in a row: where it lies, or a copy if it has holes.
class Array {
  public:
    /// `filled`: its elements are to be read.
    flx_status_t take(const Call &call, const CFI_cdesc_t *array, const char *name, bool filled) {
        array_ = array;
        count_ = 1;
        bool contiguous = true;
        for (int d = 0; d < array->rank; ++d) {
            if (array->dim[d].extent < 0)
                return refuse(Fault::wrong_array,
                              fmt::format("{} is an array of assumed size; pass a section of it, as a(1:n)", name));
            contiguous = contiguous && (array->dim[d].extent <= 1 ||
                                        array->dim[d].sm == static_cast<CFI_index_t>(count_ * array->elem_len));
            count_ *= static_cast<size_t>(array->dim[d].extent);
        }
        data_ = static_cast<std::byte *>(array->base_addr);
        if (contiguous || count_ == 0)
            return FLX_SUCCESS;
        if (const char *why = call.why_in_one_piece(); why != nullptr)
            return refuse(Fault::wrong_array, fmt::format("{} is not contiguous; {} arrays must be", name, why));
        copy_.resize(count_ * array->elem_len);
        data_ = copy_.data();
        if (filled)
            walk([](std::byte *memory, std::byte *row, size_t bytes) { std::memcpy(row, memory, bytes); });
        return FLX_SUCCESS;
    }
    /// Brings what FLX wrote into a copy to the array. Passes `status` on.
    flx_status_t deliver(flx_status_t status) {
        if (status == FLX_SUCCESS && !copy_.empty())
            walk([](std::byte *memory, std::byte *row, size_t bytes) { std::memcpy(memory, row, bytes); });
        return status;
    }
    [[nodiscard]] void *data() const { return data_; }
    [[nodiscard]] size_t count() const { return count_; }
    [[nodiscard]] size_t element() const { return array_->elem_len; }
    [[nodiscard]] size_t bytes() const { return array_ == nullptr ? 0 : count_ * array_->elem_len; }
    [[nodiscard]] CFI_type_t type() const { return array_->type; }

  private:
    /// Calls `move` with each element in the array and its place in the copy.
    template <typename Move>
    void walk(Move move) {
        std::vector<CFI_index_t> at(array_->rank);
        for (size_t i = 0; i < count_; ++i) {
            auto *memory = static_cast<std::byte *>(array_->base_addr);
            for (int d = 0; d < array_->rank; ++d)
                memory += at[d] * array_->dim[d].sm;
            move(memory, copy_.data() + i * array_->elem_len, array_->elem_len);
            for (int d = 0; d < array_->rank && ++at[d] == array_->dim[d].extent; ++d)
                at[d] = 0;
        }
    }

    const CFI_cdesc_t *array_ = nullptr;
    std::vector<std::byte> copy_;
    std::byte *data_ = nullptr;
    size_t count_ = 0;
};

inline bool in_place(const CFI_cdesc_t *array) {
    return array->base_addr == &flx_fortran_in_place;
}

inline flx_status_t not_in_place(const CFI_cdesc_t *array, const char *name) {
    return in_place(array)
               ? refuse(Fault::no_buffer, fmt::format("flx_in_place may stand for {} on the root only", name))
               : FLX_SUCCESS;
}

/// What FLX adds: `factor` of its elements are one of Fortran's.
struct Elements {
    flx_dtype_t dtype = FLX_INT8;
    size_t factor = 1;
};

inline flx_status_t elements_of(const Array &array, int op, Elements &elements) {
    const size_t bytes = array.element();
    // gfortran's types are a class and, above it, a kind.
    switch (array.type() & CFI_type_mask) {
        case CFI_type_Integer:
            if (bytes <= 8) {
                elements = {bytes == 1 ? FLX_INT8 : bytes == 2 ? FLX_INT16 : bytes == 4 ? FLX_INT32 : FLX_INT64, 1};
                return FLX_SUCCESS;
            }
            break;
        case CFI_type_Real:
            if (bytes == sizeof(float) || bytes == sizeof(double)) {
                elements = {bytes == sizeof(float) ? FLX_F32 : FLX_F64, 1};
                return FLX_SUCCESS;
            }
            break;
        case CFI_type_Complex:
            // A sum of complex numbers is one of their parts.
            if ((bytes == 2 * sizeof(float) || bytes == 2 * sizeof(double)) && (op == FLX_SUM || op == FLX_AVG)) {
                elements = {bytes == 2 * sizeof(float) ? FLX_F32 : FLX_F64, 2};
                return FLX_SUCCESS;
            }
            if ((bytes == 2 * sizeof(float) || bytes == 2 * sizeof(double)) && op == FLX_PROD) {
                elements = {bytes == 2 * sizeof(float) ? FLX_COMPLEX_F32 : FLX_COMPLEX_F64, 1};
                return FLX_SUCCESS;
            }
            break;
        case CFI_type_Logical:  // 0 and 1
            if ((op == FLX_LAND || op == FLX_LOR || op == FLX_LXOR) && bytes <= 8) {
                elements = {bytes == 1 ? FLX_INT8 : bytes == 2 ? FLX_INT16 : bytes == 4 ? FLX_INT32 : FLX_INT64, 1};
                return FLX_SUCCESS;
            }
            break;
        default:
            break;
    }
    return refuse(
        Fault::op_not_for_dtype,
        "the arrays are of a type that this reduction does not take; integers of 1 to 8 bytes, reals of 4 and 8 "
        "are allowed, complex numbers of these in FLX_SUM, FLX_PROD and FLX_AVG, and logicals in FLX_LAND, FLX_LOR and "
        "FLX_LXOR");
}

inline flx_status_t check_size(const char *name, size_t count, const char *what, size_t wanted) {
    if (count == wanted)
        return FLX_SUCCESS;
    return refuse(Fault::wrong_array, fmt::format("{} has {} elements; {} {} are needed", name, count, what, wanted));
}

inline flx_status_t multiple_of(const char *name, size_t count, int size) {
    if (count % size == 0)
        return FLX_SUCCESS;
    return refuse(Fault::wrong_array,
                  fmt::format("{} has {} elements; a multiple of the {} ranks is needed", name, count, size));
}

/// Counts or displacements, one for each rank.
inline flx_status_t numbers_of(const CFI_cdesc_t *array, const char *name, int size, size_t factor,
                               std::vector<size_t> &numbers) {
    Array row;
    if (const flx_status_t status = row.take(Call(), array, name, true); status != FLX_SUCCESS)
        return status;
    if ((row.type() & CFI_type_mask) != CFI_type_Integer || (row.element() != 4 && row.element() != 8))
        return refuse(Fault::wrong_array, fmt::format("{} is not of integers of 4 or 8 bytes; it must be", name));
    if (const flx_status_t status = check_size(name, row.count(), "one for each rank:", size); status != FLX_SUCCESS)
        return status;
    for (int rank = 0; rank < size; ++rank) {
        const int64_t number = row.element() == 4 ? static_cast<const int32_t *>(row.data())[rank]
                                                  : static_cast<const int64_t *>(row.data())[rank];
        if (number < 0)
            return refuse(Fault::wrong_array,
                          fmt::format("{} has {} for rank {}; 0 or more is needed", name, number, rank));
        numbers.push_back(static_cast<size_t>(number) * factor);
    }
    return FLX_SUCCESS;
}

/// What a collective sends and receives.
struct Buffers {
    Array send;
    Array receive;
    const void *in = nullptr;  ///< as FLX takes them
    void *out = nullptr;

    /// `kept`: parts of recvbuf are not written, and stay as they are.
    flx_status_t take(const Call &call, const CFI_cdesc_t *sendbuf, const CFI_cdesc_t *recvbuf, bool kept = false) {
        const bool stays = in_place(sendbuf);
        TRY(receive.take(call, recvbuf, "recvbuf", stays || kept));
        out = receive.data();
        if (stays) {
            in = FLX_IN_PLACE;
            return FLX_SUCCESS;
        }
        TRY(take_input(call, sendbuf));
        return check_alike();
    }
    /// Takes the input, which is all that ranks other than a root have.
    flx_status_t take_input(const Call &call, const CFI_cdesc_t *sendbuf) {
        TRY(not_in_place(sendbuf, "sendbuf"));
        TRY(send.take(call, sendbuf, "sendbuf", true));
        in = send.data();
        return FLX_SUCCESS;
    }
    /// Takes what a root sends.
    flx_status_t take_scattered(const Call &call, const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, bool root) {
        out = FLX_IN_PLACE;
        if (!root)
            TRY(not_in_place(recvbuf, "recvbuf"));
        if (!in_place(recvbuf)) {
            TRY(receive.take(call, recvbuf, "recvbuf", false));
            out = receive.data();
        }
        if (!root)
            return FLX_SUCCESS;
        TRY(take_input(call, sendbuf));
        return out == FLX_IN_PLACE ? FLX_SUCCESS : check_alike();
    }
    [[nodiscard]] bool stay() const { return in == FLX_IN_PLACE; }

    [[nodiscard]] flx_status_t check_alike() const {
        if (send.type() == receive.type() && send.element() == receive.element())
            return FLX_SUCCESS;
        return refuse(Fault::wrong_array,
                      "sendbuf and recvbuf are of different types or kinds; they must be of the same");
    }
    /// Both have as many elements.
    [[nodiscard]] flx_status_t check_equal() const {
        return stay() ? FLX_SUCCESS : check_size("sendbuf", send.count(), "as many as in recvbuf:", receive.count());
    }
    /// recvbuf has as many as all ranks' sendbuf.
    [[nodiscard]] flx_status_t check_gathered(int size) const {
        if (stay())
            return multiple_of("recvbuf", receive.count(), size);
        return check_size("recvbuf", receive.count(), "those of sendbuf from each rank:", send.count() * size);
    }
};

/// Uneven blocks of an array, one for each rank, in bytes.
struct Blocks {
    std::vector<size_t> counts;
    std::vector<size_t> displs;

    /// Takes Fortran's counts and displacements, which count elements of `array`.
    flx_status_t take(const CFI_cdesc_t *in_counts, const char *counts_name, const CFI_cdesc_t *in_displs,
                      const char *displs_name, const Array &array, const char *name, int size) {
        TRY(numbers_of(in_counts, counts_name, size, array.element(), counts));
        TRY(numbers_of(in_displs, displs_name, size, array.element(), displs));
        for (size_t rank = 0; rank < counts.size(); ++rank)
            if (counts[rank] != 0 && counts[rank] + displs[rank] > array.bytes())
                return refuse(
                    Fault::wrong_array,
                    fmt::format(
                        "the block of rank {} goes beyond the end of {}; its displacement and count must lie within",
                        rank, name));
        return FLX_SUCCESS;
    }
};

}  // namespace flx::fortran
