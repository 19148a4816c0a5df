!> Conjugate gradients on the five-point Laplacian of a square, n by n points, split by columns over the ranks. Dot
!> products go through FLX, halos through MPI, side by side on the same ranks; while either is under way, what does not
!> need it is computed. The right-hand side is made from a known solution, so that the program can say how wrong its own
!> is.
!>
!>   mpirun -n 4 cg_solver [points in each direction [relative residual]]
program cg_solver
   use, intrinsic :: iso_fortran_env, only: real64, error_unit
   use mpi_f08
   use flx
   implicit none

   integer, parameter :: rk = real64
   type(flx_comm) :: comm
   integer :: rank, ranks, n, first, columns, iterations
   real(rk) :: tolerance, error, began, halo_s, dot_s
   ! With a column of the neighbour on either side, and zeros beyond the square.
   real(rk), allocatable :: x(:, :), p(:, :), known(:, :)
   real(rk), allocatable :: r(:, :), ap(:, :)

   call MPI_Init()
   call MPI_Comm_rank(MPI_COMM_WORLD, rank)
   call MPI_Comm_size(MPI_COMM_WORLD, ranks)
   call read_arguments()
   call flx_comm_create(MPI_COMM_WORLD, comm)

   ! Columns first + 1 to first + columns are this rank's; counts differ by one at most.
   columns = n / ranks + merge(1, 0, rank < mod(n, ranks))
   first = rank * (n / ranks) + min(rank, mod(n, ranks))
   allocate (x(0:n + 1, 0:columns + 1), p(0:n + 1, 0:columns + 1), known(0:n + 1, 0:columns + 1), source=0.0_rk)
   allocate (r(n, columns), ap(n, columns))
   halo_s = 0
   dot_s = 0

   call make_problem()
   began = MPI_Wtime()
   call solve()
   began = MPI_Wtime() - began

   error = maxval(abs(x(1:n, 1:columns) - known(1:n, 1:columns)))
   call flx_allreduce(flx_in_place, error, FLX_MAX, comm)
   if (rank == 0) then
      print '(a, i0, a, i0, a, i0, a)', 'n = ', n, ', ', ranks, ' ranks: ', iterations, ' iterations'
      print '(a, es9.2)', 'largest error against the known solution ', error
      print '(3(a, f8.3), a)', 'time ', began, ' s, of it dot products (FLX) ', dot_s, ' s, halos (MPI) ', halo_s, ' s'
   end if
   call flx_comm_free(comm)
   call MPI_Finalize()
   ! The condition number of the matrix stands between residual and error.
   if (error > 10 * tolerance * n**2) error stop 1

