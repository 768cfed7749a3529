# dslaunch_old_glibc: a program that links it runs on glibc 2.28 and later (2018: RHEL 8, Debian 10, Ubuntu 20.04), and one
# that shares libstdc++ on GCC 8's, whatever this system has. It is linked against stubs of this system's libraries that
# have only what was there then (packaging/old-glibc/make_stub.py), and what is missing in them comes from
# packaging/old-glibc/newer_functions.cc, or out of libstdc++.a. tests/packaging checks the results. dslaunch_old_glibc_module:
# the same for a module that such a program loads, which needs nothing newer.
include_guard(GLOBAL)
set(DSLAUNCH_GLIBC_LIMIT 2.28)
set(DSLAUNCH_GLIBCXX_LIMIT 3.4.25)
set(DSLAUNCH_CXXABI_LIMIT 1.3.11)

add_library(dslaunch_old_glibc INTERFACE)
add_library(dslaunch_old_glibc_module INTERFACE)
option(DSLAUNCH_OLD_GLIBC "Programs that run on glibc 2.28, on x86-64 and aarch64" ON)
set(loader_x86_64 ld-linux-x86-64.so.2)
set(loader_aarch64 ld-linux-aarch64.so.1)
set(loader "${loader_${CMAKE_SYSTEM_PROCESSOR}}")
if(NOT DSLAUNCH_OLD_GLIBC OR DSLAUNCH_SANITIZE OR loader STREQUAL "")
  return()
endif()
# The newest whose headers were tried: later ones may call functions that newer_functions.cc lacks.
set(newest_tried 2.41)
execute_process(COMMAND "${CMAKE_CXX_COMPILER}" ${DSLAUNCH_COMPILER_OPTIONS} -E -dM -x c -include features.h /dev/null
                OUTPUT_VARIABLE macros ERROR_QUIET)
string(REGEX REPLACE ".*#define __GLIBC__ ([0-9]+).*" "\\1" libc_major "${macros}")
string(REGEX REPLACE ".*#define __GLIBC_MINOR__ ([0-9]+).*" "\\1" libc_minor "${macros}")
set(libc "${libc_major}.${libc_minor}")
if(NOT libc MATCHES "^[0-9]+\\.[0-9]+$" OR libc VERSION_GREATER newest_tried)
  message(STATUS "The programs need the C library that they are built with or a newer one; packages for older systems are "
                 "built with glibc ${newest_tried} or older")
  return()
endif()

find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
function(_dslaunch_library_path result name)
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" ${DSLAUNCH_COMPILER_OPTIONS} -print-file-name=${name}
                  OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT IS_ABSOLUTE "${path}")
    message(FATAL_ERROR "${CMAKE_CXX_COMPILER} knows no ${name}. Where the C library is not glibc: -DDSLAUNCH_OLD_GLIBC=OFF.")
  endif()
  set(${result} "${path}" PARENT_SCOPE)
endfunction()

set(folder "${PROJECT_BINARY_DIR}/old-glibc")
set(maker "${PROJECT_SOURCE_DIR}/packaging/old-glibc/make_stub.py")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${maker}")
file(MAKE_DIRECTORY "${folder}")
function(_dslaunch_stub name)
  _dslaunch_library_path(library ${name})
  execute_process(COMMAND "${Python3_EXECUTABLE}" "${maker}" "${library}" "${folder}/${name}" ${ARGN} --
                          "${CMAKE_C_COMPILER}" ${DSLAUNCH_COMPILER_OPTIONS}
                  COMMAND_ERROR_IS_FATAL ANY)
endfunction()
_dslaunch_stub(libc.so.6 GLIBC=${DSLAUNCH_GLIBC_LIMIT})
_dslaunch_stub(libm.so.6 GLIBC=${DSLAUNCH_GLIBC_LIMIT})
_dslaunch_stub(libstdc++.so.6 GLIBCXX=${DSLAUNCH_GLIBCXX_LIMIT} CXXABI=${DSLAUNCH_CXXABI_LIMIT})
# Part of libc since 2.34; before, programs must name them.
foreach(name libpthread.so.0 libdl.so.2)
  _dslaunch_library_path(library ${name})
  execute_process(COMMAND "${CMAKE_C_COMPILER}" ${DSLAUNCH_COMPILER_OPTIONS} -shared -nostdlib -Wl,-soname,${name}
                          -x c /dev/null -o "${folder}/${name}"
                  COMMAND_ERROR_IS_FATAL ANY)
endforeach()
_dslaunch_library_path(nonshared libc_nonshared.a)
_dslaunch_library_path(static_cxx libstdc++.a)
# As -lc, -lm and -lstdc++ find them.
file(WRITE "${folder}/libc.so" "GROUP(${folder}/libc.so.6 ${nonshared} AS_NEEDED(${loader}))\n")
file(WRITE "${folder}/libm.so" "INPUT(${folder}/libm.so.6)\n")
file(WRITE "${folder}/libstdc++.so" "INPUT(${folder}/libstdc++.so.6 ${static_cxx})\n")

add_library(dslaunch_newer_functions OBJECT "${PROJECT_SOURCE_DIR}/packaging/old-glibc/newer_functions.cc")
target_link_libraries(dslaunch_newer_functions PRIVATE dslaunch_flags)
target_compile_options(dslaunch_newer_functions PRIVATE -fvisibility=hidden)
target_link_libraries(dslaunch_old_glibc INTERFACE $<TARGET_OBJECTS:dslaunch_newer_functions> dslaunch_old_glibc_module)
target_link_options(dslaunch_old_glibc INTERFACE -Wl,--wrap=__libc_start_main)
# As options: libraries that CMake knows get into run paths.
target_link_options(dslaunch_old_glibc_module INTERFACE "-L${folder}"
  "-Wl,--push-state,--no-as-needed,${folder}/libpthread.so.0,${folder}/libdl.so.2,--pop-state")
