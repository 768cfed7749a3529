# Toolchain: dslaunch for aarch64 compiled on a machine of another architecture, by clang and lld against what
# packaging/fetch-aarch64 unpacked (`cmake --preset aarch64`). Tests run by qemu-aarch64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(DSLAUNCH_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../../.deps/sysroot-aarch64" CACHE PATH "Made by packaging/fetch-aarch64")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES DSLAUNCH_SYSROOT)
cmake_path(NORMAL_PATH DSLAUNCH_SYSROOT)
if(NOT EXISTS "${DSLAUNCH_SYSROOT}/dslaunch-stamp")
  message(FATAL_ERROR "${DSLAUNCH_SYSROOT} has no libraries for aarch64; run packaging/fetch-aarch64 first")
endif()
set(CMAKE_SYSROOT "${DSLAUNCH_SYSROOT}")
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

include("${CMAKE_CURRENT_LIST_DIR}/Compiler.cmake")
if(NOT CMAKE_CXX_COMPILER)
  message(FATAL_ERROR "clang 16 or later is needed for aarch64 (Debian: clang-19); or set CC and CXX to a clang")
endif()
foreach(language C CXX ASM)
  set(CMAKE_${language}_COMPILER_TARGET aarch64-linux-gnu)
endforeach()
# For commands that call the compiler without CMake's rules.
set(DSLAUNCH_COMPILER_OPTIONS --target=aarch64-linux-gnu "--sysroot=${DSLAUNCH_SYSROOT}" -fuse-ld=lld)
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT -fuse-ld=lld)
endforeach()

# A sysroot that lacks an archive is out of date.
set(DSLAUNCH_STATIC ON CACHE STRING "Link libraries from archives")
# For -DDSLAUNCH_TRAINER=ON. The CUDA part would be linked to NVIDIA's libraries for this machine.
set(DSLAUNCH_LIBTORCH "${CMAKE_CURRENT_LIST_DIR}/../../.deps/libtorch-aarch64" CACHE PATH
    "Made by packaging/fetch-libtorch --machine aarch64")
set(DSLAUNCH_CUDA OFF CACHE STRING "Build the trainer's CUDA part")

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${DSLAUNCH_SYSROOT}")
set(ENV{PKG_CONFIG_LIBDIR}
    "${DSLAUNCH_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${DSLAUNCH_SYSROOT}/usr/lib/pkgconfig:${DSLAUNCH_SYSROOT}/usr/share/pkgconfig")

find_program(DSLAUNCH_QEMU NAMES qemu-aarch64-static qemu-aarch64)
mark_as_advanced(DSLAUNCH_QEMU)
if(DSLAUNCH_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${DSLAUNCH_QEMU}" -L "${DSLAUNCH_SYSROOT}")
endif()
