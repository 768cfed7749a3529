#include "trainer/program/compare_table.h"

#include "trainer/train/memory_plan.h"
#include "trainer/train/report.h"

namespace dslaunch {

std::string PrecisionTable(const std::vector<PrecisionResult>& results, const std::string& unit) {
  std::string text;
  const auto add = [&](const std::string& what, auto value) {
    text += Format("%s%-18s", text.empty() ? "" : "\n", what.c_str());
    for (const PrecisionResult& result : results) text += Format(" %12s", value(result).c_str());
  };
  const auto add_memory = [&](const char* what, int64_t MemoryBytes::*category) {
    add(what, [category](const PrecisionResult& one) { return BytesText(one.memory.*category); });
  };
  const double base_s = results.front().step_s;
  add("", [](const PrecisionResult& one) { return one.precision; });
  add("step", [](const PrecisionResult& one) { return Format("%.1f ms", one.step_s * 1e3); });
  add(unit + "/s", [](const PrecisionResult& one) { return Format("%.0f", one.per_s); });
  add("speed",
      [base_s](const PrecisionResult& one) { return Format("%.2f x", base_s / one.step_s); });
  add("peak memory", [](const PrecisionResult& one) { return BytesText(one.peak_bytes); });
  add_memory("  parameters", &MemoryBytes::parameters);
  add_memory("  gradients", &MemoryBytes::gradients);
  add_memory("  buckets", &MemoryBytes::buckets);
  add_memory("  optimizer", &MemoryBytes::optimizer);
  add_memory("  buffers", &MemoryBytes::buffers);
  add_memory("  activations", &MemoryBytes::activations);
  add("loss at the end", [](const PrecisionResult& one) { return Format("%.4f", one.loss); });
  add("skipped steps", [](const PrecisionResult& one) {
    return Format("%lld", static_cast<long long>(one.skipped));
  });
  return text;
}

}  // namespace dslaunch
