# `cpack` makes four Debian packages of a build, a fifth where the Python package was built, and a sixth where its part
# for PyTorch was. Whatever the prefix that it was configured for, they have the folders that Debian has, which
# `cmake --install` leaves out. What Debian wants besides, debian.cmake adds.
set(flx_debian ${PROJECT_BINARY_DIR}/debian)
function(flx_install_for_debian)
  set(CMAKE_INSTALL_PREFIX /usr)
  set(CMAKE_INSTALL_LIBDIR lib/${CMAKE_LIBRARY_ARCHITECTURE})
  set(CMAKE_INSTALL_BINDIR bin)
  set(CMAKE_INSTALL_INCLUDEDIR include)
  set(CMAKE_INSTALL_DATADIR share)
  set(CMAKE_INSTALL_MANDIR share/man)
  set(CMAKE_INSTALL_DOCDIR share/doc/flx)
  set(FLX_PYTHON_FOLDER lib/python3/dist-packages)
  flx_install(debian- ${flx_debian} vendor-completions EXCLUDE_FROM_ALL)
endfunction()
flx_install_for_debian()

set(flx_packager "FLX <flx@flx.invalid>")  # an address that leads nowhere
if(DEFINED ENV{DEBEMAIL})
  set(flx_packager "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
set(FLX_PACKAGER "${flx_packager}" CACHE STRING "Who makes Debian packages: NAME <ADDRESS>")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME flx)
# CPack would put any other text before each package's own.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${CMAKE_PROJECT_NAME} built using CMake")
set(CPACK_PACKAGE_CONTACT "${FLX_PACKAGER}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
# Less than a revision of Debian's own would be.
set(CPACK_DEBIAN_PACKAGE_RELEASE 0flx1)
set(CPACK_DEBIAN_PACKAGE_SOURCE flx)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# Where dpkg-shlibdeps finds libflx.so; that its package must be of the same version, DEPENDS says below.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/lib)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/runtime/packaging/debian.cmake)
set(flx_version ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})

set(flx_what "FLX carries out the collectives of MPI programs over shared memory and all
network rails together, each with the part of the data that suits its speed.")
# flx_package(COMPONENT NAME SECTION WHAT TEXT)
macro(flx_package component name section what text)
  list(APPEND CPACK_COMPONENTS_ALL debian-${component})
  set(flx_of CPACK_DEBIAN_DEBIAN-${component})
  string(TOUPPER ${flx_of} flx_of)
  set(${flx_of}_PACKAGE_NAME ${name})
  set(${flx_of}_PACKAGE_SECTION ${section})
  set(${flx_of}_DESCRIPTION "collectives over every link at once: ${what}\n${flx_what}\n.\n${text}")
endmacro()

flx_package(library libflx0 libs libraries
  "This package has the library that programs are linked with, its interface for
Fortran, and the libraries that flx-run sets in front of MPI and NCCL.")
set(${flx_of}_PACKAGE_SHLIBDEPS ON)
# A package that is built with these libraries depends on the interface that it was built with.
if(PROJECT_VERSION_MAJOR EQUAL 0)
  math(EXPR flx_next "${PROJECT_VERSION_MINOR} + 1")
  set(flx_next 0.${flx_next})
else()
  math(EXPR flx_next "${PROJECT_VERSION_MAJOR} + 1")
endif()
set(flx_shlibs "")
foreach(library ${FLX_LIBRARIES})
  string(APPEND flx_shlibs
    "lib${library} ${FLX_SOVERSION} libflx0 (>= ${PROJECT_VERSION}), libflx0 (<< ${flx_next}~)\n")
endforeach()
file(CONFIGURE OUTPUT ${flx_debian}/shlibs CONTENT "${flx_shlibs}")
file(CONFIGURE OUTPUT ${flx_debian}/triggers CONTENT "activate-noawait ldconfig\n")
# CPack writes no script that calls ldconfig, which the trigger does, where it is told of scripts; these do not exist.
set(${flx_of}_PACKAGE_CONTROL_EXTRA ${flx_debian}/shlibs ${flx_debian}/triggers
  ${flx_debian}/no/postinst ${flx_debian}/no/postrm)

flx_package(development libflx-dev libdevel "for compiling programs"
  "This package has the headers for C and C++, the module for Fortran, what
pkg-config and CMake need to find FLX, and a man page of each function.")
# flx.h includes mpi.h.
set(flx_mpi_package libopenmpi-dev)
set(flx_mpi_programs openmpi-bin)
if(FLX_WITH_MPI STREQUAL "mpich")
  set(flx_mpi_package libmpich-dev)
  set(flx_mpi_programs mpich)
endif()
set(${flx_of}_PACKAGE_DEPENDS "libflx0 (= ${flx_version}), ${flx_mpi_package}")
set(${flx_of}_PACKAGE_SUGGESTS "flx-doc, pkg-config")

flx_package(tools flx-tools utils programs
  "This package has flx-run, which starts programs that know nothing of FLX,
flx_info and flx_top, which show what FLX knows and does, flx_trace and
flx_report, which show what it has done, flx_perf, flx_lab and flx_tune, which
measure, flx_schedule, which exports and checks schedules, flx_simulate, which
says what FLX would choose on other machines, and flx_trainer, an example.")
set(${flx_of}_PACKAGE_SHLIBDEPS ON)
set(${flx_of}_PACKAGE_DEPENDS "libflx0 (= ${flx_version})")
set(${flx_of}_PACKAGE_RECOMMENDS ${flx_mpi_programs})
set(${flx_of}_PACKAGE_SUGGESTS "dataset-fashion-mnist, flx-doc, gnuplot-nox")

if(TARGET flx_python)
  flx_package(python python3-flx python "Python"
    "This package has the Python package flx: collectives over arrays of numpy,
tensors of PyTorch and other memory, blocking and for coroutines, with mpi4py
or without MPI.")
  set(${flx_of}_PACKAGE_SHLIBDEPS ON)
  math(EXPR flx_next_python "${Python_VERSION_MINOR} + 1")
  set(${flx_of}_PACKAGE_DEPENDS
    "libflx0 (= ${flx_version}), python3 (>= 3.${Python_VERSION_MINOR}~), python3 (<< 3.${flx_next_python})")
  set(${flx_of}_PACKAGE_RECOMMENDS "python3-numpy")
  set(${flx_of}_PACKAGE_SUGGESTS "flx-doc, python3-mpi4py, python3-torch")
endif()
if(TARGET flx_torch)  # a package of its own, as it needs the libraries of PyTorch, which are large
  flx_package(torch python3-flx-torch python "PyTorch"
    "This package has the backend flx of torch.distributed, for tensors in host
memory.")
  set(${flx_of}_PACKAGE_SHLIBDEPS ON)
  set(${flx_of}_PACKAGE_DEPENDS "python3-flx (= ${flx_version}), python3-torch")
  set(${flx_of}_PACKAGE_SUGGESTS "flx-doc")
endif()

flx_package(documents flx-doc doc "documents and examples"
  "This package has a tutorial, a glossary, what FLX's parts are and do, what was
measured, and examples in C, Fortran and Python.")
set(${flx_of}_PACKAGE_ARCHITECTURE all)
include(CPack)
