#include "base/errno_text.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace dslaunch {
namespace {

std::string SoftLimit(__rlimit_resource_t resource) {
  rlimit limit = {};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited here";
  return "limit " + std::to_string(limit.rlim_cur);
}

}  // namespace

std::string ErrnoText(int error_number) {
  const std::string text = std::strerror(error_number);
  switch (error_number) {
    case EMFILE:
      return text + " (" + SoftLimit(RLIMIT_NOFILE) + "; raise it: ulimit -n)";
    case ENFILE:
      return text + " (of the whole machine: sysctl fs.file-max)";
    case EAGAIN:
      return text + " (no more processes or threads: " + SoftLimit(RLIMIT_NPROC) +
             "; see ulimit -u, and pids.max of the cgroup)";
    case ENOMEM:
      return text + " (see free -m, and memory.max of the cgroup)";
    default:
      return text;
  }
}

}  // namespace dslaunch
