"""Poisson's equation on a square of POINTS times POINTS, solved by PETSc's conjugate gradients (Debian's
python3-petsc4py-real). Edges go to the neighbours by MPI_Ineighbor_alltoallv, which PETSc has besides its own messages.

    petsc_cg.py POINTS

Prints how many steps it took, and how wrong the worst point is.
"""

import glob
import sys

sys.path += glob.glob("/usr/lib/petscdir/petsc*/*-real/lib/python3/dist-packages")
import petsc4py

petsc4py.init(["petsc_cg.py", "-sf_type", "neighbor"])
from petsc4py import PETSc

NEIGHBOURS = ((-1, 0), (1, 0), (0, -1), (0, 1))


def laplacian(grid, points):
    matrix = grid.createMatrix()
    row, column = PETSc.Mat.Stencil(), PETSc.Mat.Stencil()
    (first_i, last_i), (first_j, last_j) = grid.getRanges()
    for j in range(first_j, last_j):
        for i in range(first_i, last_i):
            row.index = (i, j)
            matrix.setValueStencil(row, row, 4.0)
            for di, dj in NEIGHBOURS:
                if 0 <= i + di < points and 0 <= j + dj < points:
                    column.index = (i + di, j + dj)
                    matrix.setValueStencil(row, column, -1.0)
    matrix.assemble()
    return matrix


def main():
    points = int(sys.argv[1])
    grid = PETSc.DMDA().create([points, points], stencil_width=1)
    matrix = laplacian(grid, points)
    found, given = grid.createGlobalVec(), grid.createGlobalVec()
    found.set(1.0)
    matrix.mult(found, given)
    found.set(0.0)
    solver = PETSc.KSP().create()
    solver.setOperators(matrix)
    solver.setType("cg")
    solver.getPC().setType("jacobi")
    solver.setTolerances(rtol=1e-8, max_it=100 * points)
    solver.solve(given, found)
    found.shift(-1.0)
    wrong = found.norm(PETSc.NormType.INFINITY)
    PETSc.Sys.Print(f"{solver.getIterationNumber()} steps, wrong by {wrong:.6e}")
    return 0 if wrong < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
