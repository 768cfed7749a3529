#include "agent/host/open_files.h"

#include <sys/resource.h>

#include <filesystem>
#include <iterator>
#include <limits>
#include <system_error>

namespace dslaunch {
namespace {

// A connection is a socket, and the pair by which its decrypted bytes travel on.
constexpr size_t kFilesPerNode = 3;
// Log files, and a connection that is refused.
constexpr size_t kSpareFiles = 8;

}  // namespace

size_t CountOpenFiles() {
  std::error_code error;
  const std::filesystem::directory_iterator files("/proc/self/fd", error);
  return error ? 0 : static_cast<size_t>(std::distance(files, {}));
}

size_t OpenFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<size_t>::max();
  return limit.rlim_cur;
}

Result<void> CheckOpenFiles(const std::string& node_name, size_t num_nodes, size_t open,
                            size_t limit) {
  const size_t needed = open + kFilesPerNode * (num_nodes - 1) + kSpareFiles;
  if (num_nodes < 2 || needed <= limit) return {};
  return Error{ExitCode::kUnavailable,
               node_name + ": its limit of open files is " + std::to_string(limit) +
                   ", and to host the rendezvous of " + std::to_string(num_nodes) +
                   " nodes takes about " + std::to_string(needed) +
                   "; raise nofile for the account in /etc/security/limits.conf there, and what "
                   "its start-up files set by ulimit -n"};
}

}  // namespace dslaunch
