// A checkpoint from which a run or a program starts, written by this program or another.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "dslaunch/engine.h"
#include "dslaunch/process_group.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/engine_state.h"
#include "trainer/config/model_family.h"
#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

struct ResumeSource {
  Checkpoint checkpoint;
  std::string program;                         // "DeepSpeed 0.19.8"; empty if this program wrote it
  std::map<std::string, std::string> aliases;  // ForeignCheckpoint::aliases
  std::vector<std::string> notes;              // ForeignCheckpoint::notes

  bool is_foreign() const { return !program.empty(); }
  bool has_optimizer() const;  // whether it holds state of an optimizer
};

// Whether a folder is a checkpoint of this program, or contains checkpoints.
bool HoldsOwnCheckpoint(const std::string& path);

// Returns "; NOTE" for each note; notes may be sentences.
std::string JoinedNotes(const std::vector<std::string>& notes);

// Collective. Opens the checkpoint at `path`: a checkpoint of this program, of which the ranks
// verify every byte together, a folder of such checkpoints, or anything that PlanForeign reads.
// Throws on every rank: kBadInput if it is something else, incomplete or damaged, or if the
// ranks see different ones; kIo.
ResumeSource OpenResumeSource(const std::string& path, const ProcessGroup& group);

// Throws kBadInput, naming `source`, if the engine's optimizer does not keep the same state.
// Precondition: has_optimizer().
void CheckSameOptimizer(const ResumeSource& source, const EngineCore& engine,
                        const std::string& way_out);

// Collective. Brings the engine to the state of the source. Its names are matched with the model's
// (match_names.h); parts that were dropped from names are added to `notes`, on every rank. Throws
// the errors of RestoreState, and kBadInput, naming the tensors, if the model lacks some or has
// others. With `options.strict` false these are skipped and returned.
SkippedTensors LoadSource(ResumeSource source, const WeightNames& names,
                          const RestoreOptions& options, EngineCore& engine,
                          std::vector<std::string>& notes);

}  // namespace dslaunch
