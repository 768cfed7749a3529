# Tests written in Python (standard library only), run with the binaries of this build.
include_guard(DIRECTORY)
find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)

# dslaunch_python_test(NAME FILE [TIMED] [ARGUMENTS argument...] LABEL label TIMEOUT_S seconds): one that is TIMED asserts
# how long something takes, so of these one runs at a time; the others run side by side.
function(dslaunch_python_test name file)
  cmake_parse_arguments(arg "TIMED" "LABEL;TIMEOUT_S" "ARGUMENTS" ${ARGN})
  add_test(NAME ${name} COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/${file}" ${arg_ARGUMENTS})
  set_tests_properties(${name} PROPERTIES
    LABELS "${arg_LABEL}" TIMEOUT ${arg_TIMEOUT_S} SKIP_RETURN_CODE 77
    ENVIRONMENT "DSLAUNCH_BUILD_DIR=${CMAKE_BINARY_DIR};PYTHONDONTWRITEBYTECODE=1")
  if(arg_TIMED)
    # One after the other, so begun first.
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK timed COST 300)
  endif()
endfunction()

# dslaunch_long_tests(SECONDS name...): tests of this folder that take about so long on two cores, which ctest begins before
# shorter ones and before those that nothing is said of. It learns that too, but a fresh clone has learnt nothing.
function(dslaunch_long_tests seconds)
  foreach(name IN LISTS ARGN)
    if(TEST ${name})
      set_tests_properties(${name} PROPERTIES COST ${seconds})
    endif()
  endforeach()
endfunction()
