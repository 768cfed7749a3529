#include "trainer/pipeline/pipeline_engine.h"

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "trainer/base/by_rank.h"
#include "trainer/base/train_error.h"
#include "trainer/comm/gather_texts.h"
#include "trainer/comm/numbers.h"
#include "trainer/comm/rank_failure.h"
#include "trainer/engine/pipeline_peers.h"
#include "trainer/engine/read_config.h"
#include "trainer/mesh/mesh_groups.h"
#include "trainer/pipeline/layer_run.h"
#include "trainer/pipeline/schedule.h"
#include "trainer/pipeline/stage_batch.h"
#include "trainer/pipeline/stage_link.h"

namespace dslaunch {
namespace {

// Returns `config` with the settings of `module`, which override those of the configuration. Throws
// if both set a different number of stages.
EngineConfig WithModule(EngineConfig config, const PipelineModule& module) {
  PipelineConfig& pipeline = config.pipeline;
  if (module.num_stages > 0 && module.num_stages != pipeline.stages) {
    RefuseInput("PipelineModule::num_stages is " + std::to_string(module.num_stages) +
                ", but the configuration's pipeline.stages is " + std::to_string(pipeline.stages) +
                "; leave one of them out");
  }
  if (!module.partition.empty()) pipeline.partition = module.partition;
  if (module.activation_checkpoint_interval >= 0) {
    pipeline.activation_checkpoint_interval = module.activation_checkpoint_interval;
  }
  return config;
}

// Returns make(). The other ranks would wait for a rank that throws, so an error on one rank is
// thrown on every rank.
template <class Make>
auto MakeOnAll(const ProcessGroup& group, Make make) {
  std::optional<decltype(make())> made;
  ThrowFirstFailure(GatherTexts(group, FailureOf([&] { made.emplace(make()); })));
  return *std::move(made);
}

// Returns the seconds that rank 0 has measured for each layer; empty unless the partition is
// "profile". Ranks measure different times but must cut the model in the same way, so only rank 0
// measures.
std::vector<double> SecondsOfLayers(const PipelineModule& module, const EngineConfig& config,
                                    const ProcessGroup& group) {
  if (config.pipeline.partition != "profile") return {};
  std::vector<double> seconds = MakeOnAll(group, [&] {
    return group.rank() == 0 ? ProfileLayers(module, module.sample, group.device())
                             : std::vector<double>(module.layers.size());
  });
  at::Tensor values =
      at::from_blob(seconds.data(), {static_cast<int64_t>(seconds.size())}, at::kDouble);
  group.Broadcast(values, /*root=*/0);
  return seconds;
}

std::shared_ptr<const MeshGroups> WithCut(std::shared_ptr<MeshGroups> ranks, ModelCut cut) {
  ranks->SetCut(std::move(cut));
  return ranks;
}

}  // namespace

class PipelineEngine::Impl {
 public:
  Impl(StageParts parts, PipelineLoss loss, const EngineConfig& config,
       std::shared_ptr<MeshGroups> ranks)
      : config_(config.pipeline),
        module_(std::move(parts.module)),
        texts_(std::move(parts.parts)),
        core_(config, *module_, WithCut(std::move(ranks), std::move(parts.cut)), Passes::kBatches,
              parts.deferred ? &*parts.deferred : nullptr),
        link_(core_.group(), [this](int rank) { return NameOf(rank); }),
        stage_{.place = core_.ranks().place(),
               .chunks = std::move(parts.chunks),
               .buffers = module_->buffers(),
               .loss = std::move(loss),
               .recompute_interval = config_.activation_checkpoint_interval,
               .seed = BorrowedGenerator().seed(),
               .core = core_,
               .link = link_},
        train_plan_(MakePipelineSchedule(config_.schedule, mesh().pipeline,
                                         static_cast<int>(core_.accumulation_steps()),
                                         static_cast<int>(config_.virtual_stages)),
                    stage_.place.stage) {
    link_.Connect(Neighbours());
  }

  double TrainBatch(const MicroBatchSource& next) {
    if (!module_->is_training()) {
      RefuseInput(
          "TrainBatch was called while the model is in evaluation mode: call SetTrain(true)");
    }
    return Mean(Run(train_plan_, BatchPurpose::kTrain, next));
  }

