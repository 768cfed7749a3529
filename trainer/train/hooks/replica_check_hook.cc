#include <ATen/ATen.h>

#include <functional>

#include "trainer/base/train_error.h"
#include "trainer/train/hooks/hook_makers.h"
#include "trainer/train/replicas.h"

namespace dslaunch {
namespace {

// Returns a hash of the parameters whose names `counts` accepts; all parameters if `counts` is
// null.
uint64_t HashOfWeights(const torch::nn::Module& module, uint64_t seed,
                       const std::function<bool(const std::string&)>& counts) {
  uint64_t hash = seed;
  for (const auto& parameter : module.named_parameters()) {
    if (counts && !counts(parameter.key())) continue;
    const at::Tensor bytes = parameter.value().detach().cpu().contiguous();
    hash = HashBytes(bytes.const_data_ptr(), bytes.nbytes(), hash);
  }
  return hash;
}

// Throws if the ranks of `group` have different hashes. Collective.
void Compare(const ProcessGroup& group, uint64_t own, int64_t step, int64_t equal_step) {
  const at::Tensor all = group.AllGather(at::tensor(static_cast<int64_t>(own), at::kLong));
  std::vector<uint64_t> hashes;
  for (int rank = 0; rank < group.world_size(); ++rank) {
    hashes.push_back(static_cast<uint64_t>(all[rank].item<int64_t>()));
  }
  const std::string problem = DriftMessage(hashes, step, equal_step, group.job_ranks());
  if (!problem.empty()) throw TrainError(ExitCode::kInternal, problem);
}

class ReplicaCheckHook : public TrainHook {
 public:
  explicit ReplicaCheckHook(int64_t every) : every_(every) {}

  void AtStart(TrainRun& run) override { equal_step_ = run.schedule.first_step; }

  void AfterStep(TrainRun& run, int64_t step) override {
    if (step % every_ != 0) return;
    const torch::nn::Module& module = run.training_model.module();
    const uint64_t seed = run.recipe.run.seed;
    Compare(run.training_model.replicas(), HashOfWeights(module, seed, nullptr), step, equal_step_);
    const MeshGroups& ranks = run.training_model.core().ranks();
    if (const ProcessGroup* const tensor = ranks.tensor()) {
      const auto is_whole = [&](const std::string& name) {
        return !ranks.cut().divided.contains(name);
      };
      Compare(*tensor, HashOfWeights(module, seed, is_whole), step, equal_step_);
    }
    equal_step_ = step;
  }

 private:
  const int64_t every_;
  int64_t equal_step_ = 0;  // last step after which the ranks' weights were equal
};

}  // namespace

std::unique_ptr<TrainHook> MakeReplicaCheckHook(const Recipe& recipe) {
  if (!recipe.run.check_replicas_every) return nullptr;
  return std::make_unique<ReplicaCheckHook>(*recipe.run.check_replicas_every);
}

}  // namespace dslaunch
