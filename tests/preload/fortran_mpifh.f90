! The drop-in library under a program that gets MPI by `include 'mpif.h'`.
program fortran_mpifh
  implicit none
  include 'mpif.h'
  integer :: part, requests(4)
  include 'fortran.inc'
end program fortran_mpifh
