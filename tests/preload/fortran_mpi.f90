! The drop-in library under a program that gets MPI by `use mpi`.
program fortran_mpi
  use mpi
  implicit none
  integer :: part, requests(4)
  include 'fortran.inc'
end program fortran_mpi
