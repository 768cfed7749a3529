#include "cli/output/print_text.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace dslaunch {

Result<void> PrintText(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {  // the parent process made it non-blocking
      pollfd stdout_ready{STDOUT_FILENO, POLLOUT, 0};
      ::poll(&stdout_ready, 1, -1);
    } else if (errno == EPIPE) {
      return {};
    } else if (errno != EINTR) {
      return Error{ExitCode::kIo, std::string("cannot write to stdout: ") + std::strerror(errno)};
    }
  }
  return {};
}

size_t Columns(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace dslaunch
