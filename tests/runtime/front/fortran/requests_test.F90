!> Calls of module flx that do not block, and persistent ones: every collective against what must come out, all of them
!> under way at once and completed in any order; arrays that FLX would have to copy; requests that are wrong.
!> With an argument: an error without `ierror`, which ends the program.
program requests_test
   use, intrinsic :: iso_c_binding
   use, intrinsic :: iso_fortran_env
   use mpi_f08
   use flx
   implicit none

   integer, parameter :: every = 16
   integer :: rank, ranks, root, failures, all_failures, round, i
   type(flx_comm) :: comm
   type(flx_request) :: requests(every)
   logical :: stay

   ! Inputs and outputs, by collective.
   real(real64), asynchronous :: sums_in(3, 2), sums(3, 2)
   integer, allocatable, asynchronous :: blocks_in(:), blocks(:), pairs(:, :), uneven(:), part(:)
   real(real32), allocatable, asynchronous :: parts_in(:), parts(:)
   integer(int64), allocatable, asynchronous :: turned_in(:, :), turned(:, :), thinned(:, :)
   integer, asynchronous :: pair(2)
   integer(int16), asynchronous :: own, upto, below
   complex(real64), asynchronous :: factor, total
   integer, allocatable, asynchronous :: gathered(:, :), gathered_uneven(:)
   real(real64), allocatable, asynchronous :: dealt_in(:, :), dealt_uneven_in(:), dealt_uneven(:)
   real(real64), asynchronous :: dealt(2)
   character(7), asynchronous :: word

   interface
      integer(c_int) function atexit(handler) bind(c)
         import
         type(c_funptr), value :: handler
      end function
   end interface

   ! Every second one is a count: such an array may have holes, and go when a call returns.
   integer, allocatable :: counts(:), displs(:), ones(:)
   integer(int64), allocatable :: firsts(:)

   call MPI_Init()
   call MPI_Comm_rank(MPI_COMM_WORLD, rank)
   call MPI_Comm_size(MPI_COMM_WORLD, ranks)
   failures = 0
   root = ranks - 1
   call flx_comm_create(MPI_COMM_WORLD, comm)
   if (command_argument_count() > 0) then
      call expect(atexit(c_funloc(at_exit)) == 0, 'atexit')
      call flx_iallreduce(sums_in(1:2, 1), sums(:, 1), FLX_SUM, comm, requests(1))
      print '(a)', 'went on after an error'
   end if
   allocate (blocks_in(2*ranks), blocks(2*ranks), parts_in(ranks*(ranks + 1)/2), parts(ranks*(ranks + 1)/2))
   allocate (pairs(2, ranks), uneven(ranks*(ranks + 1)/2 + ranks), part(rank + 1), gathered(2, ranks))
   allocate (turned_in(2, ranks), turned(2, ranks), thinned(2, ranks), gathered_uneven(size(uneven)))
   allocate (dealt_in(2, ranks), dealt_uneven_in(size(uneven)), dealt_uneven(rank + 1))

   do round = 1, 4
      stay = mod(round, 2) == 0
      call fill(round)
      call make_numbers()
      call begin()
      deallocate (counts, displs, ones, firsts)
      call complete(round)
      call expect(.not. any([(is_set(requests(i)), i=1, every)]), 'a completed request is null')
      call check(round)
   end do
   do round = 1, 8
      if (mod(round, 4) == 1) then  ! three starts, in place and not
         stay = round > 4
         call make_numbers()
         call initialise()
         deallocate (counts, displs, ones, firsts)
      end if
      call fill(round)
      call flx_start_all(requests(1:8))
      do i = 9, every
         call flx_start(requests(i))
      end do
      call complete(round)
      call check(round)
      if (mod(round, 4) == 0) call free_all()
   end do
   call complete_by_each_function()
   call keep_in_place()
   call refuse()

   call flx_comm_free(comm)
   call MPI_Allreduce(failures, all_failures, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
   call MPI_Finalize()
   if (all_failures /= 0) error stop 1
   if (rank == 0) print '(a)', 'right'

contains

   subroutine at_exit() bind(c)
      write (error_unit, '(a)') 'handlers of exit ran beside threads'
   end subroutine

   subroutine expect(holds, what)
      logical, intent(in) :: holds
      character(*), intent(in) :: what
      if (holds) return
      failures = failures + 1
      write (error_unit, '(a, i0, 2a, i0, a, l1, 2a)') 'rank ', rank, ': wrong: ', what//' (round ', round, &
         ', in place ', stay, ') ', flx_last_error()
   end subroutine

   logical function is_set(request)
      type(flx_request), intent(in) :: request
      is_set = c_associated(request%handle)
   end function

   subroutine begin()
#define FORM(name) flx_i/**/name
#include "every_collective.inc"
#undef FORM
   end subroutine

   subroutine initialise()
#define FORM(name) flx_/**/name/**/_init
#include "every_collective.inc"
#undef FORM
   end subroutine

   !> Rank r has r + 1 elements, with a hole after each block.
   subroutine make_numbers()
      integer :: i
      allocate (counts(2*ranks), displs(ranks), ones(ranks), firsts(ranks))
      counts = -1
      counts(1::2) = [(i, i=1, ranks)]
      displs = [(i*(i - 1)/2 + i - 1, i=1, ranks)]
      ones = 1
      firsts = [(2*i, i=0, ranks - 1)]
   end subroutine

   pure integer function first(r)
      integer, intent(in) :: r
      first = r*(r + 1)/2 + r + 1
   end function

   subroutine fill(k)
      integer, intent(in) :: k
      integer :: i, j
      sums_in = rank + k
      blocks_in = [(10*i + rank + k, i=1, 2*ranks)]
      parts_in = [(real(i + rank + k, real32), i=1, size(parts_in))]
      pair = [rank + k, -rank]
      part = 100*rank + k
      do i = 1, ranks
         turned_in(:, i) = [(100_int64*rank + 10*(i - 1) + j + k, j=1, 2)]
         dealt_in(:, i) = [(real(10*i + j + k, real64), j=1, 2)]
      end do
      own = int(k*(rank + 1), int16)
      factor = (0, 1)*k
      dealt_uneven_in = [(real(i + k, real64), i=1, size(dealt_uneven_in))]
      word = merge('right ', 'wrong ', rank == root)//char(ichar('0') + k)
      sums = merge(sums_in, -1d0, stay)
      blocks = merge(blocks_in, -1, stay)
      parts = merge(parts_in, -1., stay)
      pairs = -1
      gathered = -1
      uneven = -1
      gathered_uneven = -1
      if (stay) then
         pairs(:, rank + 1) = pair
         gathered(:, rank + 1) = pair
         uneven(first(rank):first(rank) + rank) = part
         gathered_uneven(first(rank):first(rank) + rank) = part
      end if
      turned = merge(turned_in, -1_int64, stay)
      thinned = merge(turned_in, -1_int64, stay)
      upto = merge(own, -1_int16, stay)
      below = merge(own, -1_int16, stay)
      total = merge(factor, (-1d0, 0d0), stay)
      dealt = -1
      dealt_uneven = -1
   end subroutine

   subroutine check(k)
      integer, intent(in) :: k
      integer :: i, j, s, ranks_sum
      logical :: kept
      ranks_sum = ranks*(ranks - 1)/2
      kept = stay .and. rank == root
      call expect(all(sums == ranks_sum + ranks*k), 'allreduce')
      call expect(all(blocks(:2) == [(10*ranks*(2*rank + i) + ranks_sum + ranks*k, i=1, 2)]), 'reduce_scatter_block')
      call expect(all(parts(:rank + 1) == [(real(ranks*(rank*(rank + 1)/2 + i) + ranks_sum + ranks*k, real32), &
                                            i=1, rank + 1)]), 'reduce_scatter')
      call expect(all(pairs(1, :) == [(i + k, i=0, ranks - 1)]) .and. all(pairs(2, :) == [(-i, i=0, ranks - 1)]), &
                  'allgather')
      call expect(all([(all(uneven(first(i):first(i) + i) == 100*i + k) .and. uneven(first(i) + i + 1) == -1, &
                        i=0, ranks - 1)]), 'allgatherv')
      call expect(all([((turned(j, s + 1) == 100*s + 10*rank + j + k, j=1, 2), s=0, ranks - 1)]), 'alltoall')
      call expect(all([(thinned(1, s + 1) == 100*s + 10*rank + 1 + k, s=0, ranks - 1)]), 'alltoallv')
      call expect(all(thinned(2, :) == merge(turned_in(2, :), -1_int64, stay)), 'what lies between blocks of alltoallv')
      call expect(upto == k*(rank + 1), 'scan')
      call expect(below == merge(merge(int(own), -1, stay), k*rank*(rank + 1)/2, rank == 0), 'exscan')
      if (rank == root) then
         call expect(abs(total - ((0, 1)*k)**ranks) < 1d-9, 'reduce')
         call expect(all(gathered(1, :) == [(i + k, i=0, ranks - 1)]) .and. &
                     all(gathered(2, :) == [(-i, i=0, ranks - 1)]), 'gather')
         call expect(all([(all(gathered_uneven(first(i):first(i) + i) == 100*i + k) .and. &
                           gathered_uneven(first(i) + i + 1) == -1, i=0, ranks - 1)]), 'gatherv')
      end if
      call expect(all(dealt == merge([-1d0, -1d0], [(real(10*(rank + 1) + i + k, real64), i=1, 2)], kept)), 'scatter')
      call expect(all([(dealt_uneven(i) == merge(-1, first(rank) + i - 1 + k, kept), i=1, rank + 1)]), 'scatterv')
      call expect(word == 'right '//char(ichar('0') + k), 'bcast')
   end subroutine

   !> In an order of its own on each rank and in each round.
   subroutine complete(k)
      integer, intent(in) :: k
      integer :: i, at
      do i = 1, every
         at = 1 + mod(i*merge(5, 11, mod(k, 2) == 0) + 3*rank + k, every)
         call flx_wait(requests(at))
      end do
   end subroutine

   subroutine free_all()
      integer :: i
      call expect(all([(is_set(requests(i)), i=1, every)]), 'persistent requests stay')
      do i = 1, every
         call flx_request_free(requests(i))
      end do
      call expect(.not. any([(is_set(requests(i)), i=1, every)]), 'freed requests are null')
   end subroutine

   !> Test and wait, for one, any and all of them, which may be a section of an array.
   subroutine complete_by_each_function()
      integer, parameter :: many = 6
      type(flx_request) :: some(2*many), single
      real(real64), asynchronous :: values(1000, many), value
      integer :: i, index, completed, pass, ierror
      logical :: done, seen(many)
      do pass = 1, 4
         some = flx_request_null
         seen = .false.
         do i = 1, many
            values(:, i) = rank + i
            call flx_iallreduce(flx_in_place, values(:, i), FLX_SUM, comm, some(2*i))
         end do
         completed = 0
         select case (pass)
         case (1)
            do
               call flx_wait_any(some(2::2), index)
               if (index == 0) exit
               call expect(.not. seen(index) .and. all(values(:, index) == ranks*(ranks - 1)/2 + ranks*index), &
                           'wait_any')
               seen(index) = .true.
               completed = completed + 1
            end do
            call expect(completed == many, 'wait_any: all of them')
         case (2)
            do while (completed < many)
               call flx_test_any(some(2::2), index, done)
               if (.not. done) cycle
               call expect(index > 0, 'test_any: an index')
               if (index == 0) exit
               call expect(.not. seen(index) .and. all(values(:, index) == ranks*(ranks - 1)/2 + ranks*index), &
                           'test_any')
               seen(index) = .true.
               completed = completed + 1
            end do
            call flx_test_any(some, index, done)
            call expect(done .and. index == 0, 'test_any where none is active')
         case (3)
            done = .false.
            do while (.not. done)
               call flx_test_all(some(2::2), done)
               call expect(all([(is_set(some(2*i)), i=1, many)] .neqv. done), 'test_all: all of them, or none')
            end do
         case (4)
            call flx_wait_all(some(2::2))
         end select
         call expect(.not. any([(is_set(some(i)), i=1, 2*many)]), 'completed requests of a list')
         call expect(all([(all(values(:, i) == ranks*(ranks - 1)/2 + ranks*i), i=1, many)]), 'values of a list')
      end do
      value = 1
      call flx_iallreduce(flx_in_place, value, FLX_SUM, comm, single)
      done = .false.
      do while (.not. done)
         call flx_test(single, done, ierror)
         call expect(ierror == FLX_SUCCESS, 'test')
      end do
      call expect(value == ranks .and. .not. is_set(single), 'test: the value')
      call flx_test(single, done)
      call flx_wait(single)
      call expect(done, 'a null request is done')
      ! Freed while it is under way: it goes on.
      call flx_iallreduce(flx_in_place, value, FLX_SUM, comm, single)
      call flx_request_free(single)
      call expect(.not. is_set(single), 'a freed request is null')
      call flx_barrier(comm)
   end subroutine

   !> Local arrays whose address no other procedure is known to have: the compiler must neither keep what it knows of
   !> them in registers nor move what is done with them over the waits.
   subroutine keep_in_place()
      integer :: sent(4), got(4), i
      type(flx_request) :: request
      sent = rank
      got = -1
      call flx_iallreduce(sent, got, FLX_SUM, comm, request)
      call flx_wait(request)
      call expect(got(1) == ranks*(ranks - 1)/2, 'a local array after a wait')
      got = -2
      call flx_allreduce_init(sent, got, FLX_SUM, comm, request)
      do i = 1, 3
         sent = i
         got = -3
         call flx_start(request)
         call flx_wait(request)
         call expect(got(4) == i*ranks, 'local arrays of a persistent call')
      end do
      call flx_request_free(request)
      sent = rank
      got = -4
      call flx_group_begin(comm)
      call flx_allreduce(sent, got, FLX_SUM, comm)
      call flx_group_end(comm)
      call expect(got(2) == ranks*(ranks - 1)/2, 'a local array after a group')
   end subroutine

   subroutine refuse()
      type(flx_request) :: request
      integer, asynchronous :: rows(4, 4), row(4), all_rows(4*ranks)
      integer :: ierror
      logical :: done
      rows = 1
      row = 1
      all_rows = 1
      call flx_iallreduce(rows(1, :), row, FLX_SUM, comm, request, ierror)
      call refused(ierror, request, &
                   'sendbuf is not contiguous; in a call that returns before it has ended arrays must be')
      call flx_iallreduce(row, rows(1, :), FLX_SUM, comm, request, ierror)
      call refused(ierror, request, 'recvbuf is not contiguous')
      call flx_bcast_init(rows(:3, :), 0, comm, request, ierror)
      call refused(ierror, request, 'buf is not contiguous')
      call flx_igather(rows(1, :), all_rows, root, comm, request, ierror)
      call refused(ierror, request, 'sendbuf is not contiguous')
      call flx_scatter_init(all_rows, rows(1, :), root, comm, request, ierror)
      call refused(ierror, request, 'recvbuf is not contiguous')
      call flx_iallreduce(row(:3), row, FLX_SUM, comm, request, ierror)
      call refused(ierror, request, 'sendbuf has 3 elements; as many as in recvbuf: 4')
      call flx_iallgather(row, all_rows(:4*ranks - 1), comm, request, ierror)
      call refused(ierror, request, 'those of sendbuf from each rank')
      call flx_iallreduce(row, sums, FLX_SUM, comm, request, ierror)
      call refused(ierror, request, 'different types or kinds')
      call flx_allreduce_init(flx_in_place, word, FLX_SUM, comm, request, ierror)
      call refused(ierror, request, 'of a type that this reduction does not take')
      call flx_ireduce(row, row, FLX_SUM, ranks, comm, request, ierror)
      call refused(ierror, request, 'root')
      if (ranks > 1) then
         call flx_igather(flx_in_place, all_rows, mod(rank + 1, ranks), comm, request, ierror)
         call refused(ierror, request, 'flx_in_place may stand for sendbuf on the root only')
         call flx_iscatter(all_rows, flx_in_place, mod(rank + 1, ranks), comm, request, ierror)
         call refused(ierror, request, 'flx_in_place may stand for recvbuf on the root only')
      end if
      request = flx_request_null
      call flx_start(request, ierror)
      call refused(ierror, request, 'request')
      ! Sections of one column lie in one piece. What is not persistent cannot be started, nor what is active.
      call flx_iallreduce(rows(:, 2), row, FLX_SUM, comm, request)
      call flx_start(request, ierror)
      call expect(ierror == FLX_ERR_ARGUMENT, 'a request that is not persistent is not started')
      call flx_wait(request)
      call expect(all(row == ranks), 'a section in one piece')
      call flx_barrier_init(comm, request)
      call flx_test(request, done)
      call expect(done, 'an inactive request is done')
      call flx_start(request)
      call flx_start(request, ierror)
      call expect(ierror == FLX_ERR_ARGUMENT .and. index(flx_last_error(), 'is active') > 0, &
                  'a request is started twice')
      call flx_wait(request)
      call flx_request_free(request)
      call flx_request_free(request)
   end subroutine

   subroutine refused(ierror, request, why)
      integer, intent(in) :: ierror
      type(flx_request), intent(in) :: request
      character(*), intent(in) :: why
      call expect(ierror == FLX_ERR_ARGUMENT, 'not refused, or not as an argument: '//why)
      call expect(index(flx_last_error(), why) > 0, 'the sentence should have: '//why)
      call expect(.not. is_set(request), 'a refused call leaves no request: '//why)
   end subroutine
end program
