// Implements a slot in a memory file (memfd_create) that the rank's supervisor created and keeps
// open.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/unique_fd.h"
#include "trainer/memory_checkpoint/copy_slot.h"

namespace dslaunch {

class MemfdSlot final : public CopySlot {
 public:
  // Returns a slot that uses a duplicate of `fd`, which the process inherited. Sets close-on-exec
  // for `fd`, so that programs that the rank starts do not keep the memory. Throws TrainError
  // kUsage unless `fd` is a memory file that cannot shrink, because reading a file that shrinks
  // might end the process with SIGBUS.
  static std::unique_ptr<MemfdSlot> Open(int fd);
  ~MemfdSlot() override;
  MemfdSlot(const MemfdSlot&) = delete;
  MemfdSlot& operator=(const MemfdSlot&) = delete;

  std::span<std::byte> bytes() override { return bytes_; }
  void Grow(size_t bytes) override;

 private:
  explicit MemfdSlot(UniqueFd fd) : fd_(std::move(fd)) {}
  void Map(size_t bytes);
  void Unmap();

  const UniqueFd fd_;
  std::span<std::byte> bytes_;
};

}  // namespace dslaunch
