!> FLX in Fortran 2018: `use flx`. Collectives take arrays of any rank and kind, and scalars; counts are those of the
!> arrays, so there is no argument for them. A contiguous array is never copied; a section with holes is, to and fro.
!>
!>   type(flx_comm) :: comm
!>   call flx_comm_create(MPI_COMM_WORLD, comm)      ! integer, or type(MPI_Comm) of mpi_f08
!>   call flx_allreduce(flx_in_place, x, FLX_SUM, comm)
!>   call flx_comm_free(comm)
!>
!> `ierror` is optional everywhere and one of FLX_SUCCESS, FLX_ERR_…; flx_last_error() is the sentence. Without it an
!> error prints that sentence and ends the program. Ranks, roots and displacements count from 0, as in MPI. What the
!> collectives do is said in flx.h.
module flx
   use, intrinsic :: iso_c_binding
   use, intrinsic :: iso_fortran_env, only: error_unit
   use mpi_f08, only: MPI_Comm
   implicit none
   private

   enum, bind(C)
      enumerator :: FLX_SUCCESS = 0, FLX_ERR_ARGUMENT, FLX_ERR_CONFIG, FLX_ERR_UNSUPPORTED, FLX_ERR_MISMATCH, &
                    FLX_ERR_LINK, FLX_ERR_PEER, FLX_ERR_COMM, FLX_ERR_SYSTEM
   end enum
   enum, bind(C)
      enumerator :: FLX_SUM = 0, FLX_PROD, FLX_MIN, FLX_MAX, FLX_AVG, FLX_LAND, FLX_LOR, FLX_LXOR, FLX_BAND, FLX_BOR, &
                    FLX_BXOR
   end enum
   public :: FLX_SUCCESS, FLX_ERR_ARGUMENT, FLX_ERR_CONFIG, FLX_ERR_UNSUPPORTED, FLX_ERR_MISMATCH, FLX_ERR_LINK, &
             FLX_ERR_PEER, FLX_ERR_COMM, FLX_ERR_SYSTEM
   public :: FLX_SUM, FLX_PROD, FLX_MIN, FLX_MAX, FLX_AVG, FLX_LAND, FLX_LOR, FLX_LXOR, FLX_BAND, FLX_BOR, FLX_BXOR

   !> A communicator of FLX.
   type, bind(C), public :: flx_comm
      type(c_ptr) :: handle = c_null_ptr
   end type flx_comm

   !> As `sendbuf`, where input and output share memory; at the root of a scatter as `recvbuf`.
   integer(c_int), bind(C, name="flx_fortran_in_place"), target, public :: flx_in_place

   public :: flx_comm_create, flx_comm_dup, flx_comm_split, flx_comm_free, flx_comm_rank, flx_comm_size
   public :: flx_allreduce, flx_reduce, flx_reduce_scatter_block, flx_allgather, flx_bcast, flx_alltoall, flx_alltoallv, &
             flx_barrier
   public :: flx_reduce_scatter, flx_allgatherv, flx_gather, flx_gatherv, flx_scatter, flx_scatterv, flx_scan, flx_exscan
   public :: flx_send, flx_recv, flx_sendrecv, flx_group_begin, flx_group_end
   public :: flx_last_error, flx_version

   !> Collective over `mpi_comm`; see flx_comm_create of flx.h. Knobs come from the environment.
   interface flx_comm_create
      module procedure create_from_integer, create_from_handle
   end interface

   interface
      integer(c_int) function c_create(mpi_comm, comm) bind(C, name="flx_fortran_comm_create")
         import
         integer(c_int), value :: mpi_comm
         type(flx_comm), intent(out) :: comm
      end function
      integer(c_int) function c_dup(comm, made) bind(C, name="flx_fortran_comm_dup")
         import
         type(flx_comm), value :: comm
         type(flx_comm), intent(out) :: made
      end function
      integer(c_int) function c_split(comm, color, key, made) bind(C, name="flx_fortran_comm_split")
         import
         type(flx_comm), value :: comm
         integer(c_int), value :: color, key
         type(flx_comm), intent(out) :: made
      end function
      integer(c_int) function c_free(comm) bind(C, name="flx_fortran_comm_free")
         import
         type(flx_comm), intent(inout) :: comm
      end function
      integer(c_int) function c_rank(comm, rank) bind(C, name="flx_fortran_comm_rank")
         import
         type(flx_comm), value :: comm
         integer(c_int), intent(out) :: rank
      end function
      integer(c_int) function c_size(comm, size) bind(C, name="flx_fortran_comm_size")
         import
         type(flx_comm), value :: comm
         integer(c_int), intent(out) :: size
      end function
      integer(c_int) function c_allreduce(sendbuf, recvbuf, op, comm) bind(C, name="flx_fortran_allreduce")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         integer(c_int), value :: op
         type(flx_comm), value :: comm
      end function
      integer(c_int) function c_reduce(sendbuf, recvbuf, op, root, comm) bind(C, name="flx_fortran_reduce")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         integer(c_int), value :: op, root
         type(flx_comm), value :: comm
      end function
      integer(c_int) function c_reduce_scatter_block(sendbuf, recvbuf, op, comm) &
         bind(C, name="flx_fortran_reduce_scatter_block")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         integer(c_int), value :: op
         type(flx_comm), value :: comm
      end function
      integer(c_int) function c_allgather(sendbuf, recvbuf, comm) bind(C, name="flx_fortran_allgather")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         type(flx_comm), value :: comm
      end function
      integer(c_int) function c_bcast(buf, root, comm) bind(C, name="flx_fortran_bcast")
         import
         type(*), dimension(..), intent(inout) :: buf
         integer(c_int), value :: root
         type(flx_comm), value :: comm
      end function
      integer(c_int) function c_alltoall(sendbuf, recvbuf, comm) bind(C, name="flx_fortran_alltoall")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         type(flx_comm), value :: comm
      end function
      integer(c_int) function c_alltoallv(sendbuf, sendcounts, sdispls, recvbuf, recvcounts, rdispls, comm) &
         bind(C, name="flx_fortran_alltoallv")
         import
         type(*), dimension(..), intent(in) :: sendbuf, sendcounts, sdispls, recvcounts, rdispls
         type(*), dimension(..), intent(inout) :: recvbuf
         type(flx_comm), value :: comm
      end function
      integer(c_int) function c_reduce_scatter(sendbuf, recvbuf, recvcounts, op, comm) &
         bind(C, name="flx_fortran_reduce_scatter")
         import
         type(*), dimension(..), intent(in) :: sendbuf, recvcounts
         type(*), dimension(..), intent(inout) :: recvbuf
         integer(c_int), value :: op
         type(flx_comm), value :: comm
      end function
      integer(c_int) function c_allgatherv(sendbuf, recvbuf, recvcounts, displs, comm) &
         bind(C, name="flx_fortran_allgatherv")
         import
         type(*), dimension(..), intent(in) :: sendbuf, recvcounts, displs
         type(*), dimension(..), intent(inout) :: recvbuf
         type(flx_comm), value :: comm
      end function
      integer(c_int) function c_gather(sendbuf, recvbuf, root, comm) &
         bind(C, name="flx_fortran_gather")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         integer(c_int), value :: root
         type(flx_comm), value :: comm
      end function
      integer(c_int) function c_gatherv(sendbuf, recvbuf, recvcounts, displs, root, comm) &
         bind(C, name="flx_fortran_gatherv")
         import
         type(*), dimension(..), intent(in) :: sendbuf, recvcounts, displs
         type(*), dimension(..), intent(inout) :: recvbuf
         integer(c_int), value :: root
         type(flx_comm), value :: comm
      end function
      integer(c_int) function c_scatter(sendbuf, recvbuf, root, comm) &
         bind(C, name="flx_fortran_scatter")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         integer(c_int), value :: root
         type(flx_comm), value :: comm
      end function
      integer(c_int) function c_scatterv(sendbuf, sendcounts, displs, recvbuf, root, comm) &
         bind(C, name="flx_fortran_scatterv")
         import
         type(*), dimension(..), intent(in) :: sendbuf, sendcounts, displs
         type(*), dimension(..), intent(inout) :: recvbuf
         integer(c_int), value :: root
         type(flx_comm), value :: comm
      end function
      integer(c_int) function c_scan(sendbuf, recvbuf, op, comm) &
         bind(C, name="flx_fortran_scan")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         integer(c_int), value :: op
         type(flx_comm), value :: comm
      end function
      integer(c_int) function c_exscan(sendbuf, recvbuf, op, comm) &
         bind(C, name="flx_fortran_exscan")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         integer(c_int), value :: op
         type(flx_comm), value :: comm
      end function
      integer(c_int) function c_barrier(comm) bind(C, name="flx_fortran_barrier")
         import
         type(flx_comm), value :: comm
      end function
      integer(c_int) function c_send(sendbuf, dest, comm) bind(C, name="flx_fortran_send")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         integer(c_int), value :: dest
         type(flx_comm), value :: comm
      end function
      integer(c_int) function c_recv(recvbuf, source, comm) bind(C, name="flx_fortran_recv")
         import
         type(*), dimension(..), intent(inout) :: recvbuf
         integer(c_int), value :: source
         type(flx_comm), value :: comm
      end function
      integer(c_int) function c_sendrecv(sendbuf, dest, recvbuf, source, comm) bind(C, name="flx_fortran_sendrecv")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         integer(c_int), value :: dest, source
         type(flx_comm), value :: comm
      end function
      integer(c_int) function c_group_begin(comm) bind(C, name="flx_fortran_group_begin")
         import
         type(flx_comm), value :: comm
      end function
      integer(c_int) function c_group_end(comm) bind(C, name="flx_fortran_group_end")
         import
         type(flx_comm), value :: comm
      end function
      function c_last_error() bind(C, name="flx_fortran_last_error") result(text)
         import
         type(c_ptr) :: text
      end function
      integer(c_int) function flx_version() bind(C, name="flx_version")
         import
      end function
      integer(c_size_t) function c_strlen(text) bind(C, name="strlen")
         import
         type(c_ptr), value :: text
      end function
   end interface

