#include <ATen/ATen.h>

#include "trainer/base/train_error.h"
#include "trainer/train/hooks/hook_makers.h"
#include "trainer/train/replicas.h"

namespace dslaunch {
namespace {

uint64_t HashOfWeights(const torch::nn::Module& module, uint64_t seed) {
  uint64_t hash = seed;
  for (const at::Tensor& parameter : module.parameters()) {
    const at::Tensor bytes = parameter.detach().cpu().contiguous();
    hash = HashBytes(bytes.const_data_ptr(), bytes.nbytes(), hash);
  }
  return hash;
}

class ReplicaCheckHook : public TrainHook {
 public:
  explicit ReplicaCheckHook(int64_t every) : every_(every) {}

  void AtStart(TrainRun& run) override { equal_step_ = run.schedule.first_step; }

  void AfterStep(TrainRun& run, int64_t step) override {
    if (step % every_ != 0) return;
    const uint64_t own = HashOfWeights(run.training_model.module(), run.recipe.run.seed);
    const ProcessGroup& replicas = run.training_model.replicas();
    const at::Tensor all = replicas.AllGather(at::tensor(static_cast<int64_t>(own), at::kLong));
    std::vector<uint64_t> hashes;
    for (int rank = 0; rank < replicas.world_size(); ++rank) {
      hashes.push_back(static_cast<uint64_t>(all[rank].item<int64_t>()));
    }
    const std::string problem = DriftMessage(hashes, step, equal_step_);
    if (!problem.empty()) throw TrainError(ExitCode::kInternal, problem);
    equal_step_ = step;
  }

 private:
  const int64_t every_;
  int64_t equal_step_ = 0;  // the last one after which the ranks' weights were the same
};

}  // namespace

std::unique_ptr<TrainHook> MakeReplicaCheckHook(const Recipe& recipe) {
  if (!recipe.run.check_replicas_every) return nullptr;
  return std::make_unique<ReplicaCheckHook>(*recipe.run.check_replicas_every);
}

}  // namespace dslaunch
