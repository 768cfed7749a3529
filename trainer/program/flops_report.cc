#include "trainer/program/flops_report.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "trainer/base/train_error.h"
#include "trainer/program/report.h"

namespace dslaunch {
namespace {

// "dslaunch::(anonymous namespace)::AttentionImpl" -> "Attention"
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

}  // namespace

void PrepareFlopsReport(const FlopsProfilerConfig& config) {
  if (!config.output_file.empty()) WriteFile(config, "");
}

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

}  // namespace dslaunch