contains

   !> The sentence of this thread's last failed call; empty if none failed.
   function flx_last_error() result(sentence)
      character(:), allocatable :: sentence
      character(kind=c_char), pointer :: text(:)
      type(c_ptr) :: at
      integer :: i
      at = c_last_error()
      call c_f_pointer(at, text, [c_strlen(at)])
      allocate (character(size(text)) :: sentence)
      do i = 1, size(text)
         sentence(i:i) = text(i)
      end do
   end function

   subroutine done(status, ierror)
      integer(c_int), intent(in) :: status
      integer, intent(out), optional :: ierror
      if (present(ierror)) then
         ierror = status
      else if (status /= FLX_SUCCESS) then
         write (error_unit, '(a)') 'FLX: '//flx_last_error()
         error stop 1
      end if
   end subroutine

   subroutine create_from_integer(mpi_comm, comm, ierror)
      integer, intent(in) :: mpi_comm
      type(flx_comm), intent(out) :: comm
      integer, intent(out), optional :: ierror
      call done(c_create(int(mpi_comm, c_int), comm), ierror)
   end subroutine

   subroutine create_from_handle(handle, comm, ierror)
      type(MPI_Comm), intent(in) :: handle
      type(flx_comm), intent(out) :: comm
      integer, intent(out), optional :: ierror
      call done(c_create(int(handle%MPI_VAL, c_int), comm), ierror)
   end subroutine

   !> Collective over `comm`: the same ranks, links and measurements.
   subroutine flx_comm_dup(comm, made, ierror)
      type(flx_comm), intent(in) :: comm
      type(flx_comm), intent(out) :: made
      integer, intent(out), optional :: ierror
      call done(c_dup(comm, made), ierror)
   end subroutine

   !> As MPI_Comm_split; a negative `color` takes part and gets none.
   subroutine flx_comm_split(comm, color, key, made, ierror)
      type(flx_comm), intent(in) :: comm
      integer, intent(in) :: color, key
      type(flx_comm), intent(out) :: made
      integer, intent(out), optional :: ierror
      call done(c_split(comm, int(color, c_int), int(key, c_int), made), ierror)
   end subroutine

   subroutine flx_comm_free(comm, ierror)
      type(flx_comm), intent(inout) :: comm
      integer, intent(out), optional :: ierror
      call done(c_free(comm), ierror)
   end subroutine

   subroutine flx_comm_rank(comm, rank, ierror)
      type(flx_comm), intent(in) :: comm
      integer, intent(out) :: rank
      integer, intent(out), optional :: ierror
      call done(c_rank(comm, rank), ierror)
   end subroutine

   subroutine flx_comm_size(comm, size, ierror)
      type(flx_comm), intent(in) :: comm
      integer, intent(out) :: size
      integer, intent(out), optional :: ierror
      call done(c_size(comm, size), ierror)
   end subroutine

   !> Both arrays have as many elements, of one kind of integers, reals, (FLX_SUM, FLX_PROD, FLX_AVG)
   !> complex numbers or (FLX_LAND, FLX_LOR, FLX_LXOR) logicals.
   subroutine flx_allreduce(sendbuf, recvbuf, op, comm, ierror)
      type(*), dimension(..), intent(in) :: sendbuf
      type(*), dimension(..), intent(inout) :: recvbuf
      integer, intent(in) :: op
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_allreduce(sendbuf, recvbuf, int(op, c_int), comm), ierror)
   end subroutine

   !> `recvbuf` is looked at on rank `root` only; `flx_in_place` may stand for `sendbuf` there only.
   subroutine flx_reduce(sendbuf, recvbuf, op, root, comm, ierror)
      type(*), dimension(..), intent(in) :: sendbuf
      type(*), dimension(..), intent(inout) :: recvbuf
      integer, intent(in) :: op, root
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_reduce(sendbuf, recvbuf, int(op, c_int), int(root, c_int), comm), ierror)
   end subroutine

   !> `sendbuf` has as many elements as the `recvbuf` of all ranks together. In place: so has `recvbuf`.
   subroutine flx_reduce_scatter_block(sendbuf, recvbuf, op, comm, ierror)
      type(*), dimension(..), intent(in) :: sendbuf
      type(*), dimension(..), intent(inout) :: recvbuf
      integer, intent(in) :: op
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_reduce_scatter_block(sendbuf, recvbuf, int(op, c_int), comm), ierror)
   end subroutine

   !> `recvbuf` has as many elements as the `sendbuf` of all ranks together. Any type, as with all that follow.
   subroutine flx_allgather(sendbuf, recvbuf, comm, ierror)
      type(*), dimension(..), intent(in) :: sendbuf
      type(*), dimension(..), intent(inout) :: recvbuf
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_allgather(sendbuf, recvbuf, comm), ierror)
   end subroutine

   subroutine flx_bcast(buf, root, comm, ierror)
      type(*), dimension(..), intent(inout) :: buf
      integer, intent(in) :: root
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_bcast(buf, int(root, c_int), comm), ierror)
   end subroutine

   !> Both have as many elements, a multiple of the number of ranks.
   subroutine flx_alltoall(sendbuf, recvbuf, comm, ierror)
      type(*), dimension(..), intent(in) :: sendbuf
      type(*), dimension(..), intent(inout) :: recvbuf
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_alltoall(sendbuf, recvbuf, comm), ierror)
   end subroutine

   !> Counts and displacements: integers of 4 or 8 bytes, in elements, one for each rank.
   subroutine flx_alltoallv(sendbuf, sendcounts, sdispls, recvbuf, recvcounts, rdispls, comm, ierror)
      type(*), dimension(..), intent(in) :: sendbuf, sendcounts, sdispls, recvcounts, rdispls
      type(*), dimension(..), intent(inout) :: recvbuf
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_alltoallv(sendbuf, sendcounts, sdispls, recvbuf, recvcounts, rdispls, comm), ierror)
   end subroutine

   !> As flx_reduce_scatter_block with `recvcounts(r+1)` elements for rank r, one rank's after the other's.
   subroutine flx_reduce_scatter(sendbuf, recvbuf, recvcounts, op, comm, ierror)
      type(*), dimension(..), intent(in) :: sendbuf, recvcounts
      type(*), dimension(..), intent(inout) :: recvbuf
      integer, intent(in) :: op
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_reduce_scatter(sendbuf, recvbuf, recvcounts, int(op, c_int), comm), ierror)
   end subroutine

   !> `recvcounts(r+1)` elements of rank r at `displs(r+1)`; integers of 4 or 8 bytes, in elements, one for each rank.
   subroutine flx_allgatherv(sendbuf, recvbuf, recvcounts, displs, comm, ierror)
      type(*), dimension(..), intent(in) :: sendbuf, recvcounts, displs
      type(*), dimension(..), intent(inout) :: recvbuf
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_allgatherv(sendbuf, recvbuf, recvcounts, displs, comm), ierror)
   end subroutine

   !> `recvbuf` is looked at on rank `root` only; `flx_in_place` may stand for `sendbuf` there only. So with flx_gatherv.
   subroutine flx_gather(sendbuf, recvbuf, root, comm, ierror)
      type(*), dimension(..), intent(in) :: sendbuf
      type(*), dimension(..), intent(inout) :: recvbuf
      integer, intent(in) :: root
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_gather(sendbuf, recvbuf, int(root, c_int), comm), ierror)
   end subroutine

   !> `recvcounts` and `displs` are looked at on rank `root` only.
   subroutine flx_gatherv(sendbuf, recvbuf, recvcounts, displs, root, comm, ierror)
      type(*), dimension(..), intent(in) :: sendbuf, recvcounts, displs
      type(*), dimension(..), intent(inout) :: recvbuf
      integer, intent(in) :: root
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_gatherv(sendbuf, recvbuf, recvcounts, displs, int(root, c_int), comm), ierror)
   end subroutine

   !> `sendbuf` is looked at on rank `root` only; `flx_in_place` may stand for `recvbuf` there only. So with flx_scatterv.
   subroutine flx_scatter(sendbuf, recvbuf, root, comm, ierror)
      type(*), dimension(..), intent(in) :: sendbuf
      type(*), dimension(..), intent(inout) :: recvbuf
      integer, intent(in) :: root
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_scatter(sendbuf, recvbuf, int(root, c_int), comm), ierror)
   end subroutine

   !> `sendcounts` and `displs` are looked at on rank `root` only.
   subroutine flx_scatterv(sendbuf, sendcounts, displs, recvbuf, root, comm, ierror)
      type(*), dimension(..), intent(in) :: sendbuf, sendcounts, displs
      type(*), dimension(..), intent(inout) :: recvbuf
      integer, intent(in) :: root
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_scatterv(sendbuf, sendcounts, displs, recvbuf, int(root, c_int), comm), ierror)
   end subroutine

   !> Over the ranks up to this one. Not FLX_AVG.
   subroutine flx_scan(sendbuf, recvbuf, op, comm, ierror)
      type(*), dimension(..), intent(in) :: sendbuf
      type(*), dimension(..), intent(inout) :: recvbuf
      integer, intent(in) :: op
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_scan(sendbuf, recvbuf, int(op, c_int), comm), ierror)
   end subroutine

   !> Over the ranks before this one; nothing is written on rank 0.
   subroutine flx_exscan(sendbuf, recvbuf, op, comm, ierror)
      type(*), dimension(..), intent(in) :: sendbuf
      type(*), dimension(..), intent(inout) :: recvbuf
      integer, intent(in) :: op
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_exscan(sendbuf, recvbuf, int(op, c_int), comm), ierror)
   end subroutine

   subroutine flx_barrier(comm, ierror)
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_barrier(comm), ierror)
   end subroutine

   subroutine flx_send(sendbuf, dest, comm, ierror)
      type(*), dimension(..), intent(in) :: sendbuf
      integer, intent(in) :: dest
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_send(sendbuf, int(dest, c_int), comm), ierror)
   end subroutine

   subroutine flx_recv(recvbuf, source, comm, ierror)
      type(*), dimension(..), intent(inout) :: recvbuf
      integer, intent(in) :: source
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_recv(recvbuf, int(source, c_int), comm), ierror)
   end subroutine

   subroutine flx_sendrecv(sendbuf, dest, recvbuf, source, comm, ierror)
      type(*), dimension(..), intent(in) :: sendbuf
      type(*), dimension(..), intent(inout) :: recvbuf
      integer, intent(in) :: dest, source
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_sendrecv(sendbuf, int(dest, c_int), recvbuf, int(source, c_int), comm), ierror)
   end subroutine

   !> Between these two arrays must be contiguous, and stay where they are until the group has ended.
   subroutine flx_group_begin(comm, ierror)
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_group_begin(comm), ierror)
   end subroutine

   subroutine flx_group_end(comm, ierror)
      type(flx_comm), intent(in) :: comm
      integer, intent(out), optional :: ierror
      call done(c_group_end(comm), ierror)
   end subroutine
end module flx
