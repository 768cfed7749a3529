# LibTorch as two imported targets of our own: dslaunch_libtorch (ATen, autograd, torch::nn, c10d) and dslaunch_gloo
# (what the one file that names ProcessGroupGloo needs besides).
include_guard(GLOBAL)

set(DSLAUNCH_LIBTORCH "${PROJECT_SOURCE_DIR}/.deps/libtorch" CACHE PATH
    "LibTorch 2.11: a folder with include/ and lib/ (packaging/fetch-libtorch makes one; .../site-packages/torch is one)")
set(dslaunch_libtorch_hint
    "Run packaging/fetch-libtorch (about a minute, and nothing is installed outside the checkout), or point at a LibTorch "
    "of yours with -DDSLAUNCH_LIBTORCH=FOLDER, where FOLDER has include/ and lib/ (for example .../site-packages/torch).")
include(LibTorchTarget)
cmake_path(IS_PREFIX PROJECT_SOURCE_DIR "${DSLAUNCH_LIBTORCH}" inside)
if(NOT inside)
  add_compile_options("-ffile-prefix-map=${DSLAUNCH_LIBTORCH}=libtorch")  # else as those of the clone
endif()

find_path(DSLAUNCH_GLOO_INCLUDE gloo/transport/device.h)
if(NOT DSLAUNCH_GLOO_INCLUDE)
  message(FATAL_ERROR "gloo's headers are missing, which LibTorch does not carry. On Debian: apt-get install libgloo-dev; "
                      "elsewhere -DDSLAUNCH_GLOO_INCLUDE=FOLDER.")
endif()
dslaunch_compiled_in(PROGRAMS dslaunch-train FILES "${DSLAUNCH_GLOO_INCLUDE}/gloo/transport/device.h")
add_library(dslaunch_gloo INTERFACE)
target_include_directories(dslaunch_gloo SYSTEM INTERFACE "${DSLAUNCH_GLOO_INCLUDE}")
target_link_libraries(dslaunch_gloo INTERFACE dslaunch_libtorch)
