#include "cli/output/print_text.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/os/proc_text.h"
#include "base/os/subprocess.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

constexpr char kUsualPager[] = "less";

Result<void> WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {  // the parent process made stdout non-blocking
      pollfd ready{fd, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno == EPIPE) {
      return {};
    } else if (errno != EINTR) {
      return Error{ExitCode::kIo, std::string("cannot write to stdout: ") + std::strerror(errno)};
    }
  }
  return {};
}

// Returns the command of the pager for `text`; empty if no pager is to be used.
std::vector<std::string> PagerFor(std::string_view text) {
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 0 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return {};
  if (std::ranges::count(text, '\n') < size.ws_row) return {};
  const char* const chosen = std::getenv("PAGER");
  std::string_view rest = chosen == nullptr ? kUsualPager : chosen;
  std::vector<std::string> words;
  for (std::string_view word = TakeWord(rest); !word.empty(); word = TakeWord(rest))
    words.emplace_back(word);
  if (!words.empty()) words.front() = FindProgram(words.front());
  return words.empty() || words.front().empty() ? std::vector<std::string>() : words;
}

// Prints `text` through the pager. Returns false if the pager cannot be started.
bool ShowByPager(const std::vector<std::string>& pager, std::string_view text) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return false;
  UniqueFd input(fds[0]);
  UniqueFd output(fds[1]);
  SpawnSpec spec;
  spec.executable = pager.front();
  spec.argv = pager;
  spec.env = CurrentEnvironment();
  // Runs less with the options that git uses, unless the user has set other options.
  if (std::getenv("LESS") == nullptr) spec.env.emplace_back("LESS=FRX");
  spec.stdin_fd = input.get();
  spec.stdout_fd = STDOUT_FILENO;
  spec.stderr_fd = STDERR_FILENO;
  const SpawnResult started = Spawn(spec);
  input.Reset();
  if (started.pid < 0) return false;
  std::signal(SIGINT, SIG_IGN);  // only the pager handles Ctrl-C
  (void)WriteAll(output.get(), text);
  output.Reset();
  while (::waitpid(started.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return true;
}

}  // namespace

Result<void> PrintText(std::string_view text) { return WriteAll(STDOUT_FILENO, text); }

Result<void> PrintPaged(std::string_view text) {
  const std::vector<std::string> pager = PagerFor(text);
  if (!pager.empty() && ShowByPager(pager, text)) return {};
  return PrintText(text);
}

size_t Columns(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace dslaunch
