#include "cli/plan/user_stdin.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/os/process_tree.h"
#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

constexpr std::string_view kShells[] = {"sh",  "bash", "dash", "zsh",  "ksh",    "ksh93",
                                        "ash", "mksh", "fish", "tcsh", "busybox"};
constexpr int kMostAncestors = 16;

bool IsSame(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Returns the nearest shell among the parents that have the same stdin. Other parents are skipped,
// because `timeout` and similar programs pass stdin on without reading it.
std::string ShellWithSameStdin(const struct stat& own) {
  pid_t pid = ::getppid();
  for (int i = 0; i < kMostAncestors && pid > 1; ++i) {
    struct stat its {};
    if (::stat(("/proc/" + std::to_string(pid) + "/fd/0").c_str(), &its) != 0 || !IsSame(own, its))
      break;
    const std::optional<ProcessInfo> process = ReadProcess(pid);
    if (!process) break;
    if (std::ranges::find(kShells, process->command) != std::end(kShells))
      return SanitizeForTerminal(process->command) + " (process " + std::to_string(pid) + ")";
    pid = process->parent;
  }
  return "";
}

}  // namespace

UserStdin ReadUserStdin(int fd) {
  UserStdin input;
  struct stat status {};
  if (::fstat(fd, &status) != 0) return input;
  if (::isatty(fd) == 1) {
    input.kind = UserStdin::Kind::kTerminal;
    return input;
  }
  if (S_ISREG(status.st_mode)) {
    const off_t offset = std::max<off_t>(::lseek(fd, 0, SEEK_CUR), 0);
    if (offset >= status.st_size) return input;
    input.kind = UserStdin::Kind::kFile;
    input.offset = static_cast<size_t>(offset);
  } else if (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode)) {
    input.kind = UserStdin::Kind::kPipe;
    input.shell = ShellWithSameStdin(status);
  }
  return input;
}

}  // namespace dslaunch
