# What goes where: for `cmake --install`, and for the packages of packages.cmake.
set(FLX_PROGRAMS "")
foreach(program flx_info flx_lab flx_perf flx_report flx_schedule flx_simulate flx_top flx_trace flx_trainer flx_tune)
  if(TARGET ${program})
    list(APPEND FLX_PROGRAMS ${program})
  endif()
endforeach()
set(FLX_LIBRARIES flx)
if(TARGET flx_fortran)
  list(APPEND FLX_LIBRARIES flx_fortran)
endif()
include(runtime/packaging/manual.cmake)

# MPI has no one name in pkg-config, so its flags are written out as they were found.
foreach(language C Fortran)
  list(TRANSFORM MPI_${language}_INCLUDE_DIRS PREPEND -I OUTPUT_VARIABLE FLX_PC_MPI_${language}_CFLAGS)
  list(JOIN FLX_PC_MPI_${language}_CFLAGS " " FLX_PC_MPI_${language}_CFLAGS)
  list(JOIN MPI_${language}_LIBRARIES " " FLX_PC_MPI_${language}_LIBS)
endforeach()

# flx_install_python(FOLDER PYTHON TORCH [EXCLUDE_FROM_ALL]): the package flx into FOLDER, as the component PYTHON, and
# what it has for PyTorch as TORCH, each where it is built.
function(flx_install_python folder python torch)
  set(all ${ARGN})
  if(TARGET flx_python)
    install(TARGETS flx_python LIBRARY DESTINATION ${folder}/flx COMPONENT ${python} ${all})
    install(DIRECTORY runtime/front/python/flx DESTINATION ${folder} COMPONENT ${python} ${all}
      PATTERN __pycache__ EXCLUDE PATTERN torch.py EXCLUDE)
  endif()
  if(TARGET flx_torch)
    install(TARGETS flx_torch LIBRARY DESTINATION ${folder}/flx COMPONENT ${torch} ${all})
    install(FILES runtime/front/python/flx/torch.py DESTINATION ${folder}/flx COMPONENT ${torch} ${all})
    install(FILES runtime/front/python/flx_torch_backend.py DESTINATION ${folder} COMPONENT ${torch} ${all})
  endif()
endfunction()

# flx_install(OF MADE ZSH [EXCLUDE_FROM_ALL]): the folders are those of CMAKE_INSTALL_LIBDIR and its kin. OF begins
# the names of the components: library, development, tools, python, documents, and license, which Debian's packages
# have in another form. What depends on the folders is made in MADE. ZSH: where that shell looks for completions.
function(flx_install of made zsh)
  set(all ${ARGN})
  cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE libraries)
  cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_BINDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE programs)

  install(TARGETS ${FLX_LIBRARIES} EXPORT ${of}flx
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${of}library NAMELINK_COMPONENT ${of}development ${all})
  install(TARGETS ${FLX_PROGRAMS} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${of}tools ${all})
  # Nothing links with these libraries, so they lie in a folder of their own: those for programs that know nothing of
  # FLX, and what libflx loads itself where MPI is used.
  install(TARGETS flx_mpi flx_nccl flx_with_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/flx
    COMPONENT ${of}library ${all})
  file(RELATIVE_PATH to_library ${programs} ${libraries}/flx)
  configure_file(runtime/front/mpi/flx-run.in ${made}/flx-run @ONLY)
  install(PROGRAMS ${made}/flx-run DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${of}tools ${all})

  install(FILES runtime/include/flx.h runtime/include/flx.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    COMPONENT ${of}development ${all})
  set(cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/flx)
  install(EXPORT ${of}flx NAMESPACE flx:: FILE flxTargets.cmake DESTINATION ${cmake_dir}
    COMPONENT ${of}development ${all})
  configure_package_config_file(runtime/packaging/flxConfig.cmake.in ${made}/flxConfig.cmake
    INSTALL_DESTINATION ${cmake_dir})
  write_basic_package_version_file(${made}/flxConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${made}/flxConfig.cmake ${made}/flxConfigVersion.cmake DESTINATION ${cmake_dir}
    COMPONENT ${of}development ${all})
  file(RELATIVE_PATH FLX_PC_PREFIX ${libraries}/pkgconfig ${CMAKE_INSTALL_PREFIX})
  set(packages flx)
  if(TARGET flx_fortran)
    list(APPEND packages flx-fortran)
    install(FILES ${PROJECT_BINARY_DIR}/modules/flx.mod DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/flx/fortran
      COMPONENT ${of}development ${all})
  endif()
  foreach(package ${packages})
    configure_file(runtime/packaging/${package}.pc.in ${made}/${package}.pc @ONLY)
    install(FILES ${made}/${package}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
      COMPONENT ${of}development ${all})
  endforeach()

  flx_install_python(${FLX_PYTHON_FOLDER} ${of}python ${of}torch ${all})
  if(TARGET flx_torch)
    install(DIRECTORY ${PROJECT_BINARY_DIR}/python/flx_torch-${PROJECT_VERSION}.dist-info
      DESTINATION ${FLX_PYTHON_FOLDER} COMPONENT ${of}torch ${all})
  endif()

  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT ${of}license ${all})
  install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT ${of}documents ${all})
  install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT ${of}documents ${all})
  install(DIRECTORY apps/cg_solver apps/torch apps/trainer_skeleton DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples
    COMPONENT ${of}documents ${all} PATTERN __pycache__ EXCLUDE)

  set(pages ${PROJECT_BINARY_DIR}/pages)
  if(FLX_HAS_PROGRAM_PAGES)
    install(DIRECTORY ${pages}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT ${of}tools ${all})
    install(DIRECTORY ${pages}/bash/ DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
      COMPONENT ${of}tools ${all})
    install(DIRECTORY ${pages}/zsh/ DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/${zsh} COMPONENT ${of}tools ${all})
    install(DIRECTORY ${pages}/fish/ DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d
      COMPONENT ${of}tools ${all})
  endif()
  if(FLX_HAS_FUNCTION_PAGES)
    install(DIRECTORY ${pages}/man3 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT ${of}development ${all})
  endif()
endfunction()
set(FLX_PYTHON_FOLDER lib/python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}/site-packages)
flx_install("" ${PROJECT_BINARY_DIR} site-functions)
