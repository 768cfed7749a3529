// Manages the two memory slots of a rank, to which its copies are written alternately.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trainer/memory_checkpoint/copy_slot.h"
#include "trainer/memory_checkpoint/slot_header.h"

namespace dslaunch {

// The rank that writes and reads copies.
struct CopyOwner {
  uint64_t attempt = 1;  // number of the current attempt
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint64_t layout = 0;
};

// The copies of a rank's state. Not thread-safe. If the process is killed between any two
// instructions, at least the copy that Keep() or Commit() named last is intact.
class Copies {
 public:
  using Slots = std::array<std::unique_ptr<CopySlot>, 2>;

  Copies(Slots slots, const CopyOwner& owner);

  // Returns the ids of the copies whose headers are intact and have this rank, number of ranks and
  // layout, newest first.
  std::vector<CopyId> Stored() const;
  // Reads a stored copy completely. Returns its bytes if its checksum is correct, else nullopt.
  std::optional<std::span<const std::byte>> Read(const CopyId& id) const;
  // Protects the copy `id`, so that the next Begin() does not overwrite it.
  void Keep(const CopyId& id);

  // Begins a copy in the slot without the protected copy, and returns its `bytes` bytes, which the
  // caller fills before Commit(). The older copy in the slot is lost now. Throws TrainError if the
  // memory cannot be allocated.
  std::span<std::byte> Begin(size_t bytes);
  // Completes the copy that Begin() began, as the state after `step`, and protects it.
  // Precondition: Begin() was called since the last Commit().
  void Commit(int64_t step);

  // Records a completed step in the first page of the first slot.
  void NoteStep(int64_t step);
  // Returns the step that this process or an earlier process has recorded by NoteStep; nullopt if
  // no step is recorded.
  std::optional<int64_t> noted_step() const;

  // Returns the size of both slots in bytes.
  size_t held_bytes() const { return slots_[0]->bytes().size() + slots_[1]->bytes().size(); }

 private:
  // Returns the slot's header if its copy belongs to this owner, else nullopt.
  std::optional<SlotHeader> HeaderOf(size_t slot) const;
  std::optional<size_t> SlotOf(const CopyId& id) const;

  const Slots slots_;
  const CopyOwner owner_;
  size_t next_ = 0;         // index of the slot of the next copy
  size_t begun_bytes_ = 0;  // size of the copy since Begin(); 0 after Commit()
};

}  // namespace dslaunch