contains

   subroutine read_arguments()
      character(32) :: argument
      integer :: status
      n = 200
      tolerance = 1e-9_rk
      status = 0
      if (command_argument_count() >= 1) then
         call get_command_argument(1, argument)
         read (argument, *, iostat=status) n
      end if
      if (command_argument_count() >= 2 .and. status == 0) then
         call get_command_argument(2, argument)
         read (argument, *, iostat=status) tolerance
      end if
      if (status == 0 .and. n >= ranks .and. tolerance > 0) return
      if (rank == 0) write (error_unit, '(a)') &
         'cg_solver [POINTS [TOLERANCE]]: at least as many points as ranks, and a tolerance above 0'
      call MPI_Finalize()
      error stop 2
   end subroutine

   !> r = A·known; what is known has no symmetry that would help.
   subroutine make_problem()
      integer :: i, j
      real(rk) :: u, v
      do j = 1, columns
         v = real(first + j, rk) / (n + 1)
         do i = 1, n
            u = real(i, rk) / (n + 1)
            known(i, j) = exp(u) * u * (1 - u) * sin(7 * v + u) * v
         end do
      end do
      call apply(known, r)
   end subroutine

   !> Conjugate gradients from x = 0 (Hestenes and Stiefel 1952): r holds the right-hand side, then the residual.
   subroutine solve()
      real(rk) :: rr_before, rr_end, alpha
      real(rk), asynchronous :: rr
      type(flx_request) :: request
      rr = dot(r, r)
      rr_end = rr * tolerance**2
      p(1:n, 1:columns) = r
      iterations = 0
      do while (rr > rr_end .and. iterations < 100 * n)
         call apply(p, ap)
         alpha = rr / dot(p(1:n, 1:columns), ap)
         r = r - alpha * ap
         rr_before = rr
         call begin_dot(r, r, rr, request)
         x(1:n, 1:columns) = x(1:n, 1:columns) + alpha * p(1:n, 1:columns)
         call end_dot(request)
         p(1:n, 1:columns) = r + rr / rr_before * p(1:n, 1:columns)
         iterations = iterations + 1
      end do
   end subroutine

   !> The sum over all ranks is the same on all of them to the last bit, so they all stop at the same iteration.
   function dot(a, b) result(total)
      real(rk), intent(in) :: a(:, :), b(:, :)
      real(rk) :: total, start
      total = sum(a * b)
      start = MPI_Wtime()
      call flx_allreduce(flx_in_place, total, FLX_SUM, comm)
      dot_s = dot_s + MPI_Wtime() - start
   end function

   !> The same while something else is done: `total` is the product after end_dot.
   subroutine begin_dot(a, b, total, request)
      real(rk), intent(in) :: a(:, :), b(:, :)
      real(rk), intent(out), asynchronous :: total
      type(flx_request), intent(out) :: request
      real(rk) :: start
      total = sum(a * b)
      start = MPI_Wtime()
      call flx_iallreduce(flx_in_place, total, FLX_SUM, comm, request)
      dot_s = dot_s + MPI_Wtime() - start
   end subroutine

   subroutine end_dot(request)
      type(flx_request), intent(inout) :: request
      real(rk) :: start
      start = MPI_Wtime()
      call flx_wait(request)
      dot_s = dot_s + MPI_Wtime() - start
   end subroutine

   !> image = A·field. Inner columns are worked on while the halos are under way.
   subroutine apply(field, image)
      real(rk), intent(inout), asynchronous :: field(0:, 0:)
      real(rk), intent(out) :: image(:, :)
      type(MPI_Request) :: requests(4)
      integer :: left, right, j
      real(rk) :: start
      left = merge(rank - 1, MPI_PROC_NULL, rank > 0)
      right = merge(rank + 1, MPI_PROC_NULL, rank < ranks - 1)
      start = MPI_Wtime()
      call MPI_Irecv(field(:, 0), n + 2, MPI_DOUBLE_PRECISION, left, 0, MPI_COMM_WORLD, requests(1))
      call MPI_Irecv(field(:, columns + 1), n + 2, MPI_DOUBLE_PRECISION, right, 1, MPI_COMM_WORLD, requests(2))
      call MPI_Isend(field(:, 1), n + 2, MPI_DOUBLE_PRECISION, left, 1, MPI_COMM_WORLD, requests(3))
      call MPI_Isend(field(:, columns), n + 2, MPI_DOUBLE_PRECISION, right, 0, MPI_COMM_WORLD, requests(4))
      halo_s = halo_s + MPI_Wtime() - start
      do j = 2, columns - 1
         call apply_column(field, image, j)
      end do
      start = MPI_Wtime()
      call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE)
      halo_s = halo_s + MPI_Wtime() - start
      call apply_column(field, image, 1)
      if (columns > 1) call apply_column(field, image, columns)
   end subroutine

   subroutine apply_column(field, image, j)
      real(rk), intent(in) :: field(0:, 0:)
      real(rk), intent(inout) :: image(:, :)
      integer, intent(in) :: j
      image(:, j) = 4 * field(1:n, j) - field(0:n - 1, j) - field(2:n + 1, j) - field(1:n, j - 1) - field(1:n, j + 1)
   end subroutine
end program cg_solver
