#include "agent/logs/log_space.h"

#include <sys/statvfs.h>

namespace dslaunch {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kFullBytes = 256 * kKiB;

bool IsFull(const std::optional<LogSpace>& space) {
  return space && space->total_bytes > 0 && space->free_bytes < kFullBytes;
}

std::string Free(const LogSpace& space) { return std::to_string(space.free_bytes / kKiB) + " KiB"; }

constexpr char kHint[] =
    "; free space there (dslaunch ps --prune removes old jobs' logs) or choose another folder with "
    "--log_dir";

}  // namespace

std::optional<LogSpace> ReadLogSpace(const std::string& folder) {
  struct statvfs status {};
  if (statvfs(folder.c_str(), &status) != 0) return std::nullopt;
  return LogSpace{uint64_t{status.f_bavail} * status.f_frsize,
                  uint64_t{status.f_blocks} * status.f_frsize};
}

Result<void> CheckLogSpace(const std::string& node, const std::string& folder,
                           const std::optional<LogSpace>& space) {
  if (!IsFull(space)) return {};
  return Error{ExitCode::kIo, node + ": only " + Free(*space) + " are free where the logs go (" +
                                  folder + ")" + kHint};
}

std::optional<std::string> FullDiskNotice(const std::string& node, const std::string& folder,
                                          const std::optional<LogSpace>& space) {
  if (!IsFull(space)) return std::nullopt;
  return node + ": only " + Free(*space) + " are free where the logs go (" + folder +
         "), so lines of ranks may be missing there and here" + kHint;
}

std::optional<std::string> FullDiskEvidence(const std::string& folder,
                                            const std::optional<LogSpace>& space) {
  if (!IsFull(space)) return std::nullopt;
  return "the disk of its logs is full (" + Free(*space) + " free in " + folder +
         "), so the end of its output is missing";
}

}  // namespace dslaunch
