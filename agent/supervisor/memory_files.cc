#include "agent/supervisor/memory_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace dslaunch {
namespace {

// Creates a file in memory that only this user may open. A file from memfd_create() has a mode that
// lets all users open it, so the mode is changed.
UniqueFd MakeFile() {
  UniqueFd file(memfd_create("dslaunch-memory-checkpoint", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file && (fchmod(file.get(), S_IRUSR | S_IWUSR) != 0 ||
               fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0)) {
    file.Reset();
  }
  return file;
}

}  // namespace

std::optional<std::pair<int, int>> MemoryFiles::Of(uint32_t local_rank) {
  auto found = files_.find(local_rank);
  if (found == files_.end()) {
    UniqueFd first = MakeFile();
    UniqueFd second = first ? MakeFile() : UniqueFd();
    if (!second) return std::nullopt;
    found = files_.emplace(local_rank, std::pair(std::move(first), std::move(second))).first;
  }
  return std::pair(found->second.first.get(), found->second.second.get());
}

}  // namespace dslaunch
