# dslaunch_libtorch: ATen, autograd, torch::nn and c10d out of the folder DSLAUNCH_LIBTORCH, for this build and, installed,
# for programs that use dslaunch. ${dslaunch_libtorch_hint} says what to do where that folder does not serve. The
# package files inside the wheel are not used: they insist on a CUDA toolkit, which a CPU build does not need.
foreach(needed include/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp include/torch/headeronly/version.h
               lib/libtorch_cpu.so lib/libc10.so)
  if(NOT EXISTS "${DSLAUNCH_LIBTORCH}/${needed}")
    message(FATAL_ERROR "No LibTorch with distributed support in ${DSLAUNCH_LIBTORCH}: ${needed} is missing.\n"
                        ${dslaunch_libtorch_hint})
  endif()
endforeach()
file(STRINGS "${DSLAUNCH_LIBTORCH}/include/torch/headeronly/version.h" version_lines
     REGEX "^#define TORCH_VERSION_(MAJOR|MINOR) [0-9]+")
string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" libtorch_version "${version_lines}")
include("${CMAKE_CURRENT_LIST_DIR}/LibTorchVersion.cmake")
if(NOT libtorch_version VERSION_EQUAL DSLAUNCH_LIBTORCH_VERSION)
  message(FATAL_ERROR "${DSLAUNCH_LIBTORCH} holds LibTorch ${libtorch_version}; dslaunch is written against ${DSLAUNCH_LIBTORCH_VERSION}, whose "
                      "c10d interfaces other versions do not share.\n" ${dslaunch_libtorch_hint})
endif()

foreach(name torch_cpu c10)
  add_library(dslaunch_lib${name} SHARED IMPORTED)
  set_target_properties(dslaunch_lib${name} PROPERTIES
    IMPORTED_LOCATION "${DSLAUNCH_LIBTORCH}/lib/lib${name}.so"
    INTERFACE_INCLUDE_DIRECTORIES
      "${DSLAUNCH_LIBTORCH}/include;${DSLAUNCH_LIBTORCH}/include/torch/csrc/api/include")
endforeach()

add_library(dslaunch_libtorch INTERFACE IMPORTED)
target_link_libraries(dslaunch_libtorch INTERFACE dslaunch_libtorch_cpu dslaunch_libc10)
# NDEBUG in every preset: at::RecordFunction has one member more without it than the library was built with.
target_compile_definitions(dslaunch_libtorch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO NDEBUG)
# libtorch_cpu names CUDA libraries that it finds through its own run path, not through ours.
target_link_options(dslaunch_libtorch INTERFACE -Wl,--allow-shlib-undefined)
