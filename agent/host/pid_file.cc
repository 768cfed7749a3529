#include "agent/host/pid_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/unique_fd.h"

namespace dslaunch {
namespace {

UniqueFd MakeNew(const std::string& path) {
  return UniqueFd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
}

// Returns whether the file belongs to this user and names a process that has exited.
bool IsLeft(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info {};
  if (!fd || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid())
    return false;
  char text[32] = {};
  if (read(fd.get(), text, sizeof text - 1) < 0) return false;
  const pid_t pid = static_cast<pid_t>(std::strtol(text, nullptr, 10));
  return pid <= 0 || (kill(pid, 0) != 0 && errno == ESRCH);
}

}  // namespace

std::string PidFile::PathFor(uint32_t front_end_pid) {
  return "/tmp/" + std::to_string(front_end_pid) + ".deepspeed";
}

Result<PidFile> PidFile::Create(const std::string& path, pid_t pid) {
  UniqueFd fd = MakeNew(path);
  if (!fd && errno == EEXIST && IsLeft(path) && unlink(path.c_str()) == 0) fd = MakeNew(path);
  if (!fd) {
    const std::string why = errno == EEXIST
                                ? "the file exists, and its process runs or belongs to another user"
                                : strerror(errno);
    return Error{ExitCode::kIo, "--save_pid: " + path + ": " + why};
  }
  const std::string text = std::to_string(pid);
  PidFile file(path);
  if (write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return Error{ExitCode::kIo, "--save_pid: " + path + ": " + strerror(errno)};
  return file;
}

PidFile::~PidFile() {
  if (!path_.empty()) unlink(path_.c_str());
}

}  // namespace dslaunch
