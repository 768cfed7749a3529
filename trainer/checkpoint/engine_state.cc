#include "trainer/checkpoint/engine_state.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <set>

#include "base/deadline.h"
#include "trainer/base/log.h"
#include "trainer/checkpoint/state.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/config/engine_config.h"
#include "trainer/config/lora_config.h"
#include "trainer/mesh/mesh_groups.h"
#include "trainer/optim/optimizer.h"

namespace dslaunch {
namespace {

// Returns the name of the generator state of `rank`. Each rank saves its own generator.
std::string GeneratorName(int rank) { return kGeneratorPrefix + std::to_string(rank); }

// Returns the rank whose generator state `rank` restores. Ranks that divide layers must draw the
// same numbers, even if the saved run did not divide layers, so they restore the same state.
int RankOfFirstPart(const Mesh& mesh, int rank) {
  MeshPlace place = mesh.PlaceOf(rank);
  place.part = 0;
  return mesh.RankOf(place);
}

TensorPart GeneratorState(int rank) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  TensorPart part = TensorPart::Whole(GeneratorName(rank), generator.get_state());
  part.replicated = false;
  return part;
}

void SetGeneratorState(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

// Returns whether a tensor of a checkpoint is a parameter or buffer in `names`, or the optimizer
// state of one ("optimizer/exp_avg/fc1.weight").
bool BelongsTo(const std::set<std::string>& names, const std::string& tensor) {
  const std::optional<StateName> state = SplitNameOfState(tensor);
  return names.contains(state ? state->parameter : tensor);
}

// Returns the tensors of the model that a checkpoint contains.
std::vector<TensorPart> SavedModel(const EngineCore& engine, bool adapters_only) {
  std::vector<TensorPart> state = engine.ModelState();
  if (adapters_only) {
    std::erase_if(state, [](const TensorPart& part) { return !IsAdapterTensor(part.name); });
  }
  return state;
}

// Removes the model's tensors that only the manifest or only `state` has, together with their
// optimizer state, and returns their names. Collective.
SkippedTensors DropUnmatched(const ProcessGroup& group, const std::vector<TensorPart>& model,
                             Manifest& manifest, std::vector<TensorPart>& state) {
  std::string own;
  for (const TensorPart& part : model) own += part.name + "\n";
  const std::set<std::string> ours = GatherLines(group, own);
  std::set<std::string> theirs;
  for (const TensorRecord& tensor : manifest.tensors) {
    if (IsOfModel(tensor)) theirs.insert(tensor.name);
  }
  SkippedTensors skipped;
  std::ranges::set_difference(ours, theirs, std::back_inserter(skipped.missing));
  std::ranges::set_difference(theirs, ours, std::back_inserter(skipped.unexpected));
  const std::set<std::string> missing(skipped.missing.begin(), skipped.missing.end());
  const std::set<std::string> unexpected(skipped.unexpected.begin(), skipped.unexpected.end());
  std::erase_if(state, [&](const TensorPart& part) { return BelongsTo(missing, part.name); });
  std::erase_if(manifest.tensors,
                [&](const TensorRecord& tensor) { return BelongsTo(unexpected, tensor.name); });
  return skipped;
}

// Names of optimizer tensors that only the run or only the checkpoint has.
struct UnmatchedOptimizer {
  std::set<std::string> missing;     // names of optimizer tensors that only the run has
  std::set<std::string> unexpected;  // names of optimizer tensors that only the checkpoint has
};

// Removes the optimizer's tensors that only the manifest or only `state` has, so that a run
// continues with the others, and returns their names. Removes nothing if the optimizer has another
// type, so that loading fails. Collective.
UnmatchedOptimizer DropUnmatchedOptimizer(const EngineCore& engine, Manifest& manifest,
                                          std::vector<TensorPart>& state) {
  UnmatchedOptimizer unmatched;
  auto& [missing, unexpected] = unmatched;
  if (manifest.optimizer != OptimizerTypeName(engine.config().optimizer->type)) return unmatched;
  std::string own;
  for (const TensorPart& part : state) {
    if (IsOfOptimizer(part.name)) own += part.name + "\n";
  }
  const std::set<std::string> ours = GatherLines(engine.group(), own);
  std::set<std::string> theirs;
  for (const TensorRecord& tensor : manifest.tensors) {
    if (IsOfOptimizer(tensor.name)) theirs.insert(tensor.name);
  }
  std::ranges::set_difference(ours, theirs, std::inserter(missing, missing.end()));
  std::ranges::set_difference(theirs, ours, std::inserter(unexpected, unexpected.end()));
  std::erase_if(state, [&](const TensorPart& part) { return missing.contains(part.name); });
  std::erase_if(manifest.tensors,
                [&](const TensorRecord& tensor) { return unexpected.contains(tensor.name); });
  return unmatched;
}

// Prints how the optimizer state differs from the checkpoint's, which has the same model and type
// of optimizer.
void PrintUnmatched(const UnmatchedOptimizer& unmatched) {
  const auto example = [](const std::set<std::string>& names) {
    return std::to_string(names.size()) + (names.size() == 1 ? " tensor" : " tensors") +
           " of the optimizer's state, such as " +
           names.begin()->substr(std::size(kOptimizerPrefix) - 1);
  };
  const std::string reason =
      " (the optimizer's settings or the trained parameters have changed since)";
  if (!unmatched.missing.empty()) {
    PrintLine("dslaunch: the checkpoint lacks " + example(unmatched.missing) +
              ", which start at zero" + reason);
  }
  if (!unmatched.unexpected.empty()) {
    PrintLine("dslaunch: this run does not need " + example(unmatched.unexpected) +
              ", in the checkpoint" + reason);
  }
}

// Removes rank state unless both `state` and the manifest have it in the same shape; a run can
// restart such state. Returns the names that were removed from `state`. Removes all rank state
// unless `wanted`.
std::set<std::string> DropOtherRankState(const ProcessGroup& group, bool wanted, Manifest& manifest,
                                         std::vector<TensorPart>& state) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const TensorRecord& tensor : manifest.tensors) {
    if (wanted && tensor.name.starts_with(kRankPrefix)) shapes[tensor.name] = tensor.shape;
  }
  std::set<std::string> kept, lost;
  for (const TensorPart& part : state) {
    const auto found = shapes.find(part.name);
    const bool fits = found != shapes.end() && found->second == part.shape;
    (fits ? kept : lost).insert(part.name);
  }
  std::erase_if(state, [&](const TensorPart& part) { return lost.contains(part.name); });
  std::erase_if(manifest.tensors, [&](const TensorRecord& tensor) {
    return tensor.name.starts_with(kRankPrefix) && !kept.contains(tensor.name);
  });
  if (wanted && !lost.empty() && group.rank() == 0) {
    PrintLine("dslaunch: the checkpoint lacks " + std::to_string(lost.size()) +
              " tensors that ranks keep of their own (another number of ranks, or another way to "
              "exchange), such as " +
              lost.begin()->substr(std::size(kRankPrefix) - 1) + "; they restart");
  }
  return lost;
}

