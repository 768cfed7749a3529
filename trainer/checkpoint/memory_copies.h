// The copies of a training run in the memory of its nodes (run.memory_checkpoint).
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

// One for each rank. Each rank copies its part of the state (CaptureCopy) without an exchange. Of
// two copies in turn one is always whole on all ranks, if each rank calls Wait() after one copy and
// before it takes part in the step after which the next one begins.
class MemoryCopies {
 public:
  // `recipe` must outlive this. Throws kUsage if the launcher's variables are not valid.
  MemoryCopies(const Recipe& recipe, const WorkerEnv& env);
  // Waits for the copy under way.
  ~MemoryCopies();
  MemoryCopies(const MemoryCopies&) = delete;
  MemoryCopies& operator=(const MemoryCopies&) = delete;

  // Whether the launcher has given this rank memory for copies, and they fit into it.
  bool available() const { return memory_.available(); }

  // Collective. Looks for the newest copy of a step after `after_step` that every rank holds whole.
  // Returns it as a checkpoint without folder, files and tensors; null if there is none, as in the
  // first attempt of a job.
  const Checkpoint* Find(const ProcessGroup& group, int64_t after_step);
  // Returns what Find returned last.
  const Checkpoint* found() const { return found_ ? &*found_ : nullptr; }
  // Returns one line about the start from found(), with the number of steps that are repeated if no
  // launcher prints it.
  std::string reason() const;
  // Returns the last step of earlier attempts that this rank recorded; nullopt if not known.
  std::optional<int64_t> reached_step() const { return memory_.reached_step(); }
  // Collective. Brings the engine to the state of found(). Throws kInternal on every rank if a
  // rank's tensors are not the copy's. Precondition: no copy was begun after Find.
  void Restore(EngineCore& engine);

  // Returns the bytes of one copy of this rank.
  uint64_t BytesOf(const EngineCore& engine) const;

  // Enters the rest into a manifest that has what the engine knows, and sets the tag of a
  // checkpoint of the same state.
  using Describe = std::function<void(Manifest& manifest, std::string& tag)>;
  // Begins a copy of the engine's state. Waits for the copy before. On a CPU the state is copied
  // when this returns; a thread takes the checksum of a large copy. On a device a thread makes the
  // copy beside the passes that follow, and HoldUpdate() must be called before the next update of
  // the weights.
  void Begin(const EngineCore& engine, const Describe& describe);
  // Orders the work that the device is given from now on after its part of the copy.
  void HoldUpdate() { beside_.Hold(); }
  // Records that a step is complete, for reached_step() of the next attempt. While a copy is under
  // way, the step is left out.
  void NoteStep(int64_t step);
  // Waits until the copy under way, if there is one, is whole. Throws its failure.
  void Wait();

 private:
  const Recipe& recipe_;
  const bool reports_;  // to a launcher, which prints what is repeated
  MemoryCheckpoint memory_;
  std::optional<Checkpoint> found_;
  std::span<const std::byte> found_bytes_;
  size_t found_text_bytes_ = 0;  // size of its manifest
  CopiesBeside beside_;
  std::future<void> under_way_;
};

}  // namespace dslaunch
