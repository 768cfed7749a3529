# The launcher half's libraries, as Debian 12 ships them.
#
# gRPC and Protobuf are linked statically: the agent is copied to nodes that may lack them, and a static binary
# starts in a few milliseconds where the shared closure of some 60 libraries takes tens. Debian's CMake package
# offers shared libraries only and `pkg-config --static grpc++` takes 9 s, so the archives are named here.
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

set(grpc_archives "")
foreach(name grpc++ grpc gpr upb address_sorting re2 cares protobuf z absl_base)
  find_library(DSLAUNCH_A_${name} NAMES lib${name}.a REQUIRED)
  list(APPEND grpc_archives "${DSLAUNCH_A_${name}}")
endforeach()
cmake_path(GET DSLAUNCH_A_absl_base PARENT_PATH archive_dir)
file(GLOB absl_archives "${archive_dir}/libabsl_*.a")  # one library in 90 pieces, all behind libgrpc

add_library(dslaunch_grpc INTERFACE)
target_link_libraries(dslaunch_grpc INTERFACE
  -Wl,--start-group ${grpc_archives} ${absl_archives} -Wl,--end-group ${CMAKE_DL_LIBS})

# The agent must run on a node that has only a C library; the front end shares OpenSSL with libssh.
find_library(DSLAUNCH_A_ssl NAMES libssl.a REQUIRED)
find_library(DSLAUNCH_A_crypto NAMES libcrypto.a REQUIRED)
add_library(dslaunch_openssl_static INTERFACE)
target_link_libraries(dslaunch_openssl_static INTERFACE ${DSLAUNCH_A_ssl} ${DSLAUNCH_A_crypto} ${CMAKE_DL_LIBS})
add_library(dslaunch_openssl_shared INTERFACE)
target_link_libraries(dslaunch_openssl_shared INTERFACE ${OPENSSL_SSL_LIBRARY} ${OPENSSL_CRYPTO_LIBRARY})
add_library(dslaunch_openssl_headers INTERFACE)  # for a library that either may link
target_include_directories(dslaunch_openssl_headers SYSTEM INTERFACE "${OPENSSL_INCLUDE_DIR}")

# Header-only down to fmt, of which Debian has no archive that the agent could take along.
add_library(dslaunch_spdlog INTERFACE)
target_include_directories(dslaunch_spdlog SYSTEM INTERFACE
  $<TARGET_PROPERTY:spdlog::spdlog_header_only,INTERFACE_INCLUDE_DIRECTORIES>)
target_compile_definitions(dslaunch_spdlog INTERFACE SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY)

find_path(DSLAUNCH_ASIO_INCLUDE asio.hpp REQUIRED)
add_library(dslaunch_asio INTERFACE)
target_include_directories(dslaunch_asio SYSTEM INTERFACE "${DSLAUNCH_ASIO_INCLUDE}")
# Asio 1.22 chooses between aligned_alloc and operator new by a macro that exists only once a standard header was
# included: two files could disagree and free what the other allocated.
target_compile_definitions(dslaunch_asio INTERFACE
  ASIO_STANDALONE ASIO_NO_DEPRECATED ASIO_DISABLE_STD_ALIGNED_ALLOC)
