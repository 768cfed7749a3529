// Names of peers without DNS. LibTorch's store asks for the name of every machine that connects,
// for its debug log, before it answers: 5 s for each rank where DNS is slow or does not answer.
// This definition comes before the C library's in the program that it is linked into.
#include <dlfcn.h>
#include <netdb.h>

extern "C" __attribute__((visibility("default"))) int getnameinfo(
    const sockaddr* address, socklen_t address_bytes, char* host, socklen_t host_bytes,
    char* service, socklen_t service_bytes, int flags) {
  using Function = int (*)(const sockaddr*, socklen_t, char*, socklen_t, char*, socklen_t, int);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getnameinfo"));
  return next(address, address_bytes, host, host_bytes, service, service_bytes,
              flags | NI_NUMERICHOST);
}
