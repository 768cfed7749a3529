#include "trainer/profile/monitors.h"
#include "trainer/train/hook_makers.h"

namespace dslaunch {
namespace {

class MonitorHook : public TrainHook {
 public:
  explicit MonitorHook(const MonitorsConfig& config) : monitors_(config) {}

  void AfterExchange(TrainRun& run, const AllWindows& all, int64_t steps) override {
    const EngineCore& core = run.training_model.core();
    std::vector<Scalar> scalars = {
        {"Train/Samples/train_loss", all.loss / static_cast<double>(steps)},
        {"Train/Samples/lr", core.step_lr()}};
    if (run.recipe.engine.precision.loss_scaler) {
      scalars.push_back({"Train/Samples/loss_scale", core.step_loss_scale()});
    }
    monitors_.Write(run.progress.samples(), scalars);
  }

 private:
  Monitors monitors_;
};

}  // namespace

std::unique_ptr<TrainHook> MakeMonitorHook(const Recipe& recipe, const WorkerEnv& env) {
  const MonitorsConfig& config = recipe.engine.monitors;
  if (env.rank != 0 || !(config.csv || config.tensorboard)) return nullptr;
  return std::make_unique<MonitorHook>(config);
}

}  // namespace dslaunch