  double EvalBatch(const MicroBatchSource& next, int64_t micro_batches) {
    if (micro_batches < 1) {
      RefuseInput("EvalBatch was called for " + std::to_string(micro_batches) +
                  " micro-batches; at least one is needed");
    }
    const bool trained = module_->is_training();
    const SavedWeights saved(core_);
    core_.SetTrain(false);
    const double mean = Mean(Run(ForwardPlan(micro_batches), BatchPurpose::kEvaluate, next));
    core_.SetTrain(trained);
    return mean;
  }

  Tensors Infer(const Tensors& inputs) {
    const MicroBatchSource source = [&] { return MicroBatch{inputs, {}}; };
    const StageBatch batch = Run(ForwardPlan(1), BatchPurpose::kInfer, source);
    return ToAllStages(batch.outputs());
  }

  const Mesh& mesh() const { return core_.ranks().mesh(); }
  bool is_last_stage() const { return stage_.place.stage == mesh().pipeline - 1; }

  const PipelineConfig config_;
  const std::shared_ptr<torch::nn::Module> module_;
  // Descriptions of all parts of the model (StageParts::parts).
  const std::vector<std::string> texts_;
  EngineCore core_;
  StageLink link_;
  const Stage stage_;

 private:
  // Returns the name of a rank in messages, such as "stage 1 (rank 3: layers 4 to 7, 1.2 M
  // parameters)".
  std::string NameOf(int rank) const {
    const int stage = mesh().PlaceOf(rank).stage;
    std::string name = "stage " + std::to_string(stage) + " (rank " + std::to_string(rank);
    for (size_t part = static_cast<size_t>(stage); part < texts_.size();
         part += static_cast<size_t>(mesh().pipeline)) {
      name += (part < static_cast<size_t>(mesh().pipeline) ? ": " : "; ") + texts_[part];
    }
    return name + ")";
  }

  // Returns the ranks of this replica with which this rank exchanges tensors.
  std::vector<int> Neighbours() const {
    std::set<int> stages = {stage_.place.stage - 1, stage_.place.stage + 1};
    const int last = mesh().pipeline - 1;
    if (config_.virtual_stages > 1 && stage_.place.stage == 0) stages.insert(last);
    if (config_.virtual_stages > 1 && stage_.place.stage == last) stages.insert(0);
    std::vector<int> ranks;
    for (const int stage : stages) {
      const bool other = stage >= 0 && stage <= last && stage != stage_.place.stage;
      if (other) ranks.push_back(core_.ranks().RankOfStage(stage));
    }
    return ranks;
  }

  const StagePlan& ForwardPlan(int64_t micro_batches) {
    const auto found = forward_plans_.find(micro_batches);
    if (found != forward_plans_.end()) return found->second;
    const auto virtual_stages = static_cast<int>(config_.virtual_stages);
    return forward_plans_
        .try_emplace(
            micro_batches,
            MakeForwardSchedule(mesh().pipeline, static_cast<int>(micro_batches), virtual_stages),
            stage_.place.stage)
        .first->second;
  }

  StageBatch Run(const StagePlan& plan, BatchPurpose purpose, const MicroBatchSource& next) {
    StageBatch batch(stage_, plan, purpose, next);
    batch.Run();
    return batch;
  }

  // Returns the mean loss of all replicas' micro-batches, given this replica's `batch`. Throws if
  // the replicas' numbers of micro-batches differ. Collective.
  double Mean(const StageBatch& batch) const {
    std::vector<int64_t> counts;
    double sum = 0;
    for (const std::vector<double>& numbers : GatherNumbers(
             core_.group(), {batch.loss_sum(), static_cast<double>(batch.micro_batches())})) {
      sum += numbers[0];
      counts.push_back(static_cast<int64_t>(numbers[1]));
    }
    if (GroupRanks(counts).size() > 1) {
      RefuseInput(
          "the ranks have run batches of different sizes (" +
          ByRank(counts, [](int64_t count) { return std::to_string(count) + " micro-batches"; }) +
          "); all must make the same calls with the same number");
    }
    // With tensor parallelism every rank of the last stage has the loss, so the sum contains each
    // loss `tensor` times.
    return sum / static_cast<double>(mesh().data * mesh().tensor * batch.micro_batches());
  }

  // Sends `outputs` from the last stage of a replica to the other stages, in a channel that no
  // chunk uses. Returns the outputs on every stage.
  Tensors ToAllStages(Tensors outputs) {
    const int last = mesh().pipeline - 1;
    const auto channel = [&](int stage) {
      return LinkChannel{core_.ranks().RankOfStage(stage), /*gradient=*/false,
                         static_cast<int>(config_.virtual_stages)};
    };
    if (!is_last_stage()) {
      link_.BeginReceive(channel(last), {});
      return link_.FinishReceive(channel(last));
    }
    for (int stage = 0; stage < last; ++stage) {
      link_.Send(channel(stage), outputs, {});
      link_.SendRest(channel(stage));
    }
    link_.Drain();
    return outputs;
  }

