// Opens and loads the checkpoint from which a run or a program starts. The checkpoint was written
// by dslaunch or another program.
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
  // Program that wrote the checkpoint, such as "DeepSpeed 0.19.8"; empty if dslaunch wrote it.
  std::string program;
  std::map<std::string, std::string> aliases;  // value of ForeignCheckpoint::aliases
  std::vector<std::string> notes;              // value of ForeignCheckpoint::notes

  bool is_foreign() const { return !program.empty(); }
  bool has_optimizer() const;  // returns whether the checkpoint has optimizer state
};

// Returns whether a folder is a checkpoint of dslaunch or contains such checkpoints.
bool HoldsOwnCheckpoint(const std::string& path);

// Returns "; " followed by the note, for each note, as one string. A note may be a sentence.
std::string JoinedNotes(const std::vector<std::string>& notes);

// Opens the checkpoint at `path`: a checkpoint of dslaunch, of which the ranks together verify
// every byte, a folder of such checkpoints, or anything that PlanForeign can read. Throws on every
// rank: kBadInput if `path` is something else, incomplete or damaged, or if the ranks see different
// checkpoints, and kIo if a file cannot be read. Collective.
ResumeSource OpenResumeSource(const std::string& path, const ProcessGroup& group);

// Throws kBadInput, naming `source`, if the engine's optimizer does not have the same state as the
// source's optimizer. `way_out` is the hint of the message. Precondition: source.has_optimizer().
void CheckSameOptimizer(const ResumeSource& source, const EngineCore& engine,
                        const std::string& way_out);

// Loads the source into the engine. Matches its names with the model's names (match_names.h), and
// adds a note about removed parts of names to `notes`, on every rank. Throws kBadInput on every
// rank, naming the tensors, if the model and the checkpoint do not have the same tensors; if
// `options.strict` is false, tensors that only one of them has are skipped and returned instead.
// Collective.
SkippedTensors LoadSource(ResumeSource source, const WeightNames& names,
                          const RestoreOptions& options, EngineCore& engine,
                          std::vector<std::string>& notes);

}  // namespace dslaunch
