/// \file numbers.h
/// Arrays of counts and displacements, as MPI's functions have them.
#pragma once

#include <mpi.h>

#include <cstddef>

namespace flx::preload {

/// An array of counts or displacements: of `int`, or of 64 bits (MPI_Count, MPI_Aint) in functions that end in _c.
class Numbers {
    static_assert(sizeof(MPI_Count) == sizeof(MPI_Aint) && sizeof(MPI_Count) != sizeof(int));

  public:
    template <typename Number>
    Numbers(const Number *numbers) : numbers_(numbers), wide_(sizeof(Number) == sizeof(MPI_Count)) {}
    bool operator==(std::nullptr_t) const { return numbers_ == nullptr; }
    MPI_Count operator[](int index) const {
        return wide_ ? static_cast<const MPI_Count *>(numbers_)[index] : static_cast<const int *>(numbers_)[index];
    }
    /// As MPI's own function takes them.
    template <typename Number>
    explicit operator const Number *() const {
        return static_cast<const Number *>(numbers_);
    }

  private:
    const void *numbers_;
    bool wide_;
};

}  // namespace flx::preload
