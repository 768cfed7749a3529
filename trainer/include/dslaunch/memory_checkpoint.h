// Copies of a rank's state in the memory of its node. They outlive the rank's process, so the next
// attempt of the job continues from a recent step without reading a disk. The launcher provides the
// memory: `dslaunch --memory_checkpoint K --max_restarts N`. It is lost with its node, and ends
// with the job.
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

// Two copies in turn, so that one is always whole, wherever the process is killed. One object per
// process; not thread-safe, but each call may be made by another thread.
class MemoryCheckpoint {
 public:
  struct Copy {
    int64_t step = 0;
    std::span<const std::byte> bytes;  // until the next Begin()
  };

  // Uses the memory that the launcher gave to this process (DSLAUNCH_MEMORY_FDS). `layout` states
  // what the bytes of this rank mean, such as names, shapes and parts of its tensors: a copy with
  // another layout, another rank or another number of ranks is not offered to Load().
  explicit MemoryCheckpoint(std::string_view layout);
  ~MemoryCheckpoint();
  MemoryCheckpoint(MemoryCheckpoint&&) noexcept;
  MemoryCheckpoint& operator=(MemoryCheckpoint&&) noexcept;

  // Returns whether this rank can make copies. False without --memory_checkpoint, and once a copy
  // did not fit into the node's memory.
  bool available() const;
  // Returns whether the launcher's --memory_checkpoint asks for a copy after `step`.
  bool IsDue(int64_t step) const;

  // Begins a copy: returns `bytes` bytes (more than 0) to be filled before Commit(). The older copy
  // is lost now; a copy that was begun before and not committed is replaced. Their address is the
  // same each second time, as long as no larger copy is begun. Returns an empty span if not
  // available(), or if the node has no memory for two copies of each of its ranks, which is printed
  // once.
  std::span<std::byte> Begin(size_t bytes);
  // Ends the copy that Begin() began: it is the state after `step`. Takes a checksum of it.
  void Commit(int64_t step);

  // Collective. Returns the newest step beyond `after_step` of which every rank holds a whole copy,
  // as its checksum shows; nullopt if there is none. Does not exchange anything in the first
  // attempt of a job.
  std::optional<Copy> Load(const ProcessGroup& group, int64_t after_step = 0);
  // Returns why the last Load() returned no copy, the same on all ranks; empty in the first attempt
  // of a job, and without --memory_checkpoint.
  const std::string& why_none() const;

  // Records that `step` is complete, for the next attempt's reached_step(). Costs two writes to
  // memory.
  void NoteStep(int64_t step);
  // Returns the last step that this rank recorded in an earlier attempt; nullopt if it recorded
  // none, or its node was lost.
  std::optional<int64_t> reached_step() const;

 private:
  std::unique_ptr<MemoryCheckpointParts> parts_;
};

}  // namespace dslaunch
