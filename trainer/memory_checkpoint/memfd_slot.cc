#include "trainer/memory_checkpoint/memfd_slot.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/errno_text.h"
#include "proto/contract/worker_env.h"
#include "trainer/base/train_error.h"

namespace dslaunch {

std::unique_ptr<MemfdSlot> MemfdSlot::Open(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw TrainError(ExitCode::kUsage, std::string("environment variable ") + kMemoryFdsVariable +
                                           ": descriptor " + std::to_string(fd) +
                                           " is not memory of the launcher; start the program with "
                                           "dslaunch --memory_checkpoint, which sets it");
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  std::unique_ptr<MemfdSlot> slot(new MemfdSlot(DuplicateFd(fd)));
  struct stat status {};
  if (!slot->fd_ || fstat(slot->fd_.get(), &status) != 0)
    throw TrainError(ExitCode::kIo, "cannot open the memory of copies: " + ErrnoText(errno));
  if (status.st_size > 0) slot->Map(static_cast<size_t>(status.st_size));
  return slot;
}

MemfdSlot::~MemfdSlot() { Unmap(); }

void MemfdSlot::Grow(size_t bytes) {
  if (bytes <= bytes_.size()) return;
  if (ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0)
    throw TrainError(ExitCode::kIo, "cannot enlarge the memory of copies to " +
                                        std::to_string(bytes) + " bytes: " + ErrnoText(errno));
  Unmap();
  Map(bytes);
}

void MemfdSlot::Map(size_t bytes) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (at == MAP_FAILED)
    throw TrainError(ExitCode::kIo, "cannot map the memory of copies, " + std::to_string(bytes) +
                                        " bytes: " + ErrnoText(errno));
  bytes_ = {static_cast<std::byte*>(at), bytes};
}

void MemfdSlot::Unmap() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
  bytes_ = {};
}

}  // namespace dslaunch