// Returns the progress to resume from, without the learning rates.
EngineProgress SavedProgress(const Manifest& manifest, const RestoreOptions& options) {
  const LossScalerState& scaler = manifest.loss_scaler;
  EngineProgress progress;
  progress.steps = manifest.position.step;
  progress.skipped = manifest.skipped_steps;
  if (options.optimizer) progress.updates = manifest.optimizer_updates;
  if (options.schedule) progress.scheduled_updates = manifest.scheduled_updates;
  progress.loss_scale = scaler.scale;
  progress.scaler_iteration = scaler.iteration;
  progress.scaler_last_overflow = scaler.last_overflow;
  progress.scaler_hysteresis = scaler.hysteresis;
  return progress;
}

// Returns the learning rates that the program had set before the save. Returns an empty list, and
// prints the reason on rank 0, if this engine cannot set them.
std::vector<double> UsableRates(const Manifest& manifest, const EngineCore& engine) {
  const std::vector<double>& rates = manifest.learning_rates;
  if (rates.empty()) return {};
  const bool scheduled = !engine.config().scheduler.name.empty();
  if (!scheduled && rates.size() == engine.GetLearningRates().size()) return rates;
  if (engine.group().rank() == 0) {
    PrintLine("dslaunch: the program had set " + std::to_string(rates.size()) +
              " learning rates before the checkpoint; " +
              (scheduled ? "the scheduler " + engine.config().scheduler.name + " sets them now"
                         : "the optimizer has other groups now, so the configuration's rates "
                           "are used"));
  }
  return {};
}

