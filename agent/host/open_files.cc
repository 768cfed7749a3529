#include "agent/host/open_files.h"

namespace dslaunch {
namespace {

// Descriptors for a node: the socket of its connection, and a pair of sockets for the decrypted
// bytes.
constexpr size_t kFilesPerNode = 3;
// Spare descriptors: log files, a folder that is being read, and a connection that is being
// refused.
constexpr size_t kSpareFiles = 9;

}  // namespace

Result<void> CheckOpenFiles(const std::string& node_name, size_t num_nodes,
                            const OpenFiles& files) {
  const size_t needed = files.open + kFilesPerNode * (num_nodes - 1) + kSpareFiles;
  if (num_nodes < 2 || files.limit == 0 || needed <= files.limit) return {};
  return Error{ExitCode::kUnavailable,
               node_name + ": its limit of open files is " + std::to_string(files.limit) +
                   ", and to host the rendezvous of " + std::to_string(num_nodes) +
                   " nodes takes about " + std::to_string(needed) +
                   "; raise nofile for the account in /etc/security/limits.conf there, and what "
                   "its start-up files set by ulimit -n"};
}

}  // namespace dslaunch
