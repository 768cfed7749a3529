# How every target of ours is made, so that warnings, sanitizers and include roots are the same everywhere.

find_package(Threads REQUIRED)

add_library(dslaunch_flags INTERFACE)
target_include_directories(dslaunch_flags INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(dslaunch_flags INTERFACE
  -Wall -Wextra -Wpedantic -Werror -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
# GCC 12 reports false positives of these two inside inlined standard and third-party code.
target_compile_options(dslaunch_flags INTERFACE
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-maybe-uninitialized>)
target_link_libraries(dslaunch_flags INTERFACE Threads::Threads)

if(DSLAUNCH_SANITIZE)
  if(DSLAUNCH_SANITIZE MATCHES "thread" AND DSLAUNCH_SANITIZE MATCHES "address")
    message(FATAL_ERROR "DSLAUNCH_SANITIZE: thread and address exclude each other; configure one build each.")
  endif()
  target_compile_options(dslaunch_flags INTERFACE -fsanitize=${DSLAUNCH_SANITIZE} -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=all)
  target_link_options(dslaunch_flags INTERFACE -fsanitize=${DSLAUNCH_SANITIZE})
  if(DSLAUNCH_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(dslaunch_flags INTERFACE -Wno-tsan)  # Asio's fences, which it does not follow
  endif()
endif()

# dslaunch_library(NAME SOURCES a.cc ... [LINK lib ...]): a static library of ours.
function(dslaunch_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC dslaunch_flags ${arg_LINK})
endfunction()

# dslaunch_executable(NAME SOURCES a.cc ... [LINK lib ...]): lands in bin/.
function(dslaunch_executable name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE dslaunch_flags ${arg_LINK})
endfunction()

# dslaunch_cache_precompiled(NAME): ccache takes a target's files though they use a precompiled header.
function(dslaunch_cache_precompiled name)
  if(DSLAUNCH_CCACHE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Only when told that these are harmless.
    target_compile_options(${name} PRIVATE -fpch-preprocess)
    set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime;${DSLAUNCH_CCACHE}")
  endif()
endfunction()

# dslaunch_test(NAME SOURCES a_test.cc ... [LINK lib ...] [LABELS l ...]): a GoogleTest program, run by ctest as one test.
function(dslaunch_test name)
  cmake_parse_arguments(arg "" "TIMEOUT_S" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT_S)
    set(arg_TIMEOUT_S 60)
  endif()
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  target_link_libraries(${name} PRIVATE dslaunch_flags ${arg_LINK} GTest::gmock GTest::gtest_main)
  if("dslaunch_trainer" IN_LIST arg_LINK)
    target_precompile_headers(${name} REUSE_FROM dslaunch_trainer)
    dslaunch_cache_precompiled(${name})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT_S} LABELS "${arg_LABELS}")
endfunction()
