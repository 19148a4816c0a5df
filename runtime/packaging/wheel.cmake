# `cmake --build BUILD --target wheel` makes BUILD/wheel/flx-VERSION-….whl: the Python package with libflx in it, for
# pip and this version of Python, on machines that have what libflx needs (UCX, hwloc and others). With PyTorch's
# backend, where that was built. Debian's python3-wheel packs it.
if(NOT TARGET flx_python)
  return()
endif()
set(flx_wheel ${PROJECT_BINARY_DIR}/wheel/content)
install(TARGETS flx flx_with_mpi LIBRARY DESTINATION flx COMPONENT wheel EXCLUDE_FROM_ALL NAMELINK_SKIP)
flx_install_python(. wheel wheel EXCLUDE_FROM_ALL)
set(flx_wheel_info ${PROJECT_BINARY_DIR}/wheel/info)
set(flx_tag cp${Python_VERSION_MAJOR}${Python_VERSION_MINOR})
file(WRITE ${flx_wheel_info}/WHEEL
  "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: ${flx_tag}-${flx_tag}-linux_${CMAKE_SYSTEM_PROCESSOR}\n")
file(WRITE ${flx_wheel_info}/METADATA "Metadata-Version: 2.1\nName: flx\nVersion: ${PROJECT_VERSION}\n"
  "Summary: Collectives over all links of a machine\nLicense: Apache-2.0\n")
set(flx_wheel_parts flx flx_with_mpi flx_python)
file(REMOVE ${flx_wheel_info}/entry_points.txt)  # of an earlier build with PyTorch
if(TARGET flx_torch)
  list(APPEND flx_wheel_parts flx_torch)
  configure_file(runtime/front/python/dist-info/entry_points.txt ${flx_wheel_info}/entry_points.txt COPYONLY)
endif()
install(DIRECTORY ${flx_wheel_info}/ DESTINATION flx-${PROJECT_VERSION}.dist-info COMPONENT wheel EXCLUDE_FROM_ALL)
add_custom_target(wheel
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${flx_wheel}
  COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --component wheel --strip --prefix ${flx_wheel}
  COMMAND ${Python_EXECUTABLE} -m wheel pack --dest-dir ${PROJECT_BINARY_DIR}/wheel ${flx_wheel}
  DEPENDS ${flx_wheel_parts} VERBATIM)
