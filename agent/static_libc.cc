// Replaces functions of the C library that would load libraries of the node into a statically
// linked dslaunch-agent. These libraries may belong to another glibc and crash the agent. Static
// programs of glibc load libraries to resolve names (NSS) and in dlopen. The agent needs neither:
// it gets only numeric addresses, looks up accounts through base/os/accounts.h, and runs nvidia-smi
// for GPUs. The callers are the agent's numeric lookups, and parts of gRPC, c-ares and OpenSSL that
// the agent does not need.
#include <arpa/inet.h>
#include <dlfcn.h>  // for Dl_info
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <string_view>

namespace {

// The result of getaddrinfo in one allocation.
struct NumericAddress {
  addrinfo info{};
  sockaddr_storage address{};
};

bool ReadNumber(std::string_view text, uint32_t& number) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  return status == std::errc() && end == text.data() + text.size();
}

// Reads the scope of an address, such as "eth0" in "fe80::1%eth0" or "2" in "fe80::1%2", as the
// index of an interface. Returns false if there is no such interface.
bool ReadScope(const std::string& scope, uint32_t& index) {
  index = if_nametoindex(scope.c_str());
  return index != 0 || ReadNumber(scope, index);
}

bool ReadAddress(std::string_view host, sockaddr_storage& address) {
  auto& v4 = reinterpret_cast<sockaddr_in&>(address);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
  const size_t percent = host.find('%');
  const std::string text(host.substr(0, percent));
  if (percent == std::string_view::npos && inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    return true;
  }
  if (inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) != 1) return false;
  v6.sin6_family = AF_INET6;
  return percent == std::string_view::npos ||
         ReadScope(std::string(host.substr(percent + 1)), v6.sin6_scope_id);
}

// Sets the address to use if no host is given: the wildcard address if `passive`, otherwise the
// loopback address.
void SetDefaultAddress(int family, bool passive, sockaddr_storage& address) {
  if (family == AF_INET6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = passive ? in6addr_any : in6addr_loopback;
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address);
    v4.sin_family = AF_INET;
    v4.sin_addr.s_addr = htonl(passive ? INADDR_ANY : INADDR_LOOPBACK);
  }
}

bool Put(const std::string& text, char* to, socklen_t size) {
  if (to == nullptr || size == 0) return true;
  if (text.size() >= size) return false;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return true;
}

}  // namespace

extern "C" {

// Supports only numeric hosts and ports, and returns a single result. Fails with EAI_NONAME for
// other hosts.
int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** result) {
  uint32_t port = 0;
  if (service != nullptr && (!ReadNumber(service, port) || port > UINT16_MAX)) return EAI_SERVICE;
  if (host == nullptr && service == nullptr) return EAI_NONAME;
  const int family = hints == nullptr ? AF_UNSPEC : hints->ai_family;
  auto* found = new (std::nothrow) NumericAddress;
  if (found == nullptr) return EAI_MEMORY;
  if (host == nullptr) {
    SetDefaultAddress(family, hints != nullptr && (hints->ai_flags & AI_PASSIVE) != 0,
                      found->address);
  } else if (!ReadAddress(host, found->address)) {
    delete found;
    return EAI_NONAME;
  }
  if (family != AF_UNSPEC && family != found->address.ss_family) {
    delete found;
    return EAI_ADDRFAMILY;
  }
  const bool is_v6 = found->address.ss_family == AF_INET6;
  reinterpret_cast<sockaddr_in&>(found->address).sin_port = htons(static_cast<uint16_t>(port));
  found->info.ai_family = found->address.ss_family;
  found->info.ai_socktype =
      hints != nullptr && hints->ai_socktype != 0 ? hints->ai_socktype : SOCK_STREAM;
  found->info.ai_protocol = hints == nullptr ? 0 : hints->ai_protocol;
  found->info.ai_addrlen = is_v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  found->info.ai_addr = reinterpret_cast<sockaddr*>(&found->address);
  *result = &found->info;
  return 0;
}

void freeaddrinfo(addrinfo* info) {
  static_assert(offsetof(NumericAddress, info) == 0);
  delete reinterpret_cast<NumericAddress*>(info);
}

int getnameinfo(const sockaddr* address, socklen_t size, char* host, socklen_t host_size,
                char* service, socklen_t service_size, int flags) {
  if ((flags & NI_NAMEREQD) != 0) return EAI_NONAME;
  char text[INET6_ADDRSTRLEN] = "";
  std::string name;
  uint16_t port = 0;
  if (address->sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    name = inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    port = ntohs(v4->sin_port);
  } else if (address->sa_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    name = inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    char interface[IF_NAMESIZE] = "";
    if (v6->sin6_scope_id != 0 && if_indextoname(v6->sin6_scope_id, interface) != nullptr)
      name += std::string("%") + interface;
    else if (v6->sin6_scope_id != 0)
      name += "%" + std::to_string(v6->sin6_scope_id);
    port = ntohs(v6->sin6_port);
  } else {
    return EAI_FAMILY;
  }
  const bool fits = Put(name, host, host_size) && Put(std::to_string(port), service, service_size);
  return fits ? 0 : EAI_OVERFLOW;
}

hostent* gethostbyname(const char*) {
  h_errno = HOST_NOT_FOUND;
  return nullptr;
}

servent* getservbyname(const char*, const char*) { return nullptr; }

int getservbyname_r(const char*, const char*, servent*, char*, size_t, servent** result) {
  *result = nullptr;
  return ENOENT;
}

int getservbyport_r(int, const char*, servent*, char*, size_t, servent** result) {
  *result = nullptr;
  return ENOENT;
}

// Takes the place of dlopen by the linker option --wrap=dlopen.
void* __wrap_dlopen(const char*, int) { return nullptr; }
void* dlsym(void*, const char*) { return nullptr; }
int dlclose(void*) { return -1; }
char* dlerror() {
  static char said[] = "dslaunch-agent is linked statically and loads no libraries";
  return said;
}
int dladdr(const void*, Dl_info*) { return 0; }

}  // extern "C"
