// Keeps copies of a rank's state in the memory of its node. The copies outlive the rank's process,
// so the next attempt of the job continues from a recent step without reading a disk. The launcher
// provides the memory: `dslaunch --memory_checkpoint K --max_restarts N`. The copies are lost if
// the node is lost, and freed when the job ends.
//
//   dslaunch::MemoryCheckpoint memory(DescribeLayout());
//   int64_t step = 0;
//   if (const auto copy = memory.Load(group)) {
//     Restore(copy->bytes);
//     step = copy->step;
//   }
//   while (...) {
//     ...
//     memory.NoteStep(++step);
//     if (memory.IsDue(step)) {
//       const std::span<std::byte> bytes = memory.Begin(size);
//       if (!bytes.empty()) {
//         Fill(bytes);
//         memory.Commit(step);
//       }
//     }
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dslaunch {

class ProcessGroup;
struct MemoryCheckpointParts;

// Writes two copies alternately, so that at least one copy is complete whenever the process is
// killed. At most one object per process. Not thread-safe, but different threads may make the calls
// in turn.
class MemoryCheckpoint {
 public:
  struct Copy {
    int64_t step = 0;
    std::span<const std::byte> bytes;  // copied state of the rank, valid until the next Begin()
  };

  // Uses the memory that the launcher gave to this process (DSLAUNCH_MEMORY_FDS). `layout`
  // describes the bytes of this rank, such as the names, shapes and parts of its tensors. Load()
  // ignores copies with another layout, another rank or another number of ranks.
  explicit MemoryCheckpoint(std::string_view layout);
  ~MemoryCheckpoint();
  MemoryCheckpoint(MemoryCheckpoint&&) noexcept;
  MemoryCheckpoint& operator=(MemoryCheckpoint&&) noexcept;

  // Returns whether this rank can make copies: false without --memory_checkpoint, and after a copy
  // did not fit into the node's memory.
  bool available() const;
  // Returns whether the launcher's --memory_checkpoint asks for a copy after `step`.
  bool IsDue(int64_t step) const;

  // Begins a copy: returns `bytes` bytes (more than 0) to be filled before Commit(). The older copy
  // is lost now. A copy that was begun before and not committed is replaced. Every second call
  // returns the same address, as long as no larger copy is begun. Returns an empty span if not
  // available(), or if the node has no memory for two copies of each of its ranks; in that case a
  // message is printed once.
  std::span<std::byte> Begin(size_t bytes);
  // Completes the copy that Begin() began as the state after `step`. Stores a checksum of the copy.
  void Commit(int64_t step);

  // Returns this rank's copy of the newest step after `after_step` of which every rank holds a copy
  // with a valid checksum; nullopt if there is no such step. Collective, but without communication
  // in the first attempt of a job.
  std::optional<Copy> Load(const ProcessGroup& group, int64_t after_step = 0);
  // Returns why the last Load() returned no copy; the text is the same on all ranks. Empty in the
  // first attempt of a job, and without --memory_checkpoint.
  const std::string& why_none() const;

  // Records that `step` is complete, for the next attempt's reached_step(). Costs two writes to
  // memory.
  void NoteStep(int64_t step);
  // Returns the last step that this rank recorded in an earlier attempt; nullopt if it recorded no
  // step, or if its node was lost.
  std::optional<int64_t> reached_step() const;

 private:
  std::unique_ptr<MemoryCheckpointParts> parts_;
};

}  // namespace dslaunch
