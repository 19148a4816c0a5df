! The drop-in library under a program that gets MPI by `use mpi_f08`.
module composition
  use mpi_f08
  implicit none
contains
  ! (a, b) and (c, d) give (a c, b c + d), in the order of ranks.
  subroutine compose(invec, inoutvec, length, datatype)
    use, intrinsic :: iso_c_binding, only: c_f_pointer, c_ptr
    type(c_ptr), value :: invec, inoutvec
    integer :: length
    type(MPI_Datatype) :: datatype
    integer, pointer :: in(:, :), inout(:, :)
    if (datatype == MPI_DATATYPE_NULL) stop 1
    call c_f_pointer(invec, in, [2, length])
    call c_f_pointer(inoutvec, inout, [2, length])
    inout(2, :) = modulo(in(2, :) * inout(1, :) + inout(2, :), 10007)
    inout(1, :) = modulo(in(1, :) * inout(1, :), 10007)
  end subroutine compose
end module composition

program fortran_mpi_f08
  use composition
  use mpi_f08
#ifdef EXTENSIONS
  use mpi_f08_ext
#endif
  implicit none
  type(MPI_Comm) :: part
  type(MPI_Request) :: requests(4)
  type(MPI_Op) :: op
  type(MPI_Datatype) :: map
#include "fortran.inc"
end program fortran_mpi_f08
