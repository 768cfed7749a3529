# LibTorch as two imported targets of our own: dslaunch_libtorch (ATen, autograd, torch::nn, c10d) and dslaunch_gloo
# (what the one file that names ProcessGroupGloo needs besides). The package files inside the wheel are not used: they
# insist on a CUDA toolkit, which a CPU build does not need.
include_guard(GLOBAL)

set(DSLAUNCH_LIBTORCH "${PROJECT_SOURCE_DIR}/.deps/libtorch" CACHE PATH
    "LibTorch 2.11: a folder with include/ and lib/ (packaging/fetch-libtorch makes one; .../site-packages/torch is one)")
set(libtorch_way_out
    "Run packaging/fetch-libtorch (about a minute, and nothing is installed outside the checkout), or point at a LibTorch "
    "of yours with -DDSLAUNCH_LIBTORCH=FOLDER, where FOLDER has include/ and lib/ (for example .../site-packages/torch).")

foreach(needed include/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp include/torch/headeronly/version.h
               lib/libtorch_cpu.so lib/libc10.so)
  if(NOT EXISTS "${DSLAUNCH_LIBTORCH}/${needed}")
    message(FATAL_ERROR "No LibTorch with distributed support in ${DSLAUNCH_LIBTORCH}: ${needed} is missing.\n"
                        ${libtorch_way_out})
  endif()
endforeach()
file(STRINGS "${DSLAUNCH_LIBTORCH}/include/torch/headeronly/version.h" version_lines
     REGEX "^#define TORCH_VERSION_(MAJOR|MINOR) [0-9]+")
string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" libtorch_version "${version_lines}")
if(NOT libtorch_version VERSION_EQUAL 2.11)
  message(FATAL_ERROR "${DSLAUNCH_LIBTORCH} holds LibTorch ${libtorch_version}; dslaunch is written against 2.11, whose "
                      "c10d interfaces other versions do not share.\n" ${libtorch_way_out})
endif()

foreach(name torch_cpu c10)
  add_library(dslaunch_lib${name} SHARED IMPORTED)
  set_target_properties(dslaunch_lib${name} PROPERTIES
    IMPORTED_LOCATION "${DSLAUNCH_LIBTORCH}/lib/lib${name}.so"
    INTERFACE_INCLUDE_DIRECTORIES
      "${DSLAUNCH_LIBTORCH}/include;${DSLAUNCH_LIBTORCH}/include/torch/csrc/api/include")
endforeach()

add_library(dslaunch_libtorch INTERFACE)
target_link_libraries(dslaunch_libtorch INTERFACE dslaunch_libtorch_cpu dslaunch_libc10)
# NDEBUG in every preset: at::RecordFunction has one member more without it than the library was built with.
target_compile_definitions(dslaunch_libtorch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO NDEBUG)
# libtorch_cpu names CUDA libraries that it finds through its own run path, not through ours.
target_link_options(dslaunch_libtorch INTERFACE -Wl,--allow-shlib-undefined)

find_path(DSLAUNCH_GLOO_INCLUDE gloo/transport/device.h)
if(NOT DSLAUNCH_GLOO_INCLUDE)
  message(FATAL_ERROR "gloo's headers are missing, which LibTorch does not carry. On Debian: apt-get install libgloo-dev; "
                      "elsewhere -DDSLAUNCH_GLOO_INCLUDE=FOLDER.")
endif()
add_library(dslaunch_gloo INTERFACE)
target_include_directories(dslaunch_gloo SYSTEM INTERFACE "${DSLAUNCH_GLOO_INCLUDE}")
target_link_libraries(dslaunch_gloo INTERFACE dslaunch_libtorch)
