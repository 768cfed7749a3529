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
#include "trainer/parallel/engine_ranks.h"
#include "trainer/pipeline/layer_run.h"
#include "trainer/pipeline/schedule.h"
#include "trainer/pipeline/stage_batch.h"
#include "trainer/pipeline/stage_link.h"
#include "trainer/pipeline/topology.h"

namespace dslaunch {
namespace {

Topology TopologyOf(const EngineConfig& config, const ProcessGroup& group) {
  const auto stages = static_cast<int>(config.pipeline.stages);
  if (group.world_size() % stages != 0) {
    RefuseInput("pipeline.stages is " + std::to_string(stages) + ", which does not divide " +
                std::to_string(group.world_size()) +
                (group.world_size() == 1 ? " rank" : " ranks") +
                "; every replica of the pipeline needs one rank for each stage");
  }
  return {group.world_size(), stages, config.pipeline.rank_order};
}

// What `module` says comes before what `config` says.
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

// What goes wrong on one rank is thrown on all, which would wait for it.
template <class Make>
auto MakeOnAll(const ProcessGroup& group, Make make) {
  std::optional<decltype(make())> made;
  ThrowFirstFailure(GatherTexts(group, FailureOf([&] { made.emplace(make()); })));
  return *std::move(made);
}

// Rank 0's, for no two ranks measure the same.
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

// Which ranks this one shares what with, and the groups that they are in.
class RankGroups {
 public:
  RankGroups(const Topology& topology, const StageParts& parts, const ProcessGroup& world) {
    const int stage = topology.StageOf(world.rank()), replica = topology.ReplicaOf(world.rank());
    const std::string key = world.NewKey("pipeline");
    ranks_ = {.world = &world,
              .replicas = topology.stages() == 1 ? &world
                                                 : &Group(world, topology.RanksOfStage(stage), key),
              .stage = stage,
              .stages = topology.stages()};
    const auto add = [&](const std::vector<TiedTensor>& tensors, std::vector<TiedGroup>& tied) {
      for (const TiedTensor& tensor : tensors) {
        std::vector<int> members;
        for (const int other : tensor.stages) members.push_back(topology.RankOf(other, replica));
        tied.push_back({.name = tensor.name,
                        .group = &Group(world, members, key + "tied/"),
                        .is_canonical = tensor.stages.front() == stage});
      }
    };
    add(parts.tied, ranks_.tied);
    add(parts.tied_buffers, ranks_.tied_buffers);
  }
  const EngineRanks& ranks() const { return ranks_; }

 private:
  // One for all that the same ranks share.
  const ProcessGroup& Group(const ProcessGroup& world, const std::vector<int>& members,
                            std::string name) {
    for (const int rank : members) name += std::to_string(rank) + ",";
    const auto found = groups_.find(name);
    if (found != groups_.end()) return found->second;
    return groups_.emplace(name, world.Subgroup(members, name)).first->second;
  }

