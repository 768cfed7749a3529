#include "trainer/profile/comms_logger.h"
#include "trainer/train/hooks/hook_makers.h"

namespace dslaunch {
namespace {

class CommsHook : public TrainHook {
 public:
  explicit CommsHook(const CommsLoggerConfig& config) : config_(config) {}

  void AtStart(TrainRun& run) override {
    logger_.emplace(config_, run.group.rank(), run.group.world_size());
  }
  void AtEnd(TrainRun& run) override { run.log.Result(logger_->Table()); }

 private:
  const CommsLoggerConfig config_;
  std::optional<CommsLogger> logger_;
};

}  // namespace

std::unique_ptr<TrainHook> MakeCommsHook(const Recipe& recipe) {
  const std::optional<CommsLoggerConfig>& config = recipe.engine.monitors.comms_logger;
  if (!config) return nullptr;
  return std::make_unique<CommsHook>(*config);
}

}  // namespace dslaunch
