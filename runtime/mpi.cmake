# Finds the MPI that FLX_WITH_MPI names, and says how its ranks are started: FLX_LAUNCH, before `-n N PROGRAM`,
# FLX_LAUNCH_UNBOUND, the option that binds ranks to no cores, and FLX_LAUNCH_SURVIVORS, with which a rank that dies
# does not end the others.
set(FLX_WITH_MPI openmpi CACHE STRING "The MPI to build with: openmpi or mpich")
set_property(CACHE FLX_WITH_MPI PROPERTY STRINGS openmpi mpich)
if(FLX_WITH_MPI STREQUAL "openmpi")
  set(flx_mpi_name "Open MPI")
  set(flx_mpi_macro OPEN_MPI)
elseif(FLX_WITH_MPI STREQUAL "mpich")
  set(flx_mpi_name MPICH)
  set(flx_mpi_macro MPICH_VERSION)
else()
  message(FATAL_ERROR "FLX_WITH_MPI is \"${FLX_WITH_MPI}\"; it may be openmpi or mpich")
endif()

# Where several MPIs are installed, Debian has each one's programs under names of its own.
find_program(MPI_C_COMPILER NAMES mpicc.${FLX_WITH_MPI} mpicc)
# The others are taken from beside it: another installation's would be another MPI.
get_filename_component(flx_mpi_folder "${MPI_C_COMPILER}" DIRECTORY)
find_program(MPI_Fortran_COMPILER NAMES mpifort.${FLX_WITH_MPI} mpifort NAMES_PER_DIR HINTS "${flx_mpi_folder}")
find_program(MPIEXEC_EXECUTABLE NAMES mpiexec.${FLX_WITH_MPI} mpiexec mpirun NAMES_PER_DIR HINTS "${flx_mpi_folder}")
find_package(MPI COMPONENTS C)
# For `use flx` and programs in Fortran.
include(CheckLanguage)
check_language(Fortran)
if(CMAKE_Fortran_COMPILER)
  enable_language(Fortran)
  find_package(MPI COMPONENTS C OPTIONAL_COMPONENTS Fortran)
  if(NOT MPI_Fortran_FOUND)
    message(STATUS "Fortran: off, as the MPI of ${MPI_C_COMPILER} has none")
    set(CMAKE_Fortran_COMPILER "")
  endif()
endif()

set(flx_mpi_wrong "")
if(NOT MPI_C_FOUND)
  set(flx_mpi_wrong "it was not found")
elseif(NOT FLX_MPI_CHECKED STREQUAL "${FLX_WITH_MPI} ${MPI_C_COMPILER} ${MPI_C_HEADER_DIR}")
  file(WRITE ${PROJECT_BINARY_DIR}/CMakeFiles/which_mpi.c
    "#include <mpi.h>\n#ifndef ${flx_mpi_macro}\n#error another MPI\n#endif\n"
    "int main(void) { return MPI_Init(0, 0); }\n")
  try_compile(flx_mpi_right ${PROJECT_BINARY_DIR}/CMakeFiles/which_mpi
    SOURCES ${PROJECT_BINARY_DIR}/CMakeFiles/which_mpi.c LINK_LIBRARIES MPI::MPI_C)
  if(flx_mpi_right)
    set(FLX_MPI_CHECKED "${FLX_WITH_MPI} ${MPI_C_COMPILER} ${MPI_C_HEADER_DIR}" CACHE INTERNAL "")
  else()
    set(flx_mpi_wrong "what was found is something else")
  endif()
endif()
if(flx_mpi_wrong)
  message(FATAL_ERROR "FLX_WITH_MPI is ${FLX_WITH_MPI}, which is ${flx_mpi_name}, but ${flx_mpi_wrong} "
    "(MPI_C_COMPILER is ${MPI_C_COMPILER}). Its packages are named by ci/setup --list; a build folder that was "
    "configured for another MPI must be emptied.")
endif()
message(STATUS "MPI: ${flx_mpi_name}, ${MPI_C_COMPILER}")

set(FLX_LAUNCH ${MPIEXEC_EXECUTABLE})
if(FLX_WITH_MPI STREQUAL "openmpi")
  list(APPEND FLX_LAUNCH --allow-run-as-root --oversubscribe)
  set(FLX_LAUNCH_UNBOUND "--bind-to none")
  set(FLX_LAUNCH_SURVIVORS --enable-recovery)
else()
  set(FLX_LAUNCH_SURVIVORS -disable-auto-cleanup)
endif()