// Returns a manifest with all fields that the engine can set.
Manifest DescribeEngine(const EngineCore& engine, int world_size) {
  const EngineConfig& config = engine.config();
  const EngineProgress progress = engine.progress();
  Manifest manifest;
  manifest.position.step = progress.steps;
  manifest.optimizer_updates = progress.updates;
  manifest.skipped_steps = progress.skipped;
  manifest.scheduled_updates = progress.scheduled_updates;
  manifest.learning_rates = progress.learning_rates;
  manifest.next_rates = engine.GetLearningRates();
  manifest.optimizer = config.optimizer ? OptimizerTypeName(config.optimizer->type) : "";
  manifest.loss_scaler = {.scale = progress.loss_scale,
                          .iteration = progress.scaler_iteration,
                          .last_overflow = progress.scaler_last_overflow,
                          .hysteresis = progress.scaler_hysteresis};
  manifest.world_size = world_size;
  manifest.train_batch_size = config.batch.train_batch_size;
  manifest.saved_ms = UnixMs();
  manifest.micro_steps = engine.micro_steps();
  manifest.zero_stage = config.zero.stage;
  manifest.pipeline_stages = engine.ranks().mesh().pipeline;
  manifest.dtype = DtypeName(config.precision.model);
  return manifest;
}

// Engine tensors to copy, before the `replicated` tensors are divided among ranks.
struct CopiedTensors {
  // Tensors for the members of StateCopy with the same names.
  std::vector<TensorPart> settled, others;
};

CopiedTensors TensorsToCopy(const EngineCore& engine, bool adapters_only) {
  CopiedTensors tensors;
  // RankState also contains the weights if ranks train independently, so a tensor may occur twice
  // and is added once.
  std::set<std::pair<const void*, int64_t>> known;
  const auto add = [&](std::vector<TensorPart> state, bool only_updates_change_it) {
    for (TensorPart& part : state) {
      const int64_t elements = part.tensor.numel();
      if (elements == 0 || !known.emplace(part.tensor.const_data_ptr(), elements).second) continue;
      // Each rank reads only its own copy, so each rank copies its own running means.
      part.is_canonical = true;
      const bool is_own = part.rank0_authoritative;
      part.rank0_authoritative = false;
      if (is_own) part.replicated = false;
      (only_updates_change_it && !is_own ? tensors.settled : tensors.others)
          .push_back(std::move(part));
    }
  };
  add(SavedModel(engine, adapters_only), /*only_updates_change_it=*/true);
  add(engine.OptimizerState(), /*only_updates_change_it=*/true);
  add(engine.RankState(), /*only_updates_change_it=*/false);
  return tensors;
}

// Returns the parts of `state` that the rank with index `replica` copies.
std::vector<TensorPart> ShareOf(const EngineCore& engine, const std::vector<TensorPart>& state,
                                int replica) {
  return OwnFile("copy", state, replica, engine.ranks().data().world_size(), kMinCopyShareBytes)
      .parts;
}

}  // namespace

CheckpointContent CaptureState(const EngineCore& engine, const ProcessGroup& savers,
                               bool adapters_only) {
  const MeshGroups& ranks = engine.ranks();
  const int rank = savers.rank(), world_size = savers.world_size();
  const ProcessGroup& replicas = world_size == ranks.world().world_size() ? ranks.data() : savers;
  const auto own_file = [&](const std::string& kind, const std::vector<TensorPart>& state) {
    const Mesh& mesh = ranks.mesh();
    std::string name = kind;
    if (mesh.pipeline > 1) name += "-stage-" + std::to_string(ranks.place().stage);
    if (mesh.tensor > 1) name += "-part-" + std::to_string(ranks.place().part);
    return OwnFile(name, state, replicas.rank(), replicas.world_size());
  };
  CheckpointContent content;
  content.files = {own_file("model", SavedModel(engine, adapters_only)),
                   own_file("optimizer", engine.OptimizerState()),
                   own_file("rank_state", engine.RankState()),
                   OwnFile("generator", {GeneratorState(rank)}, rank, world_size)};
  content.manifest = DescribeEngine(engine, world_size);
  return content;
}

