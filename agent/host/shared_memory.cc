#include "agent/host/shared_memory.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <csignal>

namespace dslaunch {
namespace {

constexpr uint64_t kMiB = 1 << 20;
// Size of /dev/shm in containers by default; up to this size counts as small.
constexpr uint64_t kSmallBytes = 64 * kMiB;
// Reciprocal of the free part below which /dev/shm counts as full. The failed program has already
// freed its memory, so the limit is not 0.
constexpr uint64_t kFullPart = 16;

// Texts in messages of PyTorch and Python about a child process that got SIGBUS, or about shared
// memory for tensors that could not be allocated.
constexpr std::string_view kTexts[] = {"Bus error", "SIGBUS", "/dev/shm", "shared memory(shm)",
                                       "</torch_"};

}  // namespace

std::optional<SharedMemorySpace> ReadSharedMemorySpace() {
  struct statvfs status {};
  if (statvfs("/dev/shm", &status) != 0) return std::nullopt;
  return SharedMemorySpace{uint64_t{status.f_bavail} * status.f_frsize,
                           uint64_t{status.f_blocks} * status.f_frsize};
}

std::optional<std::string> SharedMemoryEvidence(int signal, std::string_view last_lines,
                                                const std::optional<SharedMemorySpace>& space) {
  const bool is_about_it =
      signal == SIGBUS || std::ranges::any_of(kTexts, [&](std::string_view text) {
        return last_lines.find(text) != std::string_view::npos;
      });
  if (!is_about_it || !space || space->total_bytes == 0) return std::nullopt;
  const bool is_full = space->free_bytes < space->total_bytes / kFullPart;
  if (!is_full && space->total_bytes > kSmallBytes) return std::nullopt;
  return std::string("/dev/shm is ") + (is_full ? "full" : "small") + " (" +
         std::to_string(space->free_bytes / kMiB) + " of " +
         std::to_string(space->total_bytes / kMiB) +
         " MiB are free); a program that writes more than fits gets SIGBUS; give it more: "
         "docker run --shm-size 16g, or mount -o remount,size=16g /dev/shm";
}

}  // namespace dslaunch
