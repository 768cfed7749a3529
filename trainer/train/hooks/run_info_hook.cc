#include <ATen/core/Tensor.h>

#include "proto/contract/rank_files.h"
#include "trainer/base/rank_files.h"
#include "trainer/profile/peak_flops.h"
#include "trainer/train/hooks/hook_makers.h"
#include "trainer/train/run_info.h"

namespace dslaunch {
namespace {

Dtype ComputeDtype(const EngineConfig& engine) {
  return engine.precision.autocast.value_or(engine.precision.model);
}

// Returns the sum of the ranks' peak rates in floating-point operations per second; 0 if not known.
double PeakFlopsOfAllRanks(const TrainRun& run) {
  const std::vector<at::Tensor> parameters = run.training_model.module().parameters();
  double peak = run.recipe.run.peak_tflops.value_or(0) * 1e12;
  if (peak == 0 && !parameters.empty() && parameters.front().is_cuda()) {
    peak = PeakFlops(GpuName(), ComputeDtype(run.recipe.engine)).value_or(0);
  }
  return peak * run.training_model.core().group().world_size();
}

class RunInfoHook : public TrainHook {
 public:
  void AfterExchange(TrainRun& run, const AllWindows& all, int64_t) override {
    if (std::exchange(done_, true)) return;
    run.progress.SetFlops(all.flops, PeakFlopsOfAllRanks(run));
    if (run.training_model.core().group().rank() != 0 || RankDir().empty()) return;
    const EngineConfig& engine = run.recipe.engine;
    WriteRankFile(kRunInfoName,
                  RunJson({.model = run.recipe.model.type(),
                           .parameters = run.training_model.total_parameters(),
                           .dtype = DtypeName(ComputeDtype(engine)),
                           .world_size = run.training_model.core().group().world_size(),
                           .zero_stage = static_cast<int>(engine.zero.stage),
                           .flops_per_step = all.flops,
                           .batch = engine.batch.train_batch_size,
                           .micro_batch = engine.batch.micro_batch_size,
                           .accumulation_steps = engine.batch.accumulation_steps,
                           .optimizer = engine.optimizer->name,
                           .lr = engine.optimizer->lr,
                           .data = DataName(run.recipe.data),
                           .plan = run.plan}));
  }

 private:
  bool done_ = false;
};

}  // namespace

std::unique_ptr<TrainHook> MakeRunInfoHook() { return std::make_unique<RunInfoHook>(); }

}  // namespace dslaunch