  std::map<std::string, ProcessGroup> groups_;
  EngineRanks ranks_;
};

}  // namespace

class PipelineEngine::Impl {
 public:
  Impl(StageParts parts, PipelineLoss loss, const EngineConfig& config, const ProcessGroup& group)
      : world_(group),
        topology_(TopologyOf(config, group)),
        config_(config.pipeline),
        module_(std::move(parts.module)),
        texts_(std::move(parts.parts)),
        groups_(topology_, parts, group),
        core_(config, *module_, groups_.ranks(), parts.deferred ? &*parts.deferred : nullptr),
        link_(group, [this](int rank) { return NameOf(rank); }),
        stage_{.stage = groups_.ranks().stage,
               .replica = topology_.ReplicaOf(group.rank()),
               .topology = topology_,
               .chunks = std::move(parts.chunks),
               .buffers = module_->buffers(),
               .loss = std::move(loss),
               .recompute_interval = config_.activation_checkpoint_interval,
               .seed = BorrowedGenerator().seed(),
               .core = core_,
               .link = link_},
        train_plan_(MakePipelineSchedule(config_.schedule, topology_.stages(),
                                         static_cast<int>(core_.accumulation_steps()),
                                         static_cast<int>(config_.virtual_stages)),
                    stage_.stage) {
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

  bool is_last_stage() const { return stage_.stage == topology_.stages() - 1; }

  const ProcessGroup& world_;
  const Topology topology_;
  const PipelineConfig config_;
  const std::shared_ptr<torch::nn::Module> module_;
  const std::vector<std::string> texts_;  // of the parts of the model
  const RankGroups groups_;
  EngineCore core_;
  StageLink link_;
  const Stage stage_;

 private:
  // "stage 1 (rank 3: layers 4 to 7, 1.2 M parameters)"
  std::string NameOf(int rank) const {
    const int stage = topology_.StageOf(rank);
    std::string name = "stage " + std::to_string(stage) + " (rank " + std::to_string(rank);
    for (size_t part = static_cast<size_t>(stage); part < texts_.size();
         part += static_cast<size_t>(topology_.stages())) {
      name += (part < static_cast<size_t>(topology_.stages()) ? ": " : "; ") + texts_[part];
    }
    return name + ")";
  }

  // Ranks of the stages that this one exchanges tensors with.
  std::vector<int> Neighbours() const {
    std::set<int> stages = {stage_.stage - 1, stage_.stage + 1};
    const int last = topology_.stages() - 1;
    if (config_.virtual_stages > 1 && stage_.stage == 0) stages.insert(last);
    if (config_.virtual_stages > 1 && stage_.stage == last) stages.insert(0);
    std::vector<int> ranks;
    for (const int stage : stages) {
      const bool other = stage >= 0 && stage <= last && stage != stage_.stage;
      if (other) ranks.push_back(topology_.RankOf(stage, stage_.replica));
    }
    return ranks;
  }

  const StagePlan& ForwardPlan(int64_t micro_batches) {
    const auto found = forward_plans_.find(micro_batches);
    if (found != forward_plans_.end()) return found->second;
    const auto virtual_stages = static_cast<int>(config_.virtual_stages);
    return forward_plans_
        .try_emplace(micro_batches,
                     MakeForwardSchedule(topology_.stages(), static_cast<int>(micro_batches),
                                         virtual_stages),
                     stage_.stage)
        .first->second;
  }

  StageBatch Run(const StagePlan& plan, BatchPurpose purpose, const MicroBatchSource& next) {
    StageBatch batch(stage_, plan, purpose, next);
    batch.Run();
    return batch;
  }

  // Collective. Of the losses of all micro-batches of all replicas, of which this one had `batch`.
  double Mean(const StageBatch& batch) const {
    std::vector<int64_t> counts;
    double sum = 0;
    for (const std::vector<double>& numbers :
         GatherNumbers(world_, {batch.loss_sum(), static_cast<double>(batch.micro_batches())})) {
      sum += numbers[0];
      counts.push_back(static_cast<int64_t>(numbers[1]));
    }
    if (GroupRanks(counts).size() > 1) {
      RefuseInput(
          "the ranks have run batches of different sizes (" +
          ByRank(counts, [](int64_t count) { return std::to_string(count) + " micro-batches"; }) +
          "); all must make the same calls with the same number");
    }
    return sum / static_cast<double>(topology_.replicas() * batch.micro_batches());
  }

  // From the last stage of a replica to the others. With a channel of its own: no chunk has it.
  Tensors ToAllStages(Tensors outputs) {
    const int last = topology_.stages() - 1;
    const auto channel = [&](int stage) {
      return LinkChannel{topology_.RankOf(stage, stage_.replica), /*gradient=*/false,
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
  std::map<int64_t, StagePlan> forward_plans_;  // by number of micro-batches
};

int StageOfThisRank(const EngineConfig& config, const ProcessGroup& group) {
  return TopologyOf(config, group).StageOf(group.rank());
}

PipelineEngine MakePipelineEngine(StageParts parts, PipelineLoss loss, const EngineConfig& config,
                                  const ProcessGroup& group) {
  return PipelineEngine(
      std::make_unique<PipelineEngine::Impl>(std::move(parts), std::move(loss), config, group));
}

PipelineEngine::PipelineEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PipelineEngine::PipelineEngine(const EngineConfig& config, const PipelineModule& module,
                               const ProcessGroup& group) {
  const EngineConfig merged = WithModule(config, module);
  // Before anything that ranks of different minds would wait for each other in.
  CheckSameConfig(group, merged);
  const std::vector<double> seconds = SecondsOfLayers(module, merged, group);
  StageParts parts = MakeOnAll(group, [&] {
    return BuildStage(module, merged.pipeline, StageOfThisRank(merged, group), seconds);
  });
  impl_ = std::make_unique<Impl>(std::move(parts), module.loss, merged, group);
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
  return {ReadConfig(config, options, group, module.num_stages), module, group};
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
int PipelineEngine::stage() const { return impl_->stage_.stage; }
int PipelineEngine::num_stages() const { return impl_->topology_.stages(); }
int PipelineEngine::replica() const { return impl_->stage_.replica; }
int PipelineEngine::num_replicas() const { return impl_->topology_.replicas(); }
const ProcessGroup& PipelineEngine::replicas() const { return *impl_->groups_.ranks().replicas; }

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
