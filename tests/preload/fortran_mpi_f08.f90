! The drop-in library under a program that gets MPI by `use mpi_f08`.
program fortran_mpi_f08
  use mpi_f08
  use mpi_f08_ext
  implicit none
  type(MPI_Comm) :: part
  type(MPI_Request) :: requests(4)
  include 'fortran.inc'
end program fortran_mpi_f08
