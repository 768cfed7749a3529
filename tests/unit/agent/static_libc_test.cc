#include <arpa/inet.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

extern "C" void* __wrap_dlopen(const char*, int);

namespace dslaunch::static_libc_test {
namespace {

// Returns "HOST PORT" of the only address found, in numeric form, or the error number if resolving
// fails.
std::string Resolve(const char* host, const char* service, int family = AF_UNSPEC, int flags = 0) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_flags = flags;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(host, service, &hints, &found);
  if (status != 0) return std::to_string(status);
  EXPECT_EQ(found->ai_next, nullptr);
  EXPECT_EQ(found->ai_family, found->ai_addr->sa_family);
  EXPECT_EQ(found->ai_socktype, SOCK_STREAM);
  char name[NI_MAXHOST], port[NI_MAXSERV];
  EXPECT_EQ(::getnameinfo(found->ai_addr, found->ai_addrlen, name, sizeof name, port, sizeof port,
                          NI_NUMERICHOST | NI_NUMERICSERV),
            0);
  ::freeaddrinfo(found);
  return std::string(name) + " " + port;
}

TEST(StaticLibcTest, ParsesNumericAddresses) {
  EXPECT_EQ(Resolve("10.66.0.1", "29500"), "10.66.0.1 29500");
  EXPECT_EQ(Resolve("fd66::0:1", "65535"), "fd66::1 65535");
  EXPECT_EQ(Resolve("::1%lo", "1"), "::1%lo 1");
  EXPECT_EQ(Resolve("fe80::2%1", nullptr), "fe80::2%lo 0");
  EXPECT_EQ(Resolve(nullptr, "7", AF_INET), "127.0.0.1 7");
  EXPECT_EQ(Resolve(nullptr, "7", AF_INET6), "::1 7");
  EXPECT_EQ(Resolve(nullptr, "7", AF_INET6, AI_PASSIVE), ":: 7");
}

TEST(StaticLibcTest, DoesNotResolveNames) {
  EXPECT_EQ(Resolve("localhost", "7"), std::to_string(EAI_NONAME));
  EXPECT_EQ(Resolve("10.66.0", "7"), std::to_string(EAI_NONAME));
  EXPECT_EQ(Resolve("10.66.0.1%lo", "7"), std::to_string(EAI_NONAME));
  EXPECT_EQ(Resolve("fe80::1%no-such-interface", "7"), std::to_string(EAI_NONAME));
  EXPECT_EQ(Resolve("10.66.0.1", "ssh"), std::to_string(EAI_SERVICE));
  EXPECT_EQ(Resolve("10.66.0.1", "65536"), std::to_string(EAI_SERVICE));
  EXPECT_EQ(Resolve("10.66.0.1", "7", AF_INET6), std::to_string(EAI_ADDRFAMILY));
  EXPECT_EQ(::gethostbyname("localhost"), nullptr);
  EXPECT_EQ(::getservbyname("ssh", "tcp"), nullptr);
}

TEST(StaticLibcTest, DoesNotTruncateNames) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* general = reinterpret_cast<const sockaddr*>(&address);
  char name[9];
  EXPECT_EQ(::getnameinfo(general, sizeof address, name, sizeof name, nullptr, 0, NI_NUMERICHOST),
            EAI_OVERFLOW);
  EXPECT_EQ(::getnameinfo(general, 3, name, sizeof name, nullptr, 0, NI_NUMERICHOST), EAI_FAMILY);
}

TEST(StaticLibcTest, OpensNoLibraries) {
  EXPECT_EQ(__wrap_dlopen("libc.so.6", RTLD_NOW), nullptr);
  EXPECT_NE(std::string(::dlerror()), "");
}

}  // namespace
}  // namespace dslaunch::static_libc_test
