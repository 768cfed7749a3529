#include "cli/session/open_files.h"

#include <sys/resource.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "base/count.h"

namespace dslaunch {
namespace {

// As measured with `ulimit -n`: fewer abort the process or fail nodes.
constexpr size_t kOfProcess = 21;
constexpr size_t kOfNode = 4;

}  // namespace

OpenFiles ReadOpenFiles() {
  OpenFiles files;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) files.limit = limit.rlim_cur;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc/self/fd", error), end; !error && at != end;
       at.increment(error)) {
    ++files.open;
  }
  if (files.open > 0) --files.open;  // of this look
  return files;
}

Result<void> CheckOpenFiles(size_t nodes, const OpenFiles& files) {
  const size_t needed = files.open + kOfProcess + kOfNode * nodes;
  if (files.limit == 0 || files.limit >= needed) return {};
  return Error{ExitCode::kUnavailable,
               "dslaunch may open " + std::to_string(files.limit) + " files at once, and needs " +
                   std::to_string(needed) + " for " + Count(nodes, "node") +
                   "; raise the limit: ulimit -n " + std::to_string(needed) + " or more"};
}

}  // namespace dslaunch
