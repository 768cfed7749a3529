#include "trainer/profile/monitors.h"
#include "trainer/train/hooks/hook_makers.h"

namespace dslaunch {
namespace {

class MonitorHook : public TrainHook {
 public:
  void AfterExchange(TrainRun& run, const AllWindows& all, int64_t steps) override {
    if (run.monitors == nullptr) return;
    const EngineCore& core = run.training_model.core();
    std::vector<Scalar> scalars = {
        {"Train/Samples/train_loss", all.loss / static_cast<double>(steps)},
        {"Train/Samples/lr", core.step_lr()}};
    if (run.recipe.engine.precision.loss_scaler) {
      scalars.push_back({"Train/Samples/loss_scale", core.step_loss_scale()});
    }
    run.monitors->Write(run.progress.samples(), scalars);
  }
};

}  // namespace

std::unique_ptr<TrainHook> MakeMonitorHook() { return std::make_unique<MonitorHook>(); }

}  // namespace dslaunch
