# Tests written in Python (standard library only), run with the binaries of this build.
include_guard(DIRECTORY)
find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)

# dslaunch_python_test(NAME FILE [ARGUMENTS argument...] LABEL label TIMEOUT_S seconds): they measure times, so each has
# the machine to itself.
function(dslaunch_python_test name file)
  cmake_parse_arguments(arg "" "LABEL;TIMEOUT_S" "ARGUMENTS" ${ARGN})
  add_test(NAME ${name} COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/${file}" ${arg_ARGUMENTS})
  set_tests_properties(${name} PROPERTIES
    LABELS "${arg_LABEL}" TIMEOUT ${arg_TIMEOUT_S} RUN_SERIAL ON
    ENVIRONMENT "DSLAUNCH_BUILD_DIR=${CMAKE_BINARY_DIR};PYTHONDONTWRITEBYTECODE=1")
endfunction()
