!> Module flx against what must come out: every collective, kinds and ranks of arrays, sections with holes, errors.
program module_test
   use, intrinsic :: iso_c_binding
   use, intrinsic :: iso_fortran_env
   use mpi_f08
   use flx
   implicit none

   type :: particle
      real(real64) :: position(3)
      integer :: kind
   end type

   integer :: rank, ranks, failures, all_failures, i, j, ierror
   type(flx_comm) :: comm, other
   real(real64) :: cube(3, 4, 2), grid(6, 6), total, sent(6, 6)
   real(real32) :: row(5)
   integer(int8) :: bytes(7)
   integer(int16) :: shorts(7)
   integer(int64) :: longs(2, 2)
   integer :: counts(64), displs(64), scalar
   integer, allocatable :: gathered(:, :), blocks(:), before(:)
   complex(real64) :: z(3)
   type(particle), allocatable :: cloud(:)
   type(particle) :: mine(2)
   character(5) :: word
   logical :: flags(3)
   integer, allocatable :: uneven(:), parts(:)
   real(real32), allocatable :: piece(:)
   type(c_ptr) :: memory
   real(real64), pointer :: shared(:)

   call MPI_Init()
   call MPI_Comm_rank(MPI_COMM_WORLD, rank)
   call MPI_Comm_size(MPI_COMM_WORLD, ranks)
   failures = 0
   call flx_comm_create(MPI_COMM_WORLD, comm)
   call flx_comm_rank(comm, i)
   call flx_comm_size(comm, j)
   call expect(i == rank .and. j == ranks, 'rank or size')

   cube = rank + 1
   call flx_allreduce(flx_in_place, cube, FLX_SUM, comm)
   call expect(all(cube == ranks*(ranks + 1)/2), 'sum of a cube in place')
   total = -1
   call flx_allreduce(real(rank, real64), total, FLX_MAX, comm)
   call expect(total == ranks - 1, 'largest of scalars')
   call flx_allreduce([(real(rank + i, real32), i=1, 5)], row, FLX_MIN, comm)
   call expect(all(row == [(real(i, real32), i=1, 5)]), 'smallest of an expression')
   bytes = int(1, int8)
   call flx_allreduce(flx_in_place, bytes, FLX_SUM, comm)
   call expect(all(bytes == ranks), 'sum of integers of 1 byte')
   shorts = int(2, int16)
   call flx_allreduce(flx_in_place, shorts, FLX_PROD, comm)
   call expect(all(shorts == 2**ranks), 'product of integers of 2 bytes')
   longs = 2_int64**40 + rank
   call flx_allreduce(flx_in_place, longs, FLX_MIN, comm)
   call expect(all(longs == 2_int64**40), 'smallest of integers of 8 bytes')
   z = (1, -2)
   call flx_allreduce(flx_in_place, z, FLX_SUM, comm)
   call expect(all(z == ranks*(1, -2)), 'sum of complex numbers')

   ! Memory that ranks map.
   call flx_malloc(800000_c_size_t, memory)
   call c_f_pointer(memory, shared, [100000])
   shared = rank
   call flx_allreduce(flx_in_place, shared, FLX_SUM, comm)
   call expect(all(shared == ranks*(ranks - 1)/2), 'sum in memory that ranks map')
   call flx_free(memory)
   call flx_free(memory, ierror)
   call expect(ierror == FLX_ERR_ARGUMENT, 'freed twice')

   ! Every second row and column: neither buffer is contiguous, and what lies between stays as it is.
   grid = -5
   sent = rank
   call flx_allreduce(sent(1:5:2, 2:6:2), grid(2:6:2, 1:5:2), FLX_SUM, comm)
   call expect(all(grid(2:6:2, 1:5:2) == ranks*(ranks - 1)/2), 'sum of a section')
   grid(2:6:2, 1:5:2) = -5
   call expect(all(grid == -5), 'memory around a section')
   grid = rank
   call flx_bcast(grid(3, :), ranks - 1, comm)
   call expect(all(grid(3, :) == ranks - 1) .and. all(grid(2, :) == rank), 'a row from a root')

   total = -1
   call flx_reduce(real(rank + 1, real64), total, FLX_SUM, ranks - 1, comm)
   call expect(merge(total == ranks*(ranks + 1)/2, total == -1, rank == ranks - 1), 'reduce')

   allocate (gathered(2, ranks), blocks(2*ranks), before(2*ranks))
   call flx_allgather([rank, -rank], gathered, comm)
   call expect(all(gathered(1, :) == [(i, i=0, ranks - 1)]) .and. all(gathered(2, :) == -gathered(1, :)), 'allgather')
   before = [((100*rank + 10*i + j, j=1, 2), i=0, ranks - 1)]
   call flx_alltoall(before, blocks, comm)
   call expect(all(blocks == [((100*i + 10*rank + j, j=1, 2), i=0, ranks - 1)]), 'alltoall')
   blocks = rank
   call flx_reduce_scatter_block(blocks, gathered(:, 1), FLX_SUM, comm)
   call expect(all(gathered(:, 1) == ranks*(ranks - 1)/2), 'reduce_scatter_block')
   counts = 1
   displs = [(i - 1, i=1, 64)]
   blocks = -1
   call flx_alltoallv(before(1:2*ranks:2), counts(:ranks), displs(:ranks), blocks, counts(:ranks), &
                      int(2*displs(:ranks), int64), comm)
   call expect(all(blocks(1::2) == [(100*i + 10*rank + 1, i=0, ranks - 1)]) .and. all(blocks(2::2) == -1), 'alltoallv')

   ! In place, wherever MPI has it.
   grid(:, 1) = rank + 1
   if (rank == 0) then
      call flx_reduce(flx_in_place, grid(:, 1), FLX_SUM, 0, comm)
   else
      call flx_reduce(grid(:, 1), grid(:, 1), FLX_SUM, 0, comm)
   end if
   call expect(all(grid(:, 1) == merge(ranks*(ranks + 1)/2, rank + 1, rank == 0)), 'reduce in place')
   gathered = -1
   gathered(:, rank + 1) = [rank, -rank]
   call flx_allgather(flx_in_place, gathered, comm)
   call expect(all(gathered(1, :) == [(i, i=0, ranks - 1)]) .and. all(gathered(2, :) == -gathered(1, :)), &
               'allgather in place')
   blocks = before
   call flx_alltoall(flx_in_place, blocks, comm)
   call expect(all(blocks == [((100*i + 10*rank + j, j=1, 2), i=0, ranks - 1)]), 'alltoall in place')
   blocks = rank
   call flx_reduce_scatter_block(flx_in_place, blocks, FLX_SUM, comm)
   call expect(all(blocks(:2) == ranks*(ranks - 1)/2), 'reduce_scatter_block in place')
   blocks = before
   call flx_alltoallv(flx_in_place, counts(:ranks), displs(:ranks), blocks, counts(:ranks), 2*displs(:ranks), comm)
   call expect(all(blocks(1::2) == [(100*i + 10*rank + 1, i=0, ranks - 1)]) .and. &
               all(blocks(2::2) == before(2::2)), 'alltoallv in place')

   ! With a root. Everything is in sections with holes somewhere.
   gathered = -1
   call flx_gather([rank, 10*rank], gathered, ranks - 1, comm)
   if (rank == ranks - 1) then
      call expect(all(gathered(1, :) == [(i, i=0, ranks - 1)]) .and. all(gathered(2, :) == 10*gathered(1, :)), 'gather')
      gathered(:, rank + 1) = [-7, -8]
      call flx_gather(flx_in_place, gathered, ranks - 1, comm)
      call expect(all(gathered(:, rank + 1) == [-7, -8]) .and. all(gathered(2, :rank) == [(10*i, i=0, rank - 1)]), &
                  'gather in place')
   else
      call expect(all(gathered == -1), 'gather off the root')
      call flx_gather([rank, 10*rank], gathered, ranks - 1, comm)
   end if
   blocks = -1
   call flx_scatter(before, blocks(1:3:2), 0, comm)
   call expect(all(blocks(1:3:2) == [10*rank + 1, 10*rank + 2]), 'scatter')
   if (rank == 0) then
      blocks = before
      call flx_scatter(blocks, flx_in_place, 0, comm)
      call expect(all(blocks == before), 'scatter in place')
   else
      call flx_scatter(blocks, gathered(:, 1), 0, comm)
      call expect(all(gathered(:, 1) == [10*rank + 1, 10*rank + 2]), 'scatter beside a root in place')
   end if

   ! Uneven blocks: rank r has r + 1 elements, with a hole after each block.
   counts(:ranks) = [(i, i=1, ranks)]
   displs(:ranks) = [(i*(i - 1)/2 + i - 1, i=1, ranks)]
   allocate (uneven(ranks*(ranks + 1)/2 + ranks), parts(rank + 1), piece(rank + 1))
   uneven = -1
   parts = rank
   call flx_allgatherv(parts, uneven, counts(:ranks), displs(:ranks), comm)
   call expect(all([(all(uneven(displs(i) + 1:displs(i) + i) == i - 1) .and. uneven(displs(i) + i + 1) == -1, &
                     i=1, ranks)]), 'allgatherv')
   uneven = -1
   uneven(displs(rank + 1) + 1:displs(rank + 1) + rank + 1) = rank
   call flx_allgatherv(flx_in_place, uneven, counts(:ranks), displs(:ranks), comm)
   call expect(all([(all(uneven(displs(i) + 1:displs(i) + i) == i - 1), i=1, ranks)]), 'allgatherv in place')
   uneven = -1
   call flx_gatherv(parts, uneven, counts(:ranks), displs(:ranks), 0, comm)
   call expect(merge(all([(all(uneven(displs(i) + 1:displs(i) + i) == i - 1), i=1, ranks)]), all(uneven == -1), &
                     rank == 0), 'gatherv')
   parts = -1
   uneven = 2*uneven
   call flx_scatterv(uneven, counts(:ranks), displs(:ranks), parts, 0, comm)
   call expect(all(parts == 2*rank), 'scatterv')
   if (rank == 0) then
      call flx_scatterv(uneven, counts(:ranks), displs(:ranks), flx_in_place, 0, comm)
   else
      call flx_scatterv(uneven, counts(:ranks), displs(:ranks), parts, 0, comm)
   end if
   call expect(all(parts == 2*rank), 'scatterv beside a root in place')
   call flx_reduce_scatter([(real(i, real32), i=1, ranks*(ranks + 1)/2)], piece, counts(:ranks), FLX_SUM, comm)
   call expect(all(piece == [(real(ranks*(rank*(rank + 1)/2 + i), real32), i=1, rank + 1)]), 'reduce_scatter')

   scalar = -1
   call flx_scan(rank + 1, scalar, FLX_SUM, comm)
   call expect(scalar == (rank + 1)*(rank + 2)/2, 'scan')
   scalar = -1
   call flx_exscan(rank + 1, scalar, FLX_SUM, comm)
   call expect(scalar == merge(-1, rank*(rank + 1)/2, rank == 0), 'exscan')
   scalar = rank + 1
   call flx_scan(flx_in_place, scalar, FLX_MAX, comm)
   call expect(scalar == rank + 1, 'scan in place')

   flags = [rank == 0, .true., .false.]
   call flx_allreduce(flx_in_place, flags, FLX_LOR, comm)
   call expect(flags(1) .and. flags(2) .and. .not. flags(3), 'logical or')
   flags = [rank == 0, .true., .false.]
   call flx_allreduce(flx_in_place, flags, FLX_LAND, comm)
   call expect((flags(1) .eqv. ranks == 1) .and. flags(2) .and. .not. flags(3), 'logical and')
   scalar = 2**rank
   call flx_allreduce(flx_in_place, scalar, FLX_BOR, comm)
   call expect(scalar == 2**ranks - 1, 'bitwise or')
   z = (0, 1)
   call flx_allreduce(flx_in_place, z, FLX_PROD, comm)
   call expect(all(abs(z - (0, 1)**ranks) < 1e-12), 'product of complex numbers')

   allocate (cloud(2*ranks))
   mine = [particle([1d0, 2d0, 3d0], rank), particle([4d0, 5d0, real(rank, real64)], -rank)]
   call flx_allgather(mine, cloud, comm)
   call expect(all(cloud(1::2)%kind == [(i, i=0, ranks - 1)]) .and. cloud(2*ranks)%position(3) == ranks - 1, &
               'allgather of a derived type')
   word = merge('right', 'wrong', rank == 0)
   call flx_bcast(word, 0, comm)
   flags = rank == 0
   call flx_bcast(flags, 0, comm)
   call expect(word == 'right' .and. all(flags), 'characters and logicals from a root')

   scalar = -1
   call flx_sendrecv(rank, mod(rank + 1, ranks), scalar, mod(rank + ranks - 1, ranks), comm)
   call expect(scalar == mod(rank + ranks - 1, ranks), 'sendrecv')
   if (ranks > 1) then
      call flx_group_begin(comm)
      call flx_send(rank, mod(rank + 1, ranks), comm)
      call flx_recv(scalar, mod(rank + ranks - 1, ranks), comm)
      call flx_send(grid(3, :), mod(rank + 1, ranks), comm, ierror)
      call expect(ierror == FLX_ERR_ARGUMENT .and. index(flx_last_error(), 'not contiguous') > 0, 'a section in a group')
      call expect(index(flx_last_error(), ' [FLX-E125]') > 0, 'the code of an array')
      call flx_group_end(comm)
      call expect(scalar == mod(rank + ranks - 1, ranks), 'send and receive in a group')
   end if

   call flx_comm_split(comm, mod(rank, 2), -rank, other)
   call flx_comm_size(other, i)
   call expect(i == (ranks + mod(rank + 1, 2))/2, 'size of a part')
   call flx_comm_free(other)
   call flx_comm_create(MPI_COMM_WORLD%MPI_VAL, other)  ! an integer, as of mpif.h
   call flx_barrier(other)
   call flx_comm_free(other)
   call expect(.not. c_associated(other%handle), 'a freed communicator is null')
   call flx_comm_dup(comm, other)
   call flx_comm_free(other)

   ! One rank ends a communicator, and the others hear why.
   call flx_comm_dup(comm, other)
   if (rank == 0) call flx_comm_abort(other, 'the mesh has a hole')
   call flx_barrier(other, ierror)
   call expect(ierror /= FLX_SUCCESS .and. index(flx_last_error(), 'the mesh has a hole') > 0, 'an abort with a reason')
   call flx_comm_free(other)
   call flx_comm_dup(comm, other)
   call flx_comm_abort(other, ierror=ierror)
   call expect(ierror == FLX_SUCCESS, 'an abort without a reason')
   call flx_comm_free(other)

   ! Errors are the caller's where there is an ierror.
   call flx_allreduce(row(1:2), row, FLX_SUM, comm, ierror)
   call expect(ierror == FLX_ERR_ARGUMENT .and. index(flx_last_error(), 'sendbuf has 2 elements') > 0, 'sizes that differ')
   call flx_allreduce(bytes, shorts, FLX_SUM, comm, ierror)
   call expect(ierror == FLX_ERR_ARGUMENT .and. index(flx_last_error(), 'different types') > 0, 'kinds that differ')
   call flx_allreduce(flx_in_place, flags, FLX_SUM, comm, ierror)
   call expect(ierror == FLX_ERR_ARGUMENT, 'a sum of logicals')
   call flx_reduce_scatter(before, blocks, counts(:ranks), FLX_SUM, comm, ierror)
   call expect(ierror == FLX_ERR_ARGUMENT .and. index(flx_last_error(), 'those of all blocks') > 0 .or. ranks == 3, &
               'blocks that are not in sendbuf')
   call flx_gather(flx_in_place, gathered, mod(rank + 1, ranks), comm, ierror)
   call expect(ranks == 1 .or. index(flx_last_error(), 'on the root only') > 0, 'in place off the root')
   call flx_bcast(word, ranks, comm, ierror)
   call expect(ierror == FLX_ERR_ARGUMENT .and. index(flx_last_error(), 'root') > 0, 'a wrong root')

   call flx_comm_free(comm)
   call MPI_Allreduce(failures, all_failures, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
   call MPI_Finalize()
   if (all_failures /= 0) error stop 1
   if (rank == 0) print '(a)', 'right'

contains

   subroutine expect(holds, what)
      logical, intent(in) :: holds
      character(*), intent(in) :: what
      if (holds) return
      failures = failures + 1
      write (error_unit, '(a, i0, 2a)') 'rank ', rank, ': wrong: ', what
   end subroutine
end program
