// Keeps copies of a training run's state in the memory of its nodes (run.memory_checkpoint).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <span>
#include <string>

#include "dslaunch/engine.h"
#include "dslaunch/memory_checkpoint.h"
#include "dslaunch/process_group.h"
#include "proto/contract/worker_env.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/engine_state.h"
#include "trainer/config/recipe.h"
#include "trainer/device/copies_beside.h"

namespace dslaunch {

// Makes copies of a rank's part of the state (CaptureCopy) without communication. Two copies are
// written alternately. At least one of them is whole on all ranks if each rank calls Wait() after a
// copy, before it takes part in the step after which the next copy begins.
class MemoryCopies {
 public:
  // Prepares to copy the state. `recipe` must outlive this object. Throws kUsage if the launcher's
  // variables are not valid.
  MemoryCopies(const Recipe& recipe, const WorkerEnv& env);
  // Waits for the copy in progress.
  ~MemoryCopies();
  MemoryCopies(const MemoryCopies&) = delete;
  MemoryCopies& operator=(const MemoryCopies&) = delete;

  // Returns whether the launcher has given this rank memory for copies, and the copies fit into it.
  bool available() const { return memory_.available(); }

  // Returns the newest copy of a step after `after_step` that is whole on every rank, as a
  // checkpoint without folder, files and tensors. Returns null if there is no such copy, as in the
  // first attempt of a job. Collective.
  const Checkpoint* Find(const ProcessGroup& group, int64_t after_step);
  // Returns the last result of Find; null if Find was not called.
  const Checkpoint* found() const { return found_ ? &*found_ : nullptr; }
  // Returns one line about the start from found(). If no launcher prints the number of repeated
  // steps, the line includes this number.
  std::string reason() const;
  // Returns the last step of earlier attempts that this rank recorded; nullopt if unknown.
  std::optional<int64_t> reached_step() const { return memory_.reached_step(); }
  // Restores the engine to the state of found(). Throws kInternal on every rank if a rank's tensors
  // do not match the copy. Collective. Precondition: no copy was begun after Find.
  void Restore(EngineCore& engine);

  // Returns the size in bytes of one copy of this rank.
  uint64_t BytesOf(const EngineCore& engine) const;

  // Completes a manifest in which the engine has set its fields, and sets the tag of a checkpoint
  // of the same state.
  using Describe = std::function<void(Manifest& manifest, std::string& tag)>;
  // Begins a copy of the engine's state, after waiting for the previous copy. On a CPU the state is
  // copied before Begin returns, but for a large copy a thread computes the checksum. On a device a
  // thread makes the copy during the passes that follow, and HoldUpdate() must be called before the
  // next update of the weights.
  void Begin(const EngineCore& engine, const Describe& describe);
  // Makes all later work on the device wait for the device's part of the copy.
  void HoldUpdate() { beside_.Hold(); }
  // Records that a step is complete, for reached_step() of the next attempt. Does nothing while a
  // copy is in progress.
  void NoteStep(int64_t step);
  // Waits until the copy in progress, if any, is complete. Throws the exception of a failed copy.
  void Wait();

 private:
  const Recipe& recipe_;
  const bool reports_;  // true if a launcher prints the number of repeated steps
  MemoryCheckpoint memory_;
  std::optional<Checkpoint> found_;
  std::span<const std::byte> found_bytes_;
  size_t found_text_bytes_ = 0;  // size of the manifest in found_bytes_
  CopiesBeside beside_;
  std::future<void> under_way_;
};

}  // namespace dslaunch