  const StagePlan train_plan_;
  // Plans of forward passes, by number of micro-batches.
  std::map<int64_t, StagePlan> forward_plans_;
};

PipelineEngine MakePipelineEngine(StageParts parts, PipelineLoss loss, const EngineConfig& config,
                                  std::shared_ptr<MeshGroups> ranks) {
  return PipelineEngine(std::make_unique<PipelineEngine::Impl>(std::move(parts), std::move(loss),
                                                               config, std::move(ranks)));
}

PipelineEngine::PipelineEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PipelineEngine::PipelineEngine(const EngineConfig& config, const PipelineModule& module,
                               const ProcessGroup& group) {
  const EngineConfig merged = WithModule(config, module);
  // Ranks with different configurations would wait for each other in the calls below, so the
  // configurations are checked first.
  CheckSameConfig(group, merged);
  const std::vector<double> seconds = SecondsOfLayers(module, merged, group);
  auto ranks = std::make_shared<MeshGroups>(group, merged.MeshOf(group.world_size()));
  StageParts parts = MakeOnAll(
      group, [&] { return BuildStage(module, merged.pipeline, ranks->place().stage, seconds); });
  impl_ = std::make_unique<Impl>(std::move(parts), module.loss, merged, std::move(ranks));
}

PipelineEngine InitializePipeline(const std::string& config, const PipelineModule& module,
                                  const ProcessGroup& group, const InitializeOptions& options) {
  if (options.deferred != nullptr) {
    RefuseInput(
        "InitializeOptions::deferred is not supported in a pipeline, which builds its own layers");
  }
  if (options.make_optimizer) {
    RefuseInput(
        "InitializeOptions::make_optimizer is not supported in a pipeline; choose the "
        "configuration's \"optimizer\"");
  }
  if (options.tensor_group != nullptr || !options.cuts.empty()) {
    RefuseInput(
        "InitializeOptions::tensor_group is not supported in a pipeline; leave it and cuts out, or "
        "call Initialize");
  }
  const EngineConfig engine = ReadConfig(config, options, group, {.stages = module.num_stages});
  if (engine.tensor_parallel.size > 1) {
    RefuseInput(
        "tensor_parallel.autotp_size is for models of `dslaunch train`: a PipelineModule does not "
        "say how its layers are cut; leave it out");
  }
  return {engine, module, group};
}

PipelineEngine::~PipelineEngine() = default;
PipelineEngine::PipelineEngine(PipelineEngine&&) noexcept = default;

double PipelineEngine::TrainBatch(const MicroBatchSource& next) { return impl_->TrainBatch(next); }
double PipelineEngine::EvalBatch(const MicroBatchSource& next, int64_t micro_batches) {
  return impl_->EvalBatch(next, micro_batches);
}
Tensors PipelineEngine::Infer(const Tensors& inputs) { return impl_->Infer(inputs); }
void PipelineEngine::SetTrain(bool on) { impl_->core_.SetTrain(on); }

bool PipelineEngine::is_first_stage() const { return stage() == 0; }
bool PipelineEngine::is_last_stage() const { return impl_->is_last_stage(); }
int PipelineEngine::stage() const { return impl_->stage_.place.stage; }
int PipelineEngine::num_stages() const { return impl_->mesh().pipeline; }
int PipelineEngine::replica() const { return impl_->stage_.place.replica; }
int PipelineEngine::num_replicas() const { return impl_->mesh().data; }
const ProcessGroup& PipelineEngine::replicas() const { return core().ranks().data(); }

const torch::nn::Module& PipelineEngine::module() const { return *impl_->module_; }
const EngineCore& PipelineEngine::core() const { return impl_->core_; }
EngineCore& PipelineEngine::core() { return impl_->core_; }

void PipelineEngine::SaveCheckpoint(const std::string& dir, const std::string& tag,
                                    const ClientState& client_state) const {
  core().SaveCheckpoint(dir, tag, client_state);
}
std::optional<LoadedCheckpoint> PipelineEngine::LoadCheckpoint(
    const std::string& dir, const std::string& tag, const LoadCheckpointOptions& options) {
  return core().LoadCheckpoint(dir, tag, options);
}

}  // namespace dslaunch
