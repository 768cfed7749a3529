#include "cli/session/open_files.h"

#include <string>

#include "base/count.h"

namespace dslaunch {
namespace {

// Numbers of descriptors as measured with `ulimit -n`. With fewer descriptors, the process aborts
// or nodes fail.
constexpr size_t kOfProcess = 21;
constexpr size_t kOfNode = 4;

}  // namespace

Result<void> CheckOpenFiles(size_t nodes, const OpenFiles& files) {
  const size_t needed = files.open + kOfProcess + kOfNode * nodes;
  if (files.limit == 0 || files.limit >= needed) return {};
  return Error{ExitCode::kUnavailable,
               "dslaunch may open " + std::to_string(files.limit) + " files at once, and needs " +
                   std::to_string(needed) + " for " + Count(nodes, "node") +
                   "; raise the limit: ulimit -n " + std::to_string(needed) + " or more"};
}

}  // namespace dslaunch
