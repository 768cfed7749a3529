# find_package(dslaunch) gives
#   dslaunch::dslaunch   for programs that train with the engine (dslaunch/dslaunch.h), LibTorch included
#   dslaunch::plugin     for models that `dslaunch train` loads (dslaunch/plugin.h): headers and LibTorch only
#
# LibTorch is the folder DSLAUNCH_LIBTORCH (with include/ and lib/); else that of Torch_DIR, Torch_ROOT or
# CMAKE_PREFIX_PATH; else the one that this dslaunch was installed with.
if(TARGET dslaunch::dslaunch)
  return()
endif()
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(ZLIB)
find_dependency(PNG)
find_dependency(JPEG)

get_filename_component(dslaunch_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(dslaunch_hints "${Torch_ROOT}" "$ENV{Torch_ROOT}")
foreach(folder IN LISTS Torch_DIR CMAKE_PREFIX_PATH)
  list(APPEND dslaunch_hints "${folder}" "${folder}/../.." "${folder}/../../..")  # of share/cmake/Torch
endforeach()
find_path(DSLAUNCH_LIBTORCH lib/libtorch_cpu.so
  HINTS ${dslaunch_hints} "${dslaunch_prefix}/lib/dslaunch/libtorch" NO_DEFAULT_PATH
  DOC "LibTorch 2.11: a folder with include/ and lib/")
set(dslaunch_libtorch_hint
    "Point at a LibTorch 2.11 with -DDSLAUNCH_LIBTORCH=FOLDER, where FOLDER has include/ and lib/ (for example "
    ".../site-packages/torch).")
include("${CMAKE_CURRENT_LIST_DIR}/LibTorchTarget.cmake")

include("${CMAKE_CURRENT_LIST_DIR}/dslaunchTargets.cmake")
# Where a program finds libdslaunch_cuda.so.
set_property(TARGET dslaunch::dslaunch APPEND PROPERTY
             INTERFACE_LINK_OPTIONS "LINKER:-rpath,${dslaunch_prefix}/lib/dslaunch")
