# How every target of ours is made, so that warnings, sanitizers and include roots are the same everywhere.

find_package(Threads REQUIRED)

# The same objects wherever the clone, the build folder and LibTorch lie.
add_compile_options("-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.")
# Later ones win. Debug information counts for the build id, and ccache has objects of other build folders.
add_compile_options("-ffile-prefix-map=${PROJECT_BINARY_DIR}=./build")
# DWARF 5 has a hash of each source, and the unity builds' sources have the clone's path in them.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options(-fdebug-default-version=4)
endif()

# clang 18 and later name some templates otherwise than GCC, which LibTorch is compiled by.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 18)
  add_compile_options(-fclang-abi-compat=17)
endif()

add_library(dslaunch_flags INTERFACE)
target_include_directories(dslaunch_flags INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(dslaunch_flags INTERFACE
  -Wall -Wextra -Wpedantic $<$<BOOL:${DSLAUNCH_WERROR}>:-Werror> -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
# GCC 12 reports false positives of these inside inlined standard and third-party code; of the last three when that
# was precompiled.
target_compile_options(dslaunch_flags INTERFACE
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-maybe-uninitialized
                           -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread>)
# What base/mutex.h guards, which GCC does not check. libstdc++ 12 calls what it says not to call, in std::stable_sort.
target_compile_options(dslaunch_flags INTERFACE
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety -Wno-deprecated-declarations>)
target_link_libraries(dslaunch_flags INTERFACE Threads::Threads)

if(DSLAUNCH_SANITIZE)
  if(DSLAUNCH_SANITIZE MATCHES "thread" AND DSLAUNCH_SANITIZE MATCHES "address")
    message(FATAL_ERROR "DSLAUNCH_SANITIZE: thread and address exclude each other; configure one build each.")
  endif()
  target_compile_options(dslaunch_flags INTERFACE -fsanitize=${DSLAUNCH_SANITIZE} -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=all)
  target_compile_definitions(dslaunch_flags INTERFACE DSLAUNCH_SANITIZED) # compilers do not agree on a macro
  target_link_options(dslaunch_flags INTERFACE -fsanitize=${DSLAUNCH_SANITIZE})
  if(DSLAUNCH_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(dslaunch_flags INTERFACE -Wno-tsan)  # Asio's fences, which it does not follow
  endif()
endif()

# dslaunch_precompiled(NAME HEADER header [LINK lib ...] [OPTIONS flag ...]): a header that is compiled once, for targets
# that say PRECOMPILED NAME and see the same libraries.
function(dslaunch_precompiled name)
  cmake_parse_arguments(arg "" "HEADER" "LINK;OPTIONS" ${ARGN})
  add_library(${name} OBJECT "${PROJECT_SOURCE_DIR}/packaging/cmake/precompiled/owner.cc")
  target_link_libraries(${name} PRIVATE dslaunch_flags ${arg_LINK})
  target_compile_options(${name} PRIVATE ${arg_OPTIONS})
  # By the include path, so that the file that includes it is the same in every clone.
  target_precompile_headers(${name} PRIVATE <packaging/cmake/precompiled/${arg_HEADER}>)
  dslaunch_cache_precompiled(${name})
endfunction()

# dslaunch_use_precompiled(TARGET NAME): TARGET's files see the header of NAME.
function(dslaunch_use_precompiled target name)
  target_precompile_headers(${target} REUSE_FROM ${name})
  dslaunch_cache_precompiled(${target})
endfunction()

# dslaunch_precompiled_plugin(TARGET): a plugin of the tests sees LibTorch's headers precompiled, as the stand-in GPU does.
function(dslaunch_precompiled_plugin target)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}") # where the header is
  dslaunch_use_precompiled(${target} standin_gpu_objects)
endfunction()

# dslaunch_unity_sources(TARGET GROUP a.cc ...): adds files to TARGET, compiled as if they were one or, where there are
# many, a few: most of a file's time is its headers. DSLAUNCH_UNITY=OFF compiles each alone. CMake's own unity files name
# the clone's folder, so ccache would take them for other files in each clone.
option(DSLAUNCH_UNITY "Compile several files of a folder at a time" ON)
set(DSLAUNCH_UNITY_FILES 7)
function(dslaunch_unity_sources target group)
  if(NOT DSLAUNCH_UNITY)
    target_sources(${target} PRIVATE ${ARGN})
    return()
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)  # it takes the files for headers
  endif()
  string(MAKE_C_IDENTIFIER "${group}" group)
  set(files ${ARGN})
  set(number 0)
  while(files)
    list(SUBLIST files 0 ${DSLAUNCH_UNITY_FILES} some)
    list(REMOVE_ITEM files ${some})
    set(includes "")
    foreach(file IN LISTS some)
      cmake_path(ABSOLUTE_PATH file NORMALIZE)
      cmake_path(RELATIVE_PATH file BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
      string(APPEND includes "#include \"${file}\"\n")
    endforeach()
    set(unity "${CMAKE_CURRENT_BINARY_DIR}/unity/${target}_${group}_${number}.cc")
    file(CONFIGURE OUTPUT "${unity}" CONTENT "${includes}" @ONLY)
    target_sources(${target} PRIVATE "${unity}")
    math(EXPR number "${number} + 1")
  endwhile()
endfunction()

# dslaunch_library(NAME SOURCES a.cc ... [LINK lib ...] [PRECOMPILED name]): a static library of ours.
function(dslaunch_library name)
  cmake_parse_arguments(arg "" "PRECOMPILED" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC $<BUILD_INTERFACE:dslaunch_flags> Threads::Threads ${arg_LINK})
  if(arg_PRECOMPILED)
    dslaunch_use_precompiled(${name} ${arg_PRECOMPILED})
  endif()
endfunction()

# dslaunch_executable(NAME SOURCES a.cc ... [LINK lib ...] [PRECOMPILED name]): lands in bin/.
function(dslaunch_executable name)
  cmake_parse_arguments(arg "" "PRECOMPILED" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE dslaunch_flags ${arg_LINK})
  if(NOT DSLAUNCH_SANITIZE) # whose tables nothing refers to
    target_link_options(${name} PRIVATE -Wl,--gc-sections)
  endif()
  if(arg_PRECOMPILED)
    dslaunch_use_precompiled(${name} ${arg_PRECOMPILED})
  endif()
endfunction()

# dslaunch_run_path(TARGET FOLDER...): where an installed program or library looks for its libraries; in the build tree the
# same. CMake would pad a run path of the build tree with colons to this one's length, and an empty element of a run path
# is the current folder.
function(dslaunch_run_path target)
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${ARGN}")
endfunction()

# dslaunch_in_environments(RESULT LIB FOLDER...): where FOLDERs of Python packages are in an environment whose lib/ is LIB, one
# for each version of Python that PyPI's torch 2.11 is for.
function(dslaunch_in_environments result lib)
  set(found "")
  foreach(version 3.10 3.11 3.12 3.13 3.14)
    foreach(folder IN LISTS ARGN)
      list(APPEND found "${lib}/python${version}/site-packages/${folder}")
    endforeach()
  endforeach()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# dslaunch_link_in_tree(PATH TARGET [BUILD_ONLY]): PATH of the build tree and of the installed one is a link to TARGET. In
# an installed tree a folder of the user's own at PATH is kept.
function(dslaunch_link_in_tree path target)
  cmake_parse_arguments(arg "BUILD_ONLY" "" "" ${ARGN})
  cmake_path(GET path PARENT_PATH folder)
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/${folder}")
  file(CREATE_LINK "${target}" "${PROJECT_BINARY_DIR}/${path}" SYMBOLIC)
  if(NOT arg_BUILD_ONLY AND NOT SKBUILD)  # a wheel has no links
    install(CODE "
      set(link \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${path}\")
      if(IS_SYMLINK \"\${link}\" OR NOT EXISTS \"\${link}\")
        file(MAKE_DIRECTORY \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${folder}\")
        file(CREATE_LINK \"${target}\" \"\${link}\" SYMBOLIC)
      endif()" ALL_COMPONENTS)
  endif()
endfunction()

# dslaunch_cache_precompiled(NAME): ccache takes a target's files though they use a precompiled header.
function(dslaunch_cache_precompiled name)
  if(DSLAUNCH_CCACHE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${name} PRIVATE -fpch-preprocess)
  endif()
endfunction()

# dslaunch_test(NAME [UNITY] SOURCES a_test.cc ... [LINK lib ...] [PRECOMPILED name] [LABELS l ...]): a GoogleTest program,
# run by ctest as one test. Its own code is not optimized, and has debug information in Debug builds and under sanitizers
# alone: GoogleTest names the lines. Where PRECOMPILED is not said it is dslaunch_precompiled_test, or
# dslaunch_precompiled_torch_test of the trainer's tests. With UNITY several files are compiled as one, so each has a
# namespace of its name (dslaunch::engine_test).
set(DSLAUNCH_TEST_OPTIONS -O0 -U_FORTIFY_SOURCE)
if(NOT DSLAUNCH_SANITIZE)
  list(APPEND DSLAUNCH_TEST_OPTIONS "$<$<NOT:$<CONFIG:Debug>>:-g0>")
endif()
function(dslaunch_test name)
  cmake_parse_arguments(arg "UNITY" "TIMEOUT_S;PRECOMPILED" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT_S)
    set(arg_TIMEOUT_S 180)
  endif()
  if(NOT arg_PRECOMPILED AND "dslaunch_trainer" IN_LIST arg_LINK)
    set(arg_PRECOMPILED dslaunch_precompiled_torch_test)
  elseif(NOT arg_PRECOMPILED)
    set(arg_PRECOMPILED dslaunch_precompiled_test)
  endif()
  add_executable(${name})
  if(arg_UNITY)
    dslaunch_unity_sources(${name} ${name} ${arg_SOURCES})
  else()
    target_sources(${name} PRIVATE ${arg_SOURCES})
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  target_link_libraries(${name} PRIVATE dslaunch_flags ${arg_LINK} GTest::gmock GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${DSLAUNCH_TEST_OPTIONS})
  dslaunch_use_precompiled(${name} ${arg_PRECOMPILED})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT_S} LABELS "${arg_LABELS}")
  if("dslaunch_trainer" IN_LIST arg_LINK)
    # Tests run side by side: OpenMP's threads do not wait for each other by spinning.
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "OMP_WAIT_POLICY=passive")
  endif()
endfunction()
