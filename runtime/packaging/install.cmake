# What `cmake --install` puts where: library, header, programs, CMake package, pkg-config file, documents.
install(TARGETS flx EXPORT flx LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES runtime/include/flx.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
foreach(program flx_info flx_perf flx_trainer)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
# For programs that know nothing of FLX.
install(TARGETS flx_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(PROGRAMS ${PROJECT_BINARY_DIR}/bin/flx-run DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(flx_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/flx)
install(EXPORT flx NAMESPACE flx:: FILE flxTargets.cmake DESTINATION ${flx_cmake_dir})
configure_package_config_file(runtime/packaging/flxConfig.cmake.in ${PROJECT_BINARY_DIR}/flxConfig.cmake
  INSTALL_DESTINATION ${flx_cmake_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/flxConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/flxConfig.cmake ${PROJECT_BINARY_DIR}/flxConfigVersion.cmake
  DESTINATION ${flx_cmake_dir})

# pkg-config: MPI has no one name there, so its flags are written out as they were found.
set(flx_pc_dir ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH FLX_PC_PREFIX ${flx_pc_dir} ${CMAKE_INSTALL_PREFIX})
list(TRANSFORM MPI_C_INCLUDE_DIRS PREPEND -I OUTPUT_VARIABLE FLX_PC_MPI_CFLAGS)
list(JOIN FLX_PC_MPI_CFLAGS " " FLX_PC_MPI_CFLAGS)
list(JOIN MPI_C_LIBRARIES " " FLX_PC_MPI_LIBS)
configure_file(runtime/packaging/flx.pc.in ${PROJECT_BINARY_DIR}/flx.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/flx.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
