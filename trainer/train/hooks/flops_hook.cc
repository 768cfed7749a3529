#include <cerrno>
#include <cstring>
#include <fstream>

#include "trainer/base/log.h"
#include "trainer/base/train_error.h"
#include "trainer/profile/flop_formula.h"
#include "trainer/profile/forward_meter.h"
#include "trainer/profile/module_table.h"
#include "trainer/train/hooks/hook_makers.h"

namespace dslaunch {
namespace {

// Returns the class name of `module` without namespaces and "Impl": "Attention" for
// "dslaunch::(anonymous namespace)::AttentionImpl".
std::string TypeName(const torch::nn::Module& module) {
  std::string name = module.name();
  if (const size_t colons = name.rfind("::"); colons != std::string::npos) {
    name.erase(0, colons + 2);
  }
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

ModuleRow RowOf(const std::string& name, const torch::nn::Module& module) {
  int64_t parameters = 0;
  for (const at::Tensor& parameter : module.parameters(/*recurse=*/false)) {
    parameters += parameter.numel();
  }
  return {.name = name, .type = TypeName(module), .parameters = parameters};
}

void WriteFile(const FlopsProfilerConfig& config, const std::string& text) {
  std::ofstream file(config.output_file);
  file << text << std::flush;
  if (file) return;
  throw TrainError(ExitCode::kIo, "engine.flops_profiler.output_file: " + config.output_file +
                                      " cannot be written: " + std::strerror(errno));
}

// Prints the profile, with a row for each part of `module`, or writes it to the configured file.
void ReportFlops(const FlopsProfilerConfig& config, const torch::nn::Module& module,
                 const std::vector<ForwardOp>& operators, FlopsProfile profile) {
  std::vector<ModuleRow> rows = {RowOf("", module)};
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    rows.push_back(RowOf(item.key(), *item.value()));
  }
  profile.rows = ModuleRows(std::move(rows), operators);
  const std::string text = FlopsProfileText(profile, config);
  if (config.output_file.empty()) return PrintLine(text);
  WriteFile(config, text + "\n");
}

class FlopsHook : public TrainHook {
 public:
  explicit FlopsHook(std::optional<FlopsProfilerConfig> report) : report_(std::move(report)) {}

  void BeforeStep(TrainRun& run, int64_t step) override {
    if (IsFirst(run, step) || IsReported(step)) meter_.emplace(run.training_model.module());
  }

  void AfterSubmit(TrainRun& run, int64_t step, const StepOutcome& outcome) override {
    if (!meter_) return;
    if (IsFirst(run, step)) own_flops_ = TrainingFlops(meter_->flops());
    if (IsReported(step) && run.training_model.core().group().rank() == 0) {
      ReportFlops(*report_, run.training_model.module(), meter_->operators(),
                  {.step = step,
                   .micro_batches = run.schedule.accumulation_steps,
                   .ranks = run.training_model.core().group().world_size(),
                   .step_s = outcome.whole.Seconds()});
    }
    meter_.reset();
  }

  void BeforeExchange(TrainRun&, RankWindow& own) override { own.flops = own_flops_; }

 private:
  static bool IsFirst(const TrainRun& run, int64_t step) {
    return step == run.schedule.first_step + 1;
  }
  bool IsReported(int64_t step) const { return report_ && step == report_->profile_step; }

  const std::optional<FlopsProfilerConfig> report_;
  std::optional<ForwardMeter> meter_;  // counts the operations of one step
  double own_flops_ = 0;  // floating-point operations of this rank in the first step of the run
};

}  // namespace

std::unique_ptr<TrainHook> MakeFlopsHook(const Recipe& recipe, const WorkerEnv& env) {
  const std::optional<FlopsProfilerConfig>& report = recipe.engine.monitors.flops_profiler;
  // The file is created now, so that an unwritable file is reported before training starts.
  if (report && env.rank == 0 && !report->output_file.empty()) WriteFile(*report, "");
  return std::make_unique<FlopsHook>(report);
}

}  // namespace dslaunch
