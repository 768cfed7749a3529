# The compiler that is taken where nobody chose one by CC, CXX or CMAKE_CXX_COMPILER: clang 16 or later, which compiles
# dslaunch in two thirds of GCC 12's time and checks what mutexes guard, else the system's own. Before project().
if(NOT CMAKE_CXX_COMPILER AND "$ENV{CXX}$ENV{CC}" STREQUAL "")
  find_program(DSLAUNCH_CLANGXX NAMES clang++-21 clang++-20 clang++-19 clang++-18 clang++-17 clang++-16)
  if(DSLAUNCH_CLANGXX)
    string(REPLACE "clang++" "clang" clang "${DSLAUNCH_CLANGXX}")
    set(CMAKE_C_COMPILER "${clang}" CACHE FILEPATH "C compiler")
    set(CMAKE_CXX_COMPILER "${DSLAUNCH_CLANGXX}" CACHE FILEPATH "C++ compiler")
  endif()
endif()
