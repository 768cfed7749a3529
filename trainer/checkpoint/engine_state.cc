#include "trainer/checkpoint/engine_state.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <mutex>

#include "base/deadline.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/agreement.h"
#include "trainer/checkpoint/state.h"
#include "trainer/config/engine_config.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parallel/engine_ranks.h"

namespace dslaunch {
namespace {

// Of this rank alone, hence under a name of its own.
TensorPart GeneratorState(int rank) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  at::Tensor state = generator.get_state();
  const std::vector<int64_t> shape = state.sizes().vec();
  return {.name = kGeneratorPrefix + std::to_string(rank),
          .tensor = std::move(state),
          .shape = shape,
          .replicated = false};
}

void SetGeneratorState(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

CheckpointContent CaptureState(const EngineCore& engine) {
  const EngineConfig& config = engine.config();
  const EngineProgress progress = engine.progress();
  const EngineRanks& ranks = engine.ranks();
  const int rank = ranks.world->rank(), world_size = ranks.world->world_size();
  const auto own_file = [&](const std::string& kind, const std::vector<TensorPart>& state) {
    const std::string stage = ranks.stages == 1 ? "" : "-stage-" + std::to_string(ranks.stage);
    return OwnFile(kind + stage, state, ranks.replicas->rank(), ranks.replicas->world_size());
  };
  CheckpointContent content;
  content.files = {own_file("model", engine.ModelState()),
                   own_file("optimizer", engine.OptimizerState()),
                   OwnFile("generator", {GeneratorState(rank)}, rank, world_size)};
  Manifest& manifest = content.manifest;
  manifest.position.step = progress.steps;
  manifest.optimizer_updates = progress.updates;
  manifest.skipped_steps = progress.skipped;
  manifest.scheduled_updates = progress.scheduled_updates;
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
  manifest.dtype = DtypeName(config.precision.model);
  return content;
}

void AgreeOnChoice(const ResumeDecision& own, const std::string& path, const ProcessGroup& group) {
  // Each rank fills its own place, so the sum is everybody's.
  const auto place = static_cast<size_t>(2 * group.rank());
  std::vector<double> values(2 * static_cast<size_t>(group.world_size()));
  const SeenCheckpoint seen = Seen(own);
  values[place] = seen.step;
  values[place + 1] = seen.identity;
  group.AllReduceSum(values);
  std::vector<SeenCheckpoint> all;
  for (size_t i = 0; i < values.size(); i += 2) all.push_back({values[i], values[i + 1]});
  const std::string problem = Disagreement(path, all);
  if (!problem.empty()) throw TrainError(ExitCode::kBadInput, problem);
  if (own.kind == ResumeDecision::Kind::kRefused) throw TrainError(ExitCode::kBadInput, own.reason);
}

void RestoreState(const Checkpoint& checkpoint, const RestoreOptions& options, EngineCore& engine) {
  const Manifest& manifest = checkpoint.manifest;
  const ProcessGroup& group = engine.group();
  const bool with_optimizer = options.optimizer && !options.weights_only;
  const bool same_ranks =
      manifest.world_size == group.world_size() &&
      std::any_of(manifest.tensors.begin(), manifest.tensors.end(), [](const TensorRecord& tensor) {
        return tensor.name.starts_with(kGeneratorPrefix);
      });
  const bool with_generator = same_ranks && !options.weights_only;

  Checkpoint wanted = checkpoint;
  std::erase_if(wanted.manifest.tensors, [&](const TensorRecord& tensor) {
    return (!with_optimizer && tensor.name.starts_with(kOptimizerPrefix)) ||
           (!with_generator && tensor.name.starts_with(kGeneratorPrefix));
  });
  std::vector<TensorPart> state = engine.ModelState();
  if (with_optimizer) {
    for (TensorPart& part : engine.OptimizerState()) state.push_back(std::move(part));
  }
  if (with_generator) state.push_back(GeneratorState(group.rank()));
  LoadState(wanted, state, group, engine.ranks().replicas->rank());
  if (with_generator) SetGeneratorState(state.back().tensor);
  if (options.weights_only) {
    engine.WeightsChanged();
    return;
  }
  const EngineProgress fresh;
  const LossScalerState& scaler = manifest.loss_scaler;
  engine.Resume(
      {.steps = manifest.position.step,
       .skipped = manifest.skipped_steps,
       .updates = options.optimizer ? manifest.optimizer_updates : fresh.updates,
       .scheduled_updates = options.schedule ? manifest.scheduled_updates : fresh.scheduled_updates,
       .loss_scale = scaler.scale,
       .scaler_iteration = scaler.iteration,
       .scaler_last_overflow = scaler.last_overflow,
       .scaler_hysteresis = scaler.hysteresis});
}

}  // namespace dslaunch
