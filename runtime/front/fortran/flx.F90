!> FLX in Fortran 2018: `use flx`. Collectives take arrays of any rank and kind, and scalars; counts are those of the
!> arrays, so there is no argument for them. A contiguous array is never copied; a section with holes is, to and fro.
!>
!>   type(flx_comm) :: comm
!>   call flx_comm_create(MPI_COMM_WORLD, comm)      ! integer, or type(MPI_Comm) of mpi_f08
!>   call flx_allreduce(flx_in_place, x, FLX_SUM, comm)
!>   call flx_comm_free(comm)
!>
!> Each collective is there in three forms: `flx_allreduce` blocks; `flx_iallreduce` returns with a request; and
!> `flx_allreduce_init` makes a request that flx_start begins, as often as one likes.
!>
!>   type(flx_request) :: request
!>   call flx_iallreduce(flx_in_place, x, FLX_SUM, comm, request)
!>   ! something that leaves x alone
!>   call flx_wait(request)
!>
!> Until such a request has completed its arrays are FLX's and stay where they are: they are variables, not expressions,
!> and have no holes. Those of counts and displacements may go when the call returns. The buffers of these calls, and of
!> those that may be in a group, are `asynchronous` for what the standard says of them, and `target` since gfortran
!> otherwise takes it that nobody has the address of a local array after the call.
!>
!> `ierror` is optional everywhere and one of FLX_SUCCESS, FLX_ERR_…; flx_last_error() is the sentence. Without it an
!> error prints that sentence and ends all ranks by MPI_Abort. Ranks, roots and displacements count from 0, as in MPI; the
!> index of a request from 1. What the collectives do is said in flx.h.
module flx
   use, intrinsic :: iso_c_binding
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

   !> An operation under way, or a persistent one.
   type, bind(C), public :: flx_request
      type(c_ptr) :: handle = c_null_ptr
   end type flx_request
   type(flx_request), parameter, public :: flx_request_null = flx_request()

   !> As `sendbuf`, where input and output share memory; at the root of a scatter as `recvbuf`.
   integer(c_int), bind(C, name="flx_fortran_in_place"), target, public :: flx_in_place

   public :: flx_comm_create, flx_comm_dup, flx_comm_split, flx_comm_free, flx_comm_abort, flx_comm_rank, &
             flx_comm_size
   public :: flx_allreduce, flx_reduce, flx_reduce_scatter_block, flx_reduce_scatter, flx_allgather, &
             flx_allgatherv, flx_bcast, flx_gather, flx_gatherv, flx_scatter, flx_scatterv, flx_alltoall, &
             flx_alltoallv, flx_scan, flx_exscan, flx_barrier
   public :: flx_iallreduce, flx_ireduce, flx_ireduce_scatter_block, flx_ireduce_scatter, flx_iallgather, &
             flx_iallgatherv, flx_ibcast, flx_igather, flx_igatherv, flx_iscatter, flx_iscatterv, flx_ialltoall, &
             flx_ialltoallv, flx_iscan, flx_iexscan, flx_ibarrier
   public :: flx_allreduce_init, flx_reduce_init, flx_reduce_scatter_block_init, flx_reduce_scatter_init, &
             flx_allgather_init, flx_allgatherv_init, flx_bcast_init, flx_gather_init, flx_gatherv_init, &
             flx_scatter_init, flx_scatterv_init, flx_alltoall_init, flx_alltoallv_init, flx_scan_init, &
             flx_exscan_init, flx_barrier_init
   public :: flx_test, flx_wait, flx_test_any, flx_wait_any, flx_test_all, flx_wait_all, flx_start, flx_start_all, &
             flx_request_free
   public :: flx_send, flx_recv, flx_sendrecv, flx_group_begin, flx_group_end
   public :: flx_malloc, flx_free, flx_last_error, flx_version

   !> Collective over `mpi_comm`; see flx_comm_create of flx.h. Knobs come from the environment.
   interface flx_comm_create
      module procedure create_from_integer, create_from_handle
   end interface

   interface
      subroutine c_create(mpi_comm, comm, ierror) bind(C, name="flx_fortran_comm_create")
         import
         integer(c_int), intent(in) :: mpi_comm
         type(flx_comm), intent(out) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine c_abort(comm, reason, ierror) bind(C, name="flx_fortran_comm_abort")
         import
         type(flx_comm), intent(in) :: comm
         character(kind=c_char), intent(in) :: reason(*)
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      !> Collective over `comm`: the same ranks, links and measurements.
      subroutine flx_comm_dup(comm, made, ierror) bind(C, name="flx_fortran_comm_dup")
         import
         type(flx_comm), intent(in) :: comm
         type(flx_comm), intent(out) :: made
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      !> As MPI_Comm_split; a negative `color` takes part and gets none.
      subroutine flx_comm_split(comm, color, key, made, ierror) bind(C, name="flx_fortran_comm_split")
         import
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(in) :: color, key
         type(flx_comm), intent(out) :: made
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_comm_free(comm, ierror) bind(C, name="flx_fortran_comm_free")
         import
         type(flx_comm), intent(inout) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_comm_rank(comm, rank, ierror) bind(C, name="flx_fortran_comm_rank")
         import
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out) :: rank
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_comm_size(comm, size, ierror) bind(C, name="flx_fortran_comm_size")
         import
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out) :: size
         integer(c_int), intent(out), optional :: ierror
      end subroutine

      ! Blocking.

      !> Both arrays have as many elements, of one kind of integers, reals, (FLX_SUM, FLX_PROD, FLX_AVG)
      !> complex numbers or (FLX_LAND, FLX_LOR, FLX_LXOR) logicals. So in all reductions.
      subroutine flx_allreduce(sendbuf, recvbuf, op, comm, ierror) bind(C, name="flx_fortran_allreduce")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         integer(c_int), intent(in) :: op
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      !> `recvbuf` is looked at on rank `root` only; `flx_in_place` may stand for `sendbuf` there only.
      subroutine flx_reduce(sendbuf, recvbuf, op, root, comm, ierror) bind(C, name="flx_fortran_reduce")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         integer(c_int), intent(in) :: op, root
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      !> `sendbuf` has as many elements as the `recvbuf` of all ranks together. In place: so has `recvbuf`.
      subroutine flx_reduce_scatter_block(sendbuf, recvbuf, op, comm, ierror) &
         bind(C, name="flx_fortran_reduce_scatter_block")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         integer(c_int), intent(in) :: op
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      !> As flx_reduce_scatter_block with `recvcounts(r+1)` elements for rank r, one rank's after the other's.
      !> Counts and displacements, here and below: integers of 4 or 8 bytes, in elements, one for each rank.
      subroutine flx_reduce_scatter(sendbuf, recvbuf, recvcounts, op, comm, ierror) &
         bind(C, name="flx_fortran_reduce_scatter")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         type(*), dimension(..), intent(in) :: recvcounts
         integer(c_int), intent(in) :: op
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      !> `recvbuf` has as many elements as the `sendbuf` of all ranks together. Any type, as wherever
      !> nothing is reduced.
      subroutine flx_allgather(sendbuf, recvbuf, comm, ierror) bind(C, name="flx_fortran_allgather")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      !> `recvcounts(r+1)` elements of rank r at `displs(r+1)`.
      subroutine flx_allgatherv(sendbuf, recvbuf, recvcounts, displs, comm, ierror) &
         bind(C, name="flx_fortran_allgatherv")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         type(*), dimension(..), intent(in) :: recvcounts, displs
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_bcast(buf, root, comm, ierror) bind(C, name="flx_fortran_bcast")
         import
         type(*), dimension(..), intent(inout) :: buf
         integer(c_int), intent(in) :: root
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      !> `recvbuf` is looked at on rank `root` only; `flx_in_place` may stand for `sendbuf` there only.
      !> So with flx_gatherv.
      subroutine flx_gather(sendbuf, recvbuf, root, comm, ierror) bind(C, name="flx_fortran_gather")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         integer(c_int), intent(in) :: root
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      !> `recvcounts` and `displs` are looked at on rank `root` only.
      subroutine flx_gatherv(sendbuf, recvbuf, recvcounts, displs, root, comm, ierror) &
         bind(C, name="flx_fortran_gatherv")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         type(*), dimension(..), intent(in) :: recvcounts, displs
         integer(c_int), intent(in) :: root
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      !> `sendbuf` is looked at on rank `root` only; `flx_in_place` may stand for `recvbuf` there only.
      !> So with flx_scatterv.
      subroutine flx_scatter(sendbuf, recvbuf, root, comm, ierror) bind(C, name="flx_fortran_scatter")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         integer(c_int), intent(in) :: root
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      !> `sendcounts` and `displs` are looked at on rank `root` only.
      subroutine flx_scatterv(sendbuf, sendcounts, displs, recvbuf, root, comm, ierror) &
         bind(C, name="flx_fortran_scatterv")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         type(*), dimension(..), intent(in) :: sendcounts, displs
         integer(c_int), intent(in) :: root
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      !> Both have as many elements, a multiple of the number of ranks.
      subroutine flx_alltoall(sendbuf, recvbuf, comm, ierror) bind(C, name="flx_fortran_alltoall")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_alltoallv(sendbuf, sendcounts, sdispls, recvbuf, recvcounts, rdispls, comm, ierror) &
         bind(C, name="flx_fortran_alltoallv")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         type(*), dimension(..), intent(in) :: sendcounts, sdispls, recvcounts, rdispls
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      !> Over the ranks up to this one. Not FLX_AVG.
      subroutine flx_scan(sendbuf, recvbuf, op, comm, ierror) bind(C, name="flx_fortran_scan")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         integer(c_int), intent(in) :: op
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      !> Over the ranks before this one; nothing is written on rank 0.
      subroutine flx_exscan(sendbuf, recvbuf, op, comm, ierror) bind(C, name="flx_fortran_exscan")
         import
         type(*), dimension(..), intent(in) :: sendbuf
         type(*), dimension(..), intent(inout) :: recvbuf
         integer(c_int), intent(in) :: op
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_barrier(comm, ierror) bind(C, name="flx_fortran_barrier")
         import
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine

      ! Non-blocking: the same, and a request.

      subroutine flx_iallreduce(sendbuf, recvbuf, op, comm, request, ierror) bind(C, name="flx_fortran_iallreduce")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         integer(c_int), intent(in) :: op
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_ireduce(sendbuf, recvbuf, op, root, comm, request, ierror) bind(C, name="flx_fortran_ireduce")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         integer(c_int), intent(in) :: op, root
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_ireduce_scatter_block(sendbuf, recvbuf, op, comm, request, ierror) &
         bind(C, name="flx_fortran_ireduce_scatter_block")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         integer(c_int), intent(in) :: op
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_ireduce_scatter(sendbuf, recvbuf, recvcounts, op, comm, request, ierror) &
         bind(C, name="flx_fortran_ireduce_scatter")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         type(*), dimension(..), intent(in) :: recvcounts
         integer(c_int), intent(in) :: op
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_iallgather(sendbuf, recvbuf, comm, request, ierror) bind(C, name="flx_fortran_iallgather")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_iallgatherv(sendbuf, recvbuf, recvcounts, displs, comm, request, ierror) &
         bind(C, name="flx_fortran_iallgatherv")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         type(*), dimension(..), intent(in) :: recvcounts, displs
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_ibcast(buf, root, comm, request, ierror) bind(C, name="flx_fortran_ibcast")
         import
         type(*), dimension(..), intent(inout), asynchronous, target :: buf
         integer(c_int), intent(in) :: root
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_igather(sendbuf, recvbuf, root, comm, request, ierror) bind(C, name="flx_fortran_igather")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         integer(c_int), intent(in) :: root
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_igatherv(sendbuf, recvbuf, recvcounts, displs, root, comm, request, ierror) &
         bind(C, name="flx_fortran_igatherv")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         type(*), dimension(..), intent(in) :: recvcounts, displs
         integer(c_int), intent(in) :: root
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_iscatter(sendbuf, recvbuf, root, comm, request, ierror) bind(C, name="flx_fortran_iscatter")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         integer(c_int), intent(in) :: root
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_iscatterv(sendbuf, sendcounts, displs, recvbuf, root, comm, request, ierror) &
         bind(C, name="flx_fortran_iscatterv")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         type(*), dimension(..), intent(in) :: sendcounts, displs
         integer(c_int), intent(in) :: root
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_ialltoall(sendbuf, recvbuf, comm, request, ierror) bind(C, name="flx_fortran_ialltoall")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_ialltoallv(sendbuf, sendcounts, sdispls, recvbuf, recvcounts, rdispls, comm, request, ierror) &
         bind(C, name="flx_fortran_ialltoallv")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         type(*), dimension(..), intent(in) :: sendcounts, sdispls, recvcounts, rdispls
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_iscan(sendbuf, recvbuf, op, comm, request, ierror) bind(C, name="flx_fortran_iscan")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         integer(c_int), intent(in) :: op
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_iexscan(sendbuf, recvbuf, op, comm, request, ierror) bind(C, name="flx_fortran_iexscan")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         integer(c_int), intent(in) :: op
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_ibarrier(comm, request, ierror) bind(C, name="flx_fortran_ibarrier")
         import
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine

      ! Persistent: flx_start begins what these describe.

      subroutine flx_allreduce_init(sendbuf, recvbuf, op, comm, request, ierror) &
         bind(C, name="flx_fortran_allreduce_init")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         integer(c_int), intent(in) :: op
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_reduce_init(sendbuf, recvbuf, op, root, comm, request, ierror) &
         bind(C, name="flx_fortran_reduce_init")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         integer(c_int), intent(in) :: op, root
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_reduce_scatter_block_init(sendbuf, recvbuf, op, comm, request, ierror) &
         bind(C, name="flx_fortran_reduce_scatter_block_init")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         integer(c_int), intent(in) :: op
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_reduce_scatter_init(sendbuf, recvbuf, recvcounts, op, comm, request, ierror) &
         bind(C, name="flx_fortran_reduce_scatter_init")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         type(*), dimension(..), intent(in) :: recvcounts
         integer(c_int), intent(in) :: op
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_allgather_init(sendbuf, recvbuf, comm, request, ierror) bind(C, name="flx_fortran_allgather_init")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_allgatherv_init(sendbuf, recvbuf, recvcounts, displs, comm, request, ierror) &
         bind(C, name="flx_fortran_allgatherv_init")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         type(*), dimension(..), intent(in) :: recvcounts, displs
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_bcast_init(buf, root, comm, request, ierror) bind(C, name="flx_fortran_bcast_init")
         import
         type(*), dimension(..), intent(inout), asynchronous, target :: buf
         integer(c_int), intent(in) :: root
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_gather_init(sendbuf, recvbuf, root, comm, request, ierror) bind(C, name="flx_fortran_gather_init")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         integer(c_int), intent(in) :: root
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_gatherv_init(sendbuf, recvbuf, recvcounts, displs, root, comm, request, ierror) &
         bind(C, name="flx_fortran_gatherv_init")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         type(*), dimension(..), intent(in) :: recvcounts, displs
         integer(c_int), intent(in) :: root
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_scatter_init(sendbuf, recvbuf, root, comm, request, ierror) &
         bind(C, name="flx_fortran_scatter_init")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         integer(c_int), intent(in) :: root
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_scatterv_init(sendbuf, sendcounts, displs, recvbuf, root, comm, request, ierror) &
         bind(C, name="flx_fortran_scatterv_init")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         type(*), dimension(..), intent(in) :: sendcounts, displs
         integer(c_int), intent(in) :: root
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_alltoall_init(sendbuf, recvbuf, comm, request, ierror) bind(C, name="flx_fortran_alltoall_init")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_alltoallv_init(sendbuf, sendcounts, sdispls, recvbuf, recvcounts, rdispls, comm, request, &
         ierror) bind(C, name="flx_fortran_alltoallv_init")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         type(*), dimension(..), intent(in) :: sendcounts, sdispls, recvcounts, rdispls
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_scan_init(sendbuf, recvbuf, op, comm, request, ierror) bind(C, name="flx_fortran_scan_init")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         integer(c_int), intent(in) :: op
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_exscan_init(sendbuf, recvbuf, op, comm, request, ierror) bind(C, name="flx_fortran_exscan_init")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         integer(c_int), intent(in) :: op
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_barrier_init(comm, request, ierror) bind(C, name="flx_fortran_barrier_init")
         import
         type(flx_comm), intent(in) :: comm
         type(flx_request), intent(out) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine

      ! Requests.

      !> Returns when it has completed: it is flx_request_null then, or, if persistent, can be started again.
      subroutine flx_wait(request, ierror) bind(C, name="flx_fortran_wait")
         import
         type(flx_request), intent(inout) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      !> Begins a persistent request that is not active.
      subroutine flx_start(request, ierror) bind(C, name="flx_fortran_start")
         import
         type(flx_request), intent(inout) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      !> As in flx.h: an operation under way goes on.
      subroutine flx_request_free(request, ierror) bind(C, name="flx_fortran_request_free")
         import
         type(flx_request), intent(inout) :: request
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine c_test(request, done, ierror) bind(C, name="flx_fortran_test")
         import
         type(flx_request), intent(inout) :: request
         integer(c_int), intent(out) :: done
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine c_test_any(count, requests, index, done, ierror) bind(C, name="flx_fortran_test_any")
         import
         integer(c_size_t), value :: count
         type(flx_request), intent(inout) :: requests(*)
         integer(c_int), intent(out) :: index, done
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine c_wait_any(count, requests, index, ierror) bind(C, name="flx_fortran_wait_any")
         import
         integer(c_size_t), value :: count
         type(flx_request), intent(inout) :: requests(*)
         integer(c_int), intent(out) :: index
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine c_test_all(count, requests, done, ierror) bind(C, name="flx_fortran_test_all")
         import
         integer(c_size_t), value :: count
         type(flx_request), intent(inout) :: requests(*)
         integer(c_int), intent(out) :: done
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine c_wait_all(count, requests, ierror) bind(C, name="flx_fortran_wait_all")
         import
         integer(c_size_t), value :: count
         type(flx_request), intent(inout) :: requests(*)
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine c_start_all(count, requests, ierror) bind(C, name="flx_fortran_start_all")
         import
         integer(c_size_t), value :: count
         type(flx_request), intent(inout) :: requests(*)
         integer(c_int), intent(out), optional :: ierror
      end subroutine

      ! Between two ranks, and groups.

      subroutine flx_send(sendbuf, dest, comm, ierror) bind(C, name="flx_fortran_send")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         integer(c_int), intent(in) :: dest
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_recv(recvbuf, source, comm, ierror) bind(C, name="flx_fortran_recv")
         import
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         integer(c_int), intent(in) :: source
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_sendrecv(sendbuf, dest, recvbuf, source, comm, ierror) bind(C, name="flx_fortran_sendrecv")
         import
         type(*), dimension(..), intent(in), asynchronous, target :: sendbuf
         type(*), dimension(..), intent(inout), asynchronous, target :: recvbuf
         integer(c_int), intent(in) :: dest, source
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      !> Between these two arrays must be contiguous, and stay where they are until the group has ended.
      subroutine flx_group_begin(comm, ierror) bind(C, name="flx_fortran_group_begin")
         import
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_group_end(comm, ierror) bind(C, name="flx_fortran_group_end")
         import
         type(flx_comm), intent(in) :: comm
         integer(c_int), intent(out), optional :: ierror
      end subroutine

      !> Memory that ranks of a host map, as in flx.h: `call c_f_pointer(memory, x, [n])` makes it a pointer to an array,
      !> which collectives take. Not a collective.
      subroutine flx_malloc(bytes, memory, ierror) bind(C, name="flx_fortran_malloc")
         import
         integer(c_size_t), intent(in) :: bytes
         type(c_ptr), intent(out) :: memory
         integer(c_int), intent(out), optional :: ierror
      end subroutine
      subroutine flx_free(memory, ierror) bind(C, name="flx_fortran_free")
         import
         type(c_ptr), intent(in) :: memory
         integer(c_int), intent(out), optional :: ierror
      end subroutine

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

   !> Ends `comm` for all its ranks, which hear `reason`; see flx_comm_abort of flx.h. It is to be freed then.
   subroutine flx_comm_abort(comm, reason, ierror)
      type(flx_comm), intent(in) :: comm
      character(*), intent(in), optional :: reason
      integer, intent(out), optional :: ierror
      if (present(reason)) then
         call c_abort(comm, reason//c_null_char, ierror)
      else
         call c_abort(comm, c_null_char, ierror)
      end if
   end subroutine

   subroutine create_from_integer(mpi_comm, comm, ierror)
      integer, intent(in) :: mpi_comm
      type(flx_comm), intent(out) :: comm
      integer, intent(out), optional :: ierror
      call c_create(mpi_comm, comm, ierror)
   end subroutine

   subroutine create_from_handle(handle, comm, ierror)
      type(MPI_Comm), intent(in) :: handle
      type(flx_comm), intent(out) :: comm
      integer, intent(out), optional :: ierror
      call c_create(handle%MPI_VAL, comm, ierror)
   end subroutine

   !> Whether it has completed, which is the same for it as with flx_wait.
   subroutine flx_test(request, done, ierror)
      type(flx_request), intent(inout) :: request
      logical, intent(out) :: done
      integer, intent(out), optional :: ierror
      integer(c_int) :: flag
      call c_test(request, flag, ierror)
      done = flag /= 0
   end subroutine

   !> Completes one of them if one can be: `requests(index)`; 0 (and `done`) where none is active.
   subroutine flx_test_any(requests, index, done, ierror)
      type(flx_request), intent(inout) :: requests(:)
      integer, intent(out) :: index
      logical, intent(out) :: done
      integer, intent(out), optional :: ierror
      integer(c_int) :: flag
      call c_test_any(size(requests, kind=c_size_t), requests, index, flag, ierror)
      done = flag /= 0
   end subroutine

   subroutine flx_wait_any(requests, index, ierror)
      type(flx_request), intent(inout) :: requests(:)
      integer, intent(out) :: index
      integer, intent(out), optional :: ierror
      call c_wait_any(size(requests, kind=c_size_t), requests, index, ierror)
   end subroutine

   !> Completes all of them, or none.
   subroutine flx_test_all(requests, done, ierror)
      type(flx_request), intent(inout) :: requests(:)
      logical, intent(out) :: done
      integer, intent(out), optional :: ierror
      integer(c_int) :: flag
      call c_test_all(size(requests, kind=c_size_t), requests, flag, ierror)
      done = flag /= 0
   end subroutine

   subroutine flx_wait_all(requests, ierror)
      type(flx_request), intent(inout) :: requests(:)
      integer, intent(out), optional :: ierror
      call c_wait_all(size(requests, kind=c_size_t), requests, ierror)
   end subroutine

   subroutine flx_start_all(requests, ierror)
      type(flx_request), intent(inout) :: requests(:)
      integer, intent(out), optional :: ierror
      call c_start_all(size(requests, kind=c_size_t), requests, ierror)
   end subroutine
end module flx
