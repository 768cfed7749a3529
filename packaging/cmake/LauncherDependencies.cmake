# The launcher half's libraries.
#
# gRPC and Protobuf are linked statically where the system has their archives, as Debian and Ubuntu do: the agent is copied
# to nodes that may lack them, and a static binary starts in a few milliseconds where the shared closure of some 60
# libraries takes tens. Debian's CMake package offers shared libraries only and `pkg-config --static grpc++` takes 9 s, so
# the archives are named here. Elsewhere, as on Fedora, gRPC's CMake package says what to link, or else pkg-config.
include_guard(GLOBAL)

find_package(PkgConfig REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(yaml-cpp 0.7 REQUIRED)
find_package(nlohmann_json 3.10 REQUIRED)
find_package(OpenSSL 3.0 REQUIRED)
pkg_check_modules(LIBSSH REQUIRED IMPORTED_TARGET libssh>=0.10)

find_program(DSLAUNCH_PROTOC protoc REQUIRED)
find_program(DSLAUNCH_GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)

set(DSLAUNCH_STATIC "AUTO" CACHE STRING
    "Link libraries from archives: ON, OFF, or AUTO where the system has all of them")
set(grpc_archives "")
set(missing_archives "")
foreach(name grpc++ grpc gpr upb address_sorting re2 cares protobuf z absl_base ssl crypto ssh yaml-cpp ncursesw tinfo)
  find_library(DSLAUNCH_A_${name} NAMES lib${name}.a)
  mark_as_advanced(DSLAUNCH_A_${name})
  if(NOT DSLAUNCH_A_${name})
    list(APPEND missing_archives "lib${name}.a")
  elseif(NOT name MATCHES "^(ssl|crypto|ssh|yaml-cpp|ncursesw|tinfo)$")
    list(APPEND grpc_archives "${DSLAUNCH_A_${name}}")
  endif()
endforeach()
# What libcrypto.a itself needs: nothing on Debian 12, zlib and zstd on Debian 13.
pkg_check_modules(LIBCRYPTO REQUIRED libcrypto)
set(crypto_archives "")
foreach(name IN LISTS LIBCRYPTO_STATIC_LIBRARIES)
  if(name MATCHES "^(crypto|dl|pthread)$")
    continue()
  endif()
  find_library(DSLAUNCH_A_${name} NAMES lib${name}.a)
  mark_as_advanced(DSLAUNCH_A_${name})
  if(DSLAUNCH_A_${name})
    list(APPEND crypto_archives "${DSLAUNCH_A_${name}}")
  else()
    list(APPEND missing_archives "lib${name}.a")
  endif()
endforeach()

add_library(dslaunch_grpc INTERFACE)
add_library(dslaunch_openssl INTERFACE)
add_library(dslaunch_libssh INTERFACE)
add_library(dslaunch_zlib INTERFACE)
add_library(dslaunch_yaml INTERFACE)
add_library(dslaunch_curses INTERFACE)
if(DSLAUNCH_STATIC AND NOT missing_archives)
  cmake_path(GET DSLAUNCH_A_absl_base PARENT_PATH archive_dir)
  file(GLOB absl_archives "${archive_dir}/libabsl_*.a")  # one library in 90 pieces, all behind libgrpc
  target_link_libraries(dslaunch_grpc INTERFACE
    -Wl,--start-group ${grpc_archives} ${absl_archives} -Wl,--end-group ${CMAKE_DL_LIBS})
  set(DSLAUNCH_IS_STATIC ON)
  target_link_libraries(dslaunch_openssl INTERFACE "${DSLAUNCH_A_ssl}" "${DSLAUNCH_A_crypto}" ${crypto_archives})
  # Imported targets, so that zlib follows libssh on every link line.
  add_library(dslaunch_zlib_archive STATIC IMPORTED GLOBAL)
  set_target_properties(dslaunch_zlib_archive PROPERTIES IMPORTED_LOCATION "${DSLAUNCH_A_z}")
  add_library(dslaunch_libssh_archive STATIC IMPORTED GLOBAL)
  set_target_properties(dslaunch_libssh_archive PROPERTIES IMPORTED_LOCATION "${DSLAUNCH_A_ssh}")
  target_link_libraries(dslaunch_libssh_archive INTERFACE dslaunch_no_kerberos dslaunch_zlib_archive)
  target_link_libraries(dslaunch_libssh INTERFACE dslaunch_libssh_archive)
  target_link_libraries(dslaunch_zlib INTERFACE dslaunch_zlib_archive)
  target_link_libraries(dslaunch_yaml INTERFACE "${DSLAUNCH_A_yaml-cpp}")
  # Terminals are described by the system's terminfo, which the archive reads too.
  target_link_libraries(dslaunch_curses INTERFACE "${DSLAUNCH_A_ncursesw}" "${DSLAUNCH_A_tinfo}")
  # The agent runs on any Linux of its architecture, with nothing of the node but its kernel. Sanitizers need a shared
  # C library.
  if(NOT DSLAUNCH_SANITIZE)
    set(DSLAUNCH_STATIC_AGENT ON)
  endif()

  dslaunch_compiled_in(PROGRAMS dslaunch FILES
    "${DSLAUNCH_A_ssh}" "${DSLAUNCH_A_yaml-cpp}" "${DSLAUNCH_A_ncursesw}" "${DSLAUNCH_A_tinfo}")
  dslaunch_compiled_in(PROGRAMS dslaunch dslaunch-agent FILES
    ${grpc_archives} ${absl_archives} "${DSLAUNCH_A_ssl}" "${DSLAUNCH_A_crypto}" ${crypto_archives})
  foreach(name stdc++ gcc gcc_eh c)
    execute_process(COMMAND "${CMAKE_CXX_COMPILER}" ${DSLAUNCH_COMPILER_OPTIONS} -print-file-name=lib${name}.a
                    OUTPUT_VARIABLE archive OUTPUT_STRIP_TRAILING_WHITESPACE)
    file(REAL_PATH "${archive}" archive)  # packages name it below /usr
    dslaunch_compiled_in(PROGRAMS dslaunch dslaunch-agent FILES "${archive}")
  endforeach()
elseif(DSLAUNCH_STATIC STREQUAL "AUTO" OR NOT DSLAUNCH_STATIC)
  find_package(gRPC 1.30 CONFIG QUIET)
  if(gRPC_FOUND)
    target_link_libraries(dslaunch_grpc INTERFACE gRPC::grpc++)
  else()
    pkg_check_modules(GRPC REQUIRED IMPORTED_TARGET grpc++>=1.30 protobuf)
    target_link_libraries(dslaunch_grpc INTERFACE PkgConfig::GRPC)
  endif()
  target_link_libraries(dslaunch_openssl INTERFACE ${OPENSSL_SSL_LIBRARY} ${OPENSSL_CRYPTO_LIBRARY} ${CMAKE_DL_LIBS})
  find_package(ZLIB 1.2 REQUIRED)
  target_link_libraries(dslaunch_libssh INTERFACE PkgConfig::LIBSSH)
  target_link_libraries(dslaunch_zlib INTERFACE ZLIB::ZLIB)
  target_link_libraries(dslaunch_yaml INTERFACE yaml-cpp)
  pkg_check_modules(NCURSESW REQUIRED IMPORTED_TARGET ncursesw)
  target_link_libraries(dslaunch_curses INTERFACE PkgConfig::NCURSESW)
  message(STATUS "gRPC and Protobuf are linked as shared libraries, which every node then needs too")
else()
  list(JOIN missing_archives ", " missing_archives)
  if(CMAKE_CROSSCOMPILING)
    message(FATAL_ERROR "${CMAKE_SYSROOT} has no ${missing_archives}; run packaging/fetch-aarch64 again")
  endif()
  message(FATAL_ERROR "DSLAUNCH_STATIC is ${DSLAUNCH_STATIC}, but this system has no ${missing_archives}. Install them, or "
                      "leave DSLAUNCH_STATIC out to link shared libraries, which every node then needs too.")
endif()

add_library(dslaunch_openssl_shared INTERFACE)  # for tests
target_link_libraries(dslaunch_openssl_shared INTERFACE ${OPENSSL_SSL_LIBRARY} ${OPENSSL_CRYPTO_LIBRARY})
add_library(dslaunch_openssl_headers INTERFACE)  # for a library that either may link
target_include_directories(dslaunch_openssl_headers SYSTEM INTERFACE "${OPENSSL_INCLUDE_DIR}")

# Header-only down to fmt, of which Debian has no archive that the agent could take along.
add_library(dslaunch_spdlog INTERFACE)
target_include_directories(dslaunch_spdlog SYSTEM INTERFACE
  $<TARGET_PROPERTY:spdlog::spdlog_header_only,INTERFACE_INCLUDE_DIRECTORIES>)
target_compile_definitions(dslaunch_spdlog INTERFACE SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY)

dslaunch_compiled_in(PROGRAMS dslaunch dslaunch-agent HEADERS asio.hpp spdlog/spdlog.h fmt/core.h nlohmann/json.hpp)
dslaunch_compiled_in(PROGRAMS dslaunch HEADERS CLI/CLI.hpp)
