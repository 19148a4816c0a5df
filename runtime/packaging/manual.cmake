# Target flx_man: man pages and completions of shells, made from what programs print with --help, and man pages of the
# functions, from the comments of flx.h. Programs of builds with sanitizers and for other machines are not asked.
set(FLX_HAS_PROGRAM_PAGES OFF)
set(FLX_HAS_FUNCTION_PAGES OFF)
find_program(FLX_DOXYGEN doxygen)
set(flx_pages ${PROJECT_BINARY_DIR}/pages)
set(flx_pages_scripts ${PROJECT_SOURCE_DIR}/runtime/packaging)
if(FLX_SANITIZE OR CMAKE_CROSSCOMPILING OR NOT Python3_FOUND)
  message(STATUS "Man pages: none, as they need Python 3 and programs that can be started as they are")
  return()
endif()

set(flx_pages_made "")
foreach(program flx-run ${FLX_PROGRAMS})
  set(path ${PROJECT_BINARY_DIR}/bin/${program})
  if(TARGET ${program})
    set(path $<TARGET_FILE:${program}>)
  endif()
  add_custom_command(OUTPUT ${flx_pages}/man1/${program}.1
    BYPRODUCTS ${flx_pages}/bash/${program} ${flx_pages}/zsh/_${program} ${flx_pages}/fish/${program}.fish
    COMMAND ${Python3_EXECUTABLE} -B ${flx_pages_scripts}/program_pages.py ${path} ${PROJECT_VERSION} ${flx_pages}
    DEPENDS ${path} ${flx_pages_scripts}/program_pages.py ${flx_pages_scripts}/program_help.py
      ${flx_pages_scripts}/completions.py ${flx_pages_scripts}/troff.py
    COMMENT "Man page of ${program}" VERBATIM)
  list(APPEND flx_pages_made ${flx_pages}/man1/${program}.1)
endforeach()
set(FLX_HAS_PROGRAM_PAGES ON)

if(FLX_DOXYGEN)
  add_custom_command(OUTPUT ${flx_pages}/man3/flx.3
    COMMAND ${Python3_EXECUTABLE} -B ${flx_pages_scripts}/function_pages.py ${FLX_DOXYGEN} ${PROJECT_SOURCE_DIR}
      ${PROJECT_VERSION} ${flx_pages}
    DEPENDS ${PROJECT_SOURCE_DIR}/runtime/include/flx.h ${PROJECT_SOURCE_DIR}/runtime/include/flx.hpp
      ${PROJECT_SOURCE_DIR}/Doxyfile ${flx_pages_scripts}/function_pages.py ${flx_pages_scripts}/troff.py
    COMMENT "Man pages of the functions" VERBATIM)
  list(APPEND flx_pages_made ${flx_pages}/man3/flx.3)
  set(FLX_HAS_FUNCTION_PAGES ON)
else()
  message(STATUS "Man pages: none of functions, as doxygen is not installed")
endif()
add_custom_target(flx_man ALL DEPENDS ${flx_pages_made})