StateCopy CaptureCopy(const EngineCore& engine, bool adapters_only) {
  const CopiedTensors tensors = TensorsToCopy(engine, adapters_only);
  const int replica = engine.ranks().data().rank();
  StateCopy copy = {.manifest = DescribeEngine(engine, engine.group().world_size()),
                    .settled = ShareOf(engine, tensors.settled, replica),
                    .others = ShareOf(engine, tensors.others, replica)};
  copy.others.push_back(GeneratorState(engine.group().rank()));
  return copy;
}

void RestoreCopy(const Manifest& manifest, bool adapters_only, const FillTensor& fill,
                 EngineCore& engine) {
  const at::NoGradGuard no_grad;
  const StateCopy own = CaptureCopy(engine, adapters_only);
  for (const TensorPart& part : own.settled) fill(part);
  for (const TensorPart& part : own.others) fill(part);
  const ProcessGroup& replicas = engine.ranks().data();
  const CopiedTensors tensors = TensorsToCopy(engine, adapters_only);
  for (const std::vector<TensorPart>* state : {&tensors.settled, &tensors.others}) {
    for (int replica = 0; replica < replicas.world_size(); ++replica) {
      for (TensorPart& part : ShareOf(engine, *state, replica)) {
        if (part.replicated && replicas.world_size() > 1) replicas.Broadcast(part.tensor, replica);
      }
    }
  }
  SetGeneratorState(own.others.back().tensor);
  EngineProgress progress = SavedProgress(manifest, {});
  progress.learning_rates = UsableRates(manifest, engine);
  engine.Resume(progress);
}

SkippedTensors RestoreState(const Checkpoint& checkpoint, const RestoreOptions& options,
                            EngineCore& engine) {
  const Manifest& manifest = checkpoint.manifest;
  const ProcessGroup& group = engine.group();
  const bool with_optimizer = options.optimizer && !options.weights_only;
  if (with_optimizer && !engine.config().optimizer) {
    throw TrainError(ExitCode::kBadInput,
                     checkpoint.folder +
                         ": a checkpoint holds no state of an optimizer that the "
                         "program gave (InitializeOptions::make_optimizer); set "
                         "LoadCheckpointOptions::load_optimizer_states to false");
  }
  const bool same_ranks =
      manifest.world_size == group.world_size() &&
      std::any_of(manifest.tensors.begin(), manifest.tensors.end(), [](const TensorRecord& tensor) {
        return tensor.name.starts_with(kGeneratorPrefix);
      });
  const bool with_generator = same_ranks && !options.weights_only;

  Checkpoint wanted = checkpoint;
  std::set<std::string> generators;  // names of the generator states that ranks restore
  for (int rank = 0; with_generator && rank < group.world_size(); ++rank) {
    generators.insert(GeneratorName(RankOfFirstPart(engine.ranks().mesh(), rank)));
  }
  std::erase_if(wanted.manifest.tensors, [&](const TensorRecord& tensor) {
    return (!with_optimizer && IsOfOptimizer(tensor.name)) ||
           (tensor.name.starts_with(kGeneratorPrefix) && !generators.contains(tensor.name));
  });
  const std::vector<TensorPart> model = SavedModel(engine, options.adapters_only);
  std::vector<TensorPart> state = model;
  if (with_optimizer) {
    for (TensorPart& part : engine.OptimizerState()) state.push_back(std::move(part));
  }
  SkippedTensors skipped;
  if (!options.strict) {
    skipped = DropUnmatched(group, model, wanted.manifest, state);
  }
  UnmatchedOptimizer unmatched;
  if (with_optimizer) unmatched = DropUnmatchedOptimizer(engine, wanted.manifest, state);
  std::vector<TensorPart> rank_state = engine.RankState();
  const std::set<std::string> without =
      DropOtherRankState(group, with_optimizer, wanted.manifest, rank_state);
  for (TensorPart& part : rank_state) state.push_back(std::move(part));
  if (with_generator)
    state.push_back(GeneratorState(RankOfFirstPart(engine.ranks().mesh(), group.rank())));
  LoadState(wanted, state, group, engine.ranks().data().rank());
  if (group.rank() == 0) PrintUnmatched(unmatched);
  if (with_generator) SetGeneratorState(state.back().tensor);
  if (options.weights_only) {
    engine.Resume(engine.progress(), without);
    return skipped;
  }
  EngineProgress progress = SavedProgress(manifest, options);
  if (with_optimizer) progress.learning_rates = UsableRates(manifest, engine);
  engine.Resume(progress, without);
  return skipped;
}

}  // namespace dslaunch
