# Asio's own functions are compiled once, not into each file that includes it.
find_path(DSLAUNCH_ASIO_INCLUDE asio.hpp REQUIRED)
file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/generated/asio.cc" CONTENT "#include <asio/impl/src.hpp>\n")
file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/generated/asio_tls.cc" CONTENT "#include <asio/ssl/impl/src.hpp>\n")
dslaunch_library(dslaunch_asio SOURCES "${CMAKE_BINARY_DIR}/generated/asio.cc")
target_include_directories(dslaunch_asio SYSTEM PUBLIC "${DSLAUNCH_ASIO_INCLUDE}")
# Asio 1.22 chooses between aligned_alloc and operator new by a macro that exists only once a standard header was
# included: two files could disagree and free what the other allocated.
target_compile_definitions(dslaunch_asio PUBLIC
  ASIO_STANDALONE ASIO_NO_DEPRECATED ASIO_DISABLE_STD_ALIGNED_ALLOC ASIO_SEPARATE_COMPILATION)
dslaunch_library(dslaunch_asio_tls SOURCES "${CMAKE_BINARY_DIR}/generated/asio_tls.cc" LINK dslaunch_asio dslaunch_openssl_headers)
