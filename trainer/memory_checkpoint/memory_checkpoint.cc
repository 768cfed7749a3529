#include "dslaunch/memory_checkpoint.h"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/count.h"
#include "base/os/node_memory.h"
#include "base/text/size_text.h"
#include "dslaunch/process_group.h"
#include "proto/contract/status_line.h"
#include "proto/contract/worker_env.h"
#include "trainer/base/log.h"
#include "trainer/base/status_writer.h"
#include "trainer/base/train_error.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/memory_checkpoint/agreement.h"
#include "trainer/memory_checkpoint/copies.h"
#include "trainer/memory_checkpoint/memfd_slot.h"

namespace dslaunch {

struct MemoryCheckpointParts {
  WorkerEnv env;
  std::optional<Copies> copies;  // nullopt if this rank cannot store copies
  size_t largest_bytes = 0;      // size of the largest copy for which the node had room
  std::optional<int64_t> reached_step;
  std::string why_none;
  StatusWriter status;
};

namespace {

std::string StepText(const CopyId& copy) { return "step " + std::to_string(copy.step); }

// Returns the reason why this machine has too little memory for two copies of `bytes` bytes for
// each of its ranks; an empty string if it has enough. `held` is the number of bytes that this
// rank's copies already occupy. Assumes that every rank of the machine calls this at about the same
// time.
std::string WhyNoRoom(const WorkerEnv& env, size_t bytes, size_t held) {
  const auto ranks =
      static_cast<uint64_t>(env.nodes_share_machine() ? env.world_size : env.local_world_size);
  const uint64_t needed = 2 * uint64_t{bytes} * ranks;
  const uint64_t available = ReadNodeMemory().available_bytes;
  if (available == 0 || needed <= available + held * ranks) return "";
  return "two copies of " + Count(ranks, "rank") + " take " + SizeText(needed) +
         ", and this node has " + SizeText(available) + " of memory available";
}

}  // namespace

MemoryCheckpoint::MemoryCheckpoint(std::string_view layout)
    : parts_(std::make_unique<MemoryCheckpointParts>()) {
  const Result<WorkerEnv> env = WorkerEnv::FromEnviron(std::getenv);
  if (!env.ok()) throw TrainError(env.error().code, env.error().message);
  parts_->env = *env;
  if (!env->memory_fds) return;
  parts_->copies.emplace(Copies::Slots{MemfdSlot::Open(env->memory_fds->first),
                                       MemfdSlot::Open(env->memory_fds->second)},
                         CopyOwner{.attempt = env->attempt,
                                   .rank = static_cast<uint32_t>(env->rank),
                                   .world_size = static_cast<uint32_t>(env->world_size),
                                   .layout = LayoutHash(layout)});
  parts_->reached_step = parts_->copies->noted_step();
}

MemoryCheckpoint::~MemoryCheckpoint() = default;
MemoryCheckpoint::MemoryCheckpoint(MemoryCheckpoint&&) noexcept = default;
MemoryCheckpoint& MemoryCheckpoint::operator=(MemoryCheckpoint&&) noexcept = default;

bool MemoryCheckpoint::available() const { return parts_->copies.has_value(); }

bool MemoryCheckpoint::IsDue(int64_t step) const {
  const int64_t interval = parts_->env.memory_checkpoint;
  return available() && interval > 0 && step % interval == 0;
}

std::span<std::byte> MemoryCheckpoint::Begin(size_t bytes) {
  if (!available()) return {};
  if (bytes > parts_->largest_bytes) {
    const std::string why = WhyNoRoom(parts_->env, bytes, parts_->copies->held_bytes());
    if (!why.empty()) {
      PrintError("rank " + std::to_string(parts_->env.rank) +
                 ": continuing without memory checkpoints: " + why);
      parts_->copies.reset();
      return {};
    }
    parts_->largest_bytes = bytes;
  }
  return parts_->copies->Begin(bytes);
}

void MemoryCheckpoint::Commit(int64_t step) {
  if (!available()) return;
  parts_->copies->Commit(step);
  parts_->status.Write({.event = StatusLine::Event::kCopied, .step = step});
}

std::optional<MemoryCheckpoint::Copy> MemoryCheckpoint::Load(const ProcessGroup& group,
                                                             int64_t after_step) {
  parts_->why_none.clear();
  // Unlike available(), this condition is the same on all ranks, so either all ranks exchange
  // offers or no rank does.
  if (parts_->env.memory_checkpoint == 0 || parts_->env.attempt == 1) return std::nullopt;
  CopyOffer own;
  if (available()) own.copies = parts_->copies->Stored();
  std::erase_if(own.copies, [&](const CopyId& copy) { return copy.step <= after_step; });
  std::span<const std::byte> bytes;
  while (true) {
    std::vector<CopyOffer> offers;
    for (const std::string& text : GatherTexts(group, own.ToText()))
      offers.push_back(CopyOffer::FromText(text).value_or(CopyOffer()));
    const CopyChoice choice = ChooseCopy(offers);
    if (!choice.copy) {
      parts_->why_none = choice.why_none;
      return std::nullopt;
    }
    const CopyId copy = *choice.copy;
    if (choice.is_final) {
      parts_->copies->Keep(copy);
      if (group.rank() == 0) {
        parts_->status.Write({.event = StatusLine::Event::kRestored,
                              .step = copy.step,
                              .from_memory = true,
                              .reached_step = reached_step()});
      }
      return Copy{copy.step, bytes};
    }
    if (own.verified == copy) continue;  // another rank has not verified the copy yet
    if (const auto read = parts_->copies->Read(copy)) {
      bytes = *read;
      own.verified = copy;
    } else {
      PrintError("rank " + std::to_string(parts_->env.rank) + ": the copy of " + StepText(copy) +
                 " in memory is damaged: its checksum is wrong");
      std::erase(own.copies, copy);
    }
  }
}

const std::string& MemoryCheckpoint::why_none() const { return parts_->why_none; }

void MemoryCheckpoint::NoteStep(int64_t step) {
  if (available()) parts_->copies->NoteStep(step);
}

std::optional<int64_t> MemoryCheckpoint::reached_step() const { return parts_->reached_step; }

}  // namespace dslaunch
