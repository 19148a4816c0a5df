! The drop-in library under a program that gets MPI by `include 'mpif.h'`.
program fortran_mpifh
  implicit none
  include 'mpif.h'
  integer :: part, requests(4)
  integer :: op, map
  external :: compose
#include "fortran.inc"
end program fortran_mpifh

! (a, b) and (c, d) give (a c, b c + d), in the order of ranks.
subroutine compose(in, inout, length, datatype)
  implicit none
  integer, intent(in) :: length, datatype
  integer, intent(in) :: in(2, length)
  integer, intent(inout) :: inout(2, length)
  if (datatype == 0) stop 1
  inout(2, :) = modulo(in(2, :) * inout(1, :) + inout(2, :), 10007)
  inout(1, :) = modulo(in(1, :) * inout(1, :), 10007)
end subroutine compose
