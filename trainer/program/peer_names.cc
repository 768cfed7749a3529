// Replaces getnameinfo() of the C library by a function that does not use DNS. For its debug log,
// LibTorch's store resolves the name of every machine that connects before it answers. If DNS is
// slow or does not answer, this takes 5 s for each rank. The linker prefers this definition to the
// C library's.
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
