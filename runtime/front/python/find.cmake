# What the Python package flx is built with, for the Python of the system: a package of Debian is for that, and so are
# its numpy and mpi4py. For another Python, -D FLX_PYTHON_PROGRAM=… says which.
find_program(FLX_PYTHON_PROGRAM NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_path(FLX_PYBIND11 pybind11/pybind11.h)
if(FLX_PYTHON_PROGRAM AND FLX_PYBIND11)
  set(Python_EXECUTABLE ${FLX_PYTHON_PROGRAM})
  find_package(Python COMPONENTS Interpreter Development.Module QUIET)
endif()
if(NOT Python_Development.Module_FOUND)
  message(STATUS "The Python package is not built: it needs pybind11-dev and python3-dev (ci/setup --python)")
endif()
