# What all objects and programs of ours are compiled and linked with against memory errors, whatever the build type.
# tests/packaging checks the results. Not with sanitizers, which check more.
include_guard(GLOBAL)
if(DSLAUNCH_SANITIZE)
  return()
endif()
include(CheckCXXCompilerFlag)

add_compile_options(-fstack-protector-strong -D_GLIBCXX_ASSERTIONS)
# Not every architecture has these.
foreach(flag -fstack-clash-protection -fcf-protection=full -mbranch-protection=standard)
  string(MAKE_C_IDENTIFIER "DSLAUNCH_HAS${flag}" has)
  check_cxx_compiler_flag(${flag} ${has})
  if(${has})
    add_compile_options(${flag})
  endif()
endforeach()

# It checks only what is optimized; what is not says -U_FORTIFY_SOURCE.
if(CMAKE_BUILD_TYPE MATCHES "^(Release|RelWithDebInfo|MinSizeRel)$")
  set(fortify 2)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12)
    set(fortify 3)
  endif()
  add_compile_options("SHELL:-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${fortify}")
endif()

# Position independent, also where the compiler does not do so by itself. Before -fPIC of libraries, which then counts.
string(APPEND CMAKE_C_FLAGS " -fPIE")
string(APPEND CMAKE_CXX_FLAGS " -fPIE")
# A target with the property DSLAUNCH_STATIC_PIE has its C library inside.
set(pie "$<IF:$<BOOL:$<TARGET_PROPERTY:DSLAUNCH_STATIC_PIE>>,-static-pie,-pie>")
add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:${pie}> -Wl,-z,relro -Wl,-z,noexecstack)
# Not of plugins: the stamp of one for another LibTorch must be readable before its symbols are looked up.
add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-Wl,-z,now>)
