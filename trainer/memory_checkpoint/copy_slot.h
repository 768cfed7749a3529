// Defines the interface to the memory in which one copy of a rank's state is stored. The only
// implementation uses memory of the rank's own node. A copy in the memory of a neighboring node,
// which would survive the loss of a node, would be another implementation.
#pragma once

#include <cstddef>
#include <span>

namespace dslaunch {

// The memory of one copy. Not thread-safe.
class CopySlot {
 public:
  virtual ~CopySlot() = default;

  // Returns the slot's bytes, which begin with a header (slot_header.h). Empty if nothing is stored
  // yet or the slot cannot be read.
  virtual std::span<std::byte> bytes() = 0;
  // Enlarges the slot to at least `bytes`. The slot's memory moves only if the slot grows. Throws
  // TrainError kIo if the memory cannot be allocated.
  virtual void Grow(size_t bytes) = 0;
};

}  // namespace dslaunch
