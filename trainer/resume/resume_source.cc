#include "trainer/resume/resume_source.h"

#include <ATen/ATen.h>
#include <strings.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>

#include "base/count.h"
#include "base/text/sanitize.h"
#include "trainer/base/crc32.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/choose_together.h"
#include "trainer/checkpoint/state.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/comm/rank_failure.h"
#include "trainer/foreign/foreign_reader.h"
#include "trainer/foreign/open_foreign.h"
#include "trainer/optim/optimizer.h"
#include "trainer/resume/match_names.h"
#include "trainer/shards/shards.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

std::string Names(const std::vector<std::string>& names) {
  return SanitizeForTerminal(NameList(names, ", ", 5));
}

// Opens a checkpoint of dslaunch, which is the same on all ranks. Collective.
ResumeSource OpenOwn(const std::string& path, const ProcessGroup& group) {
  // A path with and without a trailing slash means the same folder, so a slash is always added.
  const fs::path folder = fs::path(path) / "";
  std::error_code error;
  const bool is_one = fs::exists(folder / kManifestFile, error);
  const fs::path parent = is_one ? folder.parent_path().parent_path() : folder.parent_path();
  const std::string tag = is_one ? folder.parent_path().filename().string() : "";
  CheckpointFolder all(parent.empty() ? "." : parent.string());
  const ResumeDecision decision = ChooseTogether(
      all,
      [&](const CheckpointFolder::Listing& listing, const CheckpointFolder::Judge& judge) {
        return all.ChooseTag(tag, listing, judge);
      },
      group);
  if (!decision.checkpoint) RefuseInput(path + ": " + decision.reason);
  return {.checkpoint = *decision.checkpoint, .program = {}, .aliases = {}, .notes = {}};
}

// Makes a source from a plan. Derives values that the plan lacks from other values: steps from
// updates and the reverse, and the optimizer from the names of its state. Precondition: no file of
// the plan is missing.
ResumeSource FromForeign(ForeignCheckpoint plan) {
  ResumeSource source{.checkpoint = {},
                      .program = plan.program,
                      .aliases = std::move(plan.aliases),
                      .notes = std::move(plan.notes)};
  source.checkpoint = WithReader(std::move(plan));
  Manifest& manifest = source.checkpoint.manifest;
  // The recipe or the program sets the learning rates, so the checkpoint's rates are dropped.
  manifest.learning_rates.clear();
  int64_t& updates = manifest.optimizer_updates;
  int64_t& step = manifest.position.step;
  if (updates == 0) updates = std::max<int64_t>(step - manifest.skipped_steps, 0);
  if (step == 0) step = updates + manifest.skipped_steps;
  if (manifest.scheduled_updates == 0) manifest.scheduled_updates = updates;
  const auto has = [&](const std::string& kind) {
    return std::ranges::any_of(manifest.tensors, [&](const TensorRecord& tensor) {
      return tensor.name.starts_with(kOptimizerPrefix + kind + "/");
    });
  };
  if (manifest.optimizer.empty() && has("exp_avg") && has("exp_avg_sq"))
    manifest.optimizer = "Adam";
  return source;
}

ResumeSource OpenOther(const std::string& path) {
  ForeignCheckpoint plan = OpenForeign(path);
  RequireWhole(path, plan);
  ResumeSource source = FromForeign(std::move(plan));
  std::error_code error;
  // Messages should name the file that the user gave, not its folder.
  if (fs::is_regular_file(path, error)) source.checkpoint.folder = path;
  return source;
}

// Throws if the ranks see different files at `path`. `seen` describes the files that each rank
// sees.
void CheckSameSource(const std::vector<std::string>& seen, const std::string& path) {
  const auto other = std::ranges::find_if(seen, [&](const auto& rank) { return rank != seen[0]; });
  if (other == seen.end()) return;
  RefuseInput(path + ": rank 0 and rank " + std::to_string(other - seen.begin()) +
              " see different checkpoints; all nodes must share the folder, and no program may be "
              "writing it");
}

// Returns the names of the model's tensors on all ranks. Collective.
std::vector<std::string> ModelNames(const EngineCore& engine) {
  std::string own;
  for (const TensorPart& part : engine.ModelState()) own += part.name + "\n";
  const std::set<std::string> names = GatherLines(engine.group(), own);
  return {names.begin(), names.end()};
}

// Renames the manifest's tensors and their optimizer state. `to` maps names in the checkpoint to
// new names. A tensor that `to` lacks keeps its name if `keeps_others` is true, else it is removed.
void Rename(const std::map<std::string, std::string>& to, bool keeps_others, Manifest& manifest) {
  std::vector<TensorRecord> renamed;
  for (TensorRecord& tensor : manifest.tensors) {
    const std::optional<StateName> state = SplitNameOfState(tensor.name);
    const auto found = to.find(state ? state->parameter : tensor.name);
    if (found == to.end() && !keeps_others) continue;
    if (found != to.end()) {
      tensor.name = state ? NameOfState(state->kind, found->second) : found->second;
    }
    renamed.push_back(std::move(tensor));
  }
  manifest.tensors = std::move(renamed);
}

