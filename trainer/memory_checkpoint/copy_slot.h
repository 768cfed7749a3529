// Where one copy of a rank's state is stored. Today that is memory of the rank's own node; a copy
// in the memory of a neighbour, which survives the loss of a node, would be another class here.
#pragma once

#include <cstddef>
#include <span>

namespace dslaunch {

// Not thread-safe.
class CopySlot {
 public:
  virtual ~CopySlot() = default;

  // Returns the slot's bytes, with its header (slot_header.h). Empty if nothing was stored yet, or
  // it cannot be read.
  virtual std::span<std::byte> bytes() = 0;
  // Makes the slot at least this large; its bytes move only if it grows. Throws TrainError kIo.
  virtual void Grow(size_t bytes) = 0;
};

}  // namespace dslaunch
