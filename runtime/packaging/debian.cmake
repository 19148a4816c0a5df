# CPack runs this when it has installed each component into a folder of its own, before it makes packages of them. What
# Debian wants there and no other installation has: copyright and changelog of each package, compressed man pages,
# and no path to look for libraries in, since they lie where the loader looks anyway.
cmake_policy(VERSION 3.25)
find_program(flx_gzip gzip REQUIRED)
string(TIMESTAMP flx_now "%a, %d %b %Y %H:%M:%S +0000" UTC)  # or of SOURCE_DATE_EPOCH
set(flx_changelog "flx (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * FLX ${CPACK_PACKAGE_VERSION}. What is new stands in CHANGELOG.md of the package flx-doc.

 -- ${CPACK_PACKAGE_CONTACT}  ${flx_now}
")
foreach(component ${CPACK_COMPONENTS_ALL})
  string(TOUPPER ${component} name)
  set(package ${CPACK_DEBIAN_${name}_PACKAGE_NAME})
  set(folder ${CPACK_TEMPORARY_DIRECTORY}/${component}/usr)
  set(about ${folder}/share/doc/${package})
  file(COPY ${CMAKE_CURRENT_LIST_DIR}/copyright DESTINATION ${about})
  file(WRITE ${about}/changelog.Debian "${flx_changelog}")
  set(overrides ${CMAKE_CURRENT_LIST_DIR}/${package}.lintian-overrides)
  if(EXISTS ${overrides})
    configure_file(${overrides} ${folder}/share/lintian/overrides/${package} @ONLY)
  endif()

  file(GLOB pages ${folder}/share/man/man?/*)
  execute_process(COMMAND ${flx_gzip} -9n ${pages} ${about}/changelog.Debian COMMAND_ERROR_IS_FATAL ANY)

  file(GLOB_RECURSE files LIST_DIRECTORIES false ${folder}/bin/* ${folder}/lib/*)
  foreach(file ${files})
    if(IS_SYMLINK ${file})
      continue()
    endif()
    file(READ ${file} begin LIMIT 4 HEX)
    if(begin STREQUAL 7f454c46)  # an ELF file
      file(RPATH_REMOVE FILE ${file})
    endif()
  endforeach()
endforeach()