// Throws kBadInput if a second copy of a tensor differs from the first. The ranks divide the blocks
// among themselves. Collective.
void CheckCopies(const Checkpoint& checkpoint, const MatchedNames& matched,
                 const WeightNames& names, const ProcessGroup& group) {
  constexpr int64_t kBlockElements = 1 << 20;
  const auto find = [&](const std::string& name) -> const TensorRecord& {
    return *std::ranges::find(checkpoint.manifest.tensors, name, &TensorRecord::name);
  };
  const auto check = [&](StoredTensors& stored, const std::string& copy,
                         const WeightNames::Copy& meaning) {
    const auto first = matched.in_checkpoint.find(meaning.tensor);
    if (first == matched.in_checkpoint.end()) return;
    const TensorRecord &a = find(copy), &b = find(first->second);
    bool same = a.shape == b.shape && a.dtype == b.dtype;
    const int64_t elements = NumElements(b.shape).value();
    std::string in_a, in_b;
    for (int64_t at = group.rank() * kBlockElements; same && at < elements;
         at += group.world_size() * kBlockElements) {
      const Shard block = Slice(Shard::Whole(elements), at, at + kBlockElements);
      in_a.resize(static_cast<size_t>(block.elements()) * DtypeBytes(a.dtype).value());
      in_b.resize(in_a.size());
      stored.Read(a, block, in_a.data());
      stored.Read(b, block, in_b.data());
      same = in_a == in_b;
    }
    if (!same) RefuseInput(checkpoint.folder + ": tensor " + copy + " " + meaning.difference);
  };
  ThrowFirstFailure(GatherTexts(group, FailureOf([&] {
                                  StoredTensors stored(checkpoint);
                                  for (const auto& [copy, key] : matched.copies) {
                                    check(stored, copy, names.copies.at(key));
                                  }
                                })));
}

// Renames the tensors of another program's checkpoint to the model's names. Collective.
void UseModelNames(const WeightNames& names, bool strict, const EngineCore& engine,
                   ResumeSource& source, std::vector<std::string>& notes) {
  Manifest& manifest = source.checkpoint.manifest;
  std::vector<std::string> theirs;
  for (const TensorRecord& tensor : manifest.tensors) {
    if (IsOfModel(tensor)) theirs.push_back(tensor.name);
  }
  const MatchedNames matched = MatchNames(ModelNames(engine), theirs, source.aliases, names);
  if (strict && !(matched.missing.empty() && matched.extra.empty())) {
    std::string problem;
    if (!matched.missing.empty()) {
      problem = "lacks " + Count(matched.missing.size(), "tensor") + " of the model (" +
                Names(matched.missing) + ")";
    }
    if (!matched.extra.empty()) {
      problem += std::string(problem.empty() ? "" : ", and ") + "has " +
                 Count(matched.extra.size(), "tensor") + " that the model lacks (" +
                 Names(matched.extra) + ")";
    }
    RefuseInput(source.checkpoint.folder + ": " + problem + "; it is of another model");
  }
  CheckCopies(source.checkpoint, matched, names, engine.group());
  std::map<std::string, std::string> renamed;
  for (const auto& [name, original] : matched.in_checkpoint) renamed[original] = name;
  Rename(renamed, /*keeps_others=*/!strict, manifest);
  const std::string dropped = DescribeDropped(matched);
  if (!dropped.empty()) notes.push_back(dropped);
}

// Returns whether two types of optimizers, given by name, have the same state.
bool KeepSameState(const std::string& a, const std::string& b) {
  const auto is = [](const std::string& type, const char* name) {
    return strcasecmp(type.c_str(), name) == 0;
  };
  const auto is_adam = [&](const std::string& type) {
    return is(type, "Adam") || is(type, "AdamW");
  };
  return is(a, b.c_str()) || (is_adam(a) && is_adam(b));
}

}  // namespace

bool ResumeSource::has_optimizer() const {
  return std::ranges::any_of(checkpoint.manifest.tensors, IsOfOptimizer, &TensorRecord::name);
}

bool HoldsOwnCheckpoint(const std::string& path) {
  std::error_code error;
  if (fs::exists(fs::path(path) / kManifestFile, error)) return true;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (fs::exists(entry.path() / kManifestFile, error)) return true;
  }
  return false;
}

std::string JoinedNotes(const std::vector<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes) {
    text += "; " + (note.ends_with('.') ? note.substr(0, note.size() - 1) : note);
  }
  return text;
}

ResumeSource OpenResumeSource(const std::string& path, const ProcessGroup& group) {
  const std::vector<std::string> own =
      GatherTexts(group, HoldsOwnCheckpoint(path) ? "own" : "other");
  CheckSameSource(own, path);
  if (own[0] == "own") return OpenOwn(path, group);
  std::optional<ResumeSource> source;
  ThrowFirstFailure(GatherTexts(group, FailureOf([&] { source = OpenOther(path); })));
  const std::string manifest = source->program + FormatManifest(source->checkpoint.manifest);
  CheckSameSource(GatherTexts(group, std::to_string(Crc32(manifest.data(), manifest.size()))),
                  path);
  return std::move(*source);
}

void CheckSameOptimizer(const ResumeSource& source, const EngineCore& engine,
                        const std::string& way_out) {
  const std::string own = OptimizerTypeName(engine.config().optimizer->type);
  const std::string& theirs = source.checkpoint.manifest.optimizer;
  if (KeepSameState(theirs, own)) return;
  RefuseInput(source.checkpoint.folder + ": was saved with " +
              (theirs.empty() ? "an unknown optimizer" : "the optimizer " + theirs) +
              ", this run has " + own + "; use that optimizer, or " + way_out);
}

SkippedTensors LoadSource(ResumeSource source, const WeightNames& names,
                          const RestoreOptions& options, EngineCore& engine,
                          std::vector<std::string>& notes) {
  if (source.is_foreign()) UseModelNames(names, options.strict, engine, source, notes);
  if (engine.config().optimizer) {
    Manifest& manifest = source.checkpoint.manifest;
    const std::string own = OptimizerTypeName(engine.config().optimizer->type);
    if (KeepSameState(manifest.optimizer, own)) manifest.optimizer = own;
  }
  return RestoreState(source.checkpoint, options, engine);
}

}  // namespace dslaunch
