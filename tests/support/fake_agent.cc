// Stands in for dslaunch-agent where only the way to it is tested: says hello, then echoes stdin to
// stdout. FAKE_AGENT in the environment makes it misbehave: "cannot-run", "silent", "dies",
// "half-close" (ends its output first, exits 5 when it then read "in").
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/build_id.h"

int main(int argc, char** argv) {
  const char* chosen = std::getenv("FAKE_AGENT");
  const std::string fault = chosen != nullptr ? chosen : "";
  if (argc == 2 && std::string(argv[1]) == "--version") {
    if (fault != "cannot-run") return 0;
    std::fprintf(stderr, "libc.so.6: version `GLIBC_9.99' not found\n");
    return 1;
  }
  if (argc != 4 || std::string(argv[1]) != "supervisor" || std::string(argv[2]) != "--nonce")
    return 64;
  if (fault == "dies") {
    std::fprintf(stderr, "the fake agent died\n");
    return 3;
  }
  if (fault == "half-close") {
    char bytes[3] = "";
    if (::write(1, "out", 3) != 3) return 1;
    ::shutdown(1, SHUT_WR);  // where sshd gave us a socket
    ::close(1);              // where it gave us a pipe
    ::close(2);              // sshd waits for this one too
    return ::read(0, bytes, sizeof bytes) == 2 && std::string(bytes) == "in" &&
                   ::read(0, bytes, 1) == 0
               ? 5
               : 1;
  }
  if (fault != "silent") {
    const std::string hello = dslaunch::FormatHello(argv[3], dslaunch::OwnBuildId());
    if (::write(1, hello.data(), hello.size()) < 0) return 1;
  }
  std::string bytes(64 * 1024, '\0');
  while (true) {
    const ssize_t n = ::read(0, bytes.data(), bytes.size());
    if (n <= 0) return 0;
    for (ssize_t at = 0; at < n;) {
      const ssize_t written = ::write(1, bytes.data() + at, static_cast<size_t>(n - at));
      if (written < 0) return 1;
      at += written;
    }
  }
}
