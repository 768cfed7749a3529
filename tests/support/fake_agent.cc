// Stands in for dslaunch-agent where only the connection to it is tested: sends the hello line,
// then echoes stdin to stdout. FAKE_AGENT in the environment makes it misbehave: "cannot-run",
// "silent", "dies", "half-close" (ends its output first, then exits with 5 if it reads "in").
#include <sys/socket.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/os/build_id.h"
#include "base/unique_fd.h"
#include "net/resumable/resumable_stream.h"
#include "net/resumable/resume_words.h"

namespace {

// Copies `in` to `out` until `in` ends or `out` accepts no more.
void Echo(int in, int out) {
  std::string bytes(64 * 1024, '\0');
  while (true) {
    const ssize_t n = ::read(in, bytes.data(), bytes.size());
    if (n <= 0) return;
    for (ssize_t at = 0; at < n;) {
      const ssize_t written = ::write(out, bytes.data() + at, static_cast<size_t>(n - at));
      if (written < 0) return;
      at += written;
    }
  }
}

// Echoes in the frames of a resumable stream. The stream is never resumed.
int EchoResumable() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return 1;
  std::thread echo([fd = ends[1]] {
    Echo(fd, fd);
    ::close(fd);
  });
  asio::io_context loop(1);
  dslaunch::ResumableStream* made = nullptr;
  dslaunch::ResumableStream stream(
      loop, dslaunch::UniqueFd(ends[0]),
      {.on_broken =
           [&](const std::string&) {
             asio::post(loop, [&] {
               made->Close();
               loop.stop();
             });
           },
       .on_all_sent = [&] { asio::post(loop, [&] { loop.stop(); }); }});
  made = &stream;
  stream.Connect(
      dslaunch::MakeStreamEnd(loop, dslaunch::UniqueFd(::dup(0)), dslaunch::UniqueFd(::dup(1))));
  loop.run();
  ::shutdown(ends[0], SHUT_RDWR);
  echo.join();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const char* chosen = std::getenv("FAKE_AGENT");
  const std::string fault = chosen != nullptr ? chosen : "";
  if (argc == 2 && std::string(argv[1]) == "--version") {
    if (fault != "cannot-run") return 0;
    std::fprintf(stderr, "libc.so.6: version `GLIBC_9.99' not found\n");
    return 1;
  }
  const bool is_resumable = argc == 5 && std::string(argv[4]) == "--resumable";
  if ((argc != 4 && !is_resumable) || std::string(argv[1]) != "supervisor" ||
      std::string(argv[2]) != "--nonce")
    return 64;
  if (fault == "dies") {
    std::fprintf(stderr, "the fake agent died\n");
    return 3;
  }
  if (fault == "half-close") {
    char bytes[3] = "";
    if (::write(1, "out", 3) != 3) return 1;
    ::shutdown(1, SHUT_WR);  // closes the output if sshd passed a socket
    ::close(1);              // closes the output if sshd passed a pipe instead
    ::close(2);              // because sshd also waits until stderr is closed
    return ::read(0, bytes, sizeof bytes) == 2 && std::string(bytes) == "in" &&
                   ::read(0, bytes, 1) == 0
               ? 5
               : 1;
  }
  if (fault != "silent") {
    std::string hello = dslaunch::FormatHello(argv[3], dslaunch::OwnBuildId());
    if (is_resumable) {
      const auto ticket = dslaunch::DrawTicket();
      if (!ticket.ok()) return 1;
      hello += dslaunch::FormatTicket(*ticket);
    }
    if (::write(1, hello.data(), hello.size()) < 0) return 1;
    if (is_resumable) return EchoResumable();
  }
  Echo(0, 1);
  return 0;
}
