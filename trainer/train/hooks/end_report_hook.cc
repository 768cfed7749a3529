#include "trainer/base/format.h"
#include "trainer/device/device_memory.h"
#include "trainer/train/hooks/hook_makers.h"
#include "trainer/train/report.h"

namespace dslaunch {
namespace {

class EndReportHook : public TrainHook {
 public:
  void AtEnd(TrainRun& run) override {
    const std::string waited = DataWaitLine(run.data_wait_s, run.progress.training_s());
    if (!waited.empty()) run.log.Info(waited);
    const c10::Device device = run.group.device();
    if (!device.is_cpu() && run.log.prints_info()) {
      run.log.Info(Format("rank 0's GPU held at most %.2f GiB of tensors",
                          static_cast<double>(DevicePeakBytes(device)) / (1 << 30)));
    }
    if (!run.recipe.engine.memory_breakdown) return;
    RankWindow own;
    own.memory = run.Memory();
    run.log.Result(ComparisonText(run.plan, run.Exchange(own).memory));
  }
};

}  // namespace

std::unique_ptr<TrainHook> MakeEndReportHook() { return std::make_unique<EndReportHook>(); }

}  // namespace dslaunch
