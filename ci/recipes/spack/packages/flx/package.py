"""FLX for Spack. No release is published, so a version has no checksum: `spack dev-build flx@0.4.0` takes a clone."""

from spack.package import *


class Flx(CMakePackage, CudaPackage):
    """Collectives for programs started with mpirun, over shared memory and all network rails at once."""

    license("Apache-2.0")
    version("0.4.0")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("fortran", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    # Man pages and completions.
    depends_on("python@3.9:", type="build")
    depends_on("doxygen", type="build")

    depends_on("mpi")
    requires("^[virtuals=mpi] openmpi@4:", "^[virtuals=mpi] mpich@4:", policy="one_of")
    depends_on("ucx@1.13:")
    depends_on("hwloc@2:")
    depends_on("highway@1:")
    depends_on("libsodium")
    depends_on("fmt")
    depends_on("spdlog")
    depends_on("cli11")
    depends_on("nlohmann-json")
    depends_on("pugixml")
    depends_on("tomlplusplus")
    depends_on("ncurses")
    depends_on("zlib-api")

    generator("ninja")

    def cmake_args(self):
        return [
            self.define("FLX_TESTS", False),
            self.define("FLX_BENCHMARKS", False),
            self.define("FLX_WITH_MPI", self.spec["mpi"].name),
            self.define_from_variant("FLX_CUDA", "cuda"),
        ]
