#include "trainer/profile/module_table.h"

#include <algorithm>
#include <map>

#include "trainer/base/format.h"
#include "trainer/profile/flop_formula.h"

namespace dslaunch {
namespace {

std::string ParentOf(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

bool IsIn(const std::string& name, const std::string& outer) {
  return outer.empty() || name == outer || name.starts_with(outer + ".");
}

std::string CommonAncestor(std::string a, const std::string& b) {
  while (!IsIn(b, a)) a = ParentOf(a);
  return a;
}

// Returns the name of each operator's module.
std::vector<std::string> Owners(const std::vector<ForwardOp>& operators) {
  std::vector<std::string> owners(operators.size());
  std::optional<std::string> before;
  for (size_t i = 0; i < operators.size(); ++i) {
    if (operators[i].module) before = operators[i].module;
    owners[i] = before.value_or("");
  }
  std::optional<std::string> after;
  for (size_t i = operators.size(); i-- > 0;) {
    if (operators[i].module) after = operators[i].module;
    if (!operators[i].module) owners[i] = after ? CommonAncestor(*after, owners[i]) : "";
  }
  return owners;
}

// Returns `value` with a unit prefix, such as "1.23 G".
std::string Scaled(double value) {
  constexpr const char* kUnits[] = {"", "K", "M", "G", "T", "P"};
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return Format(unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
}

double Share(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

std::string RowText(const ModuleRow& row, const ModuleRow& model) {
  return Format("%-40s %-14s %12s %14sFLOP %6.2f%% %11.3f ms %6.2f%%",
                (std::string(static_cast<size_t>(2 * row.depth), ' ') +
                 (row.name.empty() ? "model" : row.name.substr(row.name.rfind('.') + 1)))
                    .c_str(),
                row.type.c_str(), Scaled(static_cast<double>(row.parameters)).c_str(),
                Scaled(row.flops).c_str(), Share(row.flops, model.flops), row.seconds * 1e3,
                Share(row.seconds, model.seconds));
}

// Returns a line about the most expensive modules at a depth: "depth 2, by FLOPs: h.0 33.3%, h.1
// 33.3%".
std::string Costliest(const std::vector<ModuleRow>& rows, int depth, int64_t most,
                      double ModuleRow::*by, const char* name) {
  std::vector<const ModuleRow*> here;
  for (const ModuleRow& row : rows) {
    if (row.depth == depth) here.push_back(&row);
  }
  std::ranges::stable_sort(
      here, [by](const ModuleRow* a, const ModuleRow* b) { return a->*by > b->*by; });
  here.resize(std::min(here.size(), static_cast<size_t>(most)));
  std::string text = Format("depth %d, by %s:", depth, name);
  for (const ModuleRow* row : here) {
    text += Format("%s %s %.1f%%", row == here.front() ? "" : ",", row->name.c_str(),
                   Share(row->*by, rows.front().*by));
  }
  return text;
}

}  // namespace

std::vector<ModuleRow> ModuleRows(std::vector<ModuleRow> modules,
                                  const std::vector<ForwardOp>& operators) {
  std::map<std::string, ModuleRow*> by_name;
  std::vector<int64_t> own;
  for (ModuleRow& row : modules) {
    by_name[row.name] = &row;
    row.depth = row.name.empty() ? 0 : 1 + static_cast<int>(std::ranges::count(row.name, '.'));
    own.push_back(row.parameters);
    row.parameters = 0;
  }
  // Calls `add` for the row of a module and for the rows of all modules that contain it.
  const auto each_outer = [&by_name](std::string name, auto add) {
    for (;; name = ParentOf(name)) {
      if (const auto found = by_name.find(name); found != by_name.end()) add(*found->second);
      if (name.empty()) return;
    }
  };
  for (size_t i = 0; i < modules.size(); ++i) {
    each_outer(modules[i].name, [&](ModuleRow& row) { row.parameters += own[i]; });
  }
  const std::vector<std::string> owners = Owners(operators);
  for (size_t i = 0; i < operators.size(); ++i) {
    each_outer(owners[i], [&](ModuleRow& row) {
      row.flops += operators[i].flops;
      row.seconds += operators[i].seconds;
    });
  }
  return modules;
}

std::string FlopsProfileText(const FlopsProfile& profile, const FlopsProfilerConfig& config) {
  const ModuleRow& model = profile.rows.front();
  const double step_flops = TrainingFlops(model.flops);
  std::string text = Format(
      "operations of step %lld on rank 0 of %d, in %lld micro-%s of this rank:\n"
      "parameters of this rank's model  %s\n"
      "forward passes                   %sFLOP (%sMACs) in %.3f ms, %sFLOPS\n"
      "backward passes                  %sFLOP, estimated as twice the forward passes\n"
      "the whole step                   %sFLOP in %.3f ms, %sFLOPS",
      static_cast<long long>(profile.step), profile.ranks,
      static_cast<long long>(profile.micro_batches),
      profile.micro_batches == 1 ? "batch" : "batches",
      Scaled(static_cast<double>(model.parameters)).c_str(), Scaled(model.flops).c_str(),
      Scaled(model.flops / 2).c_str(), model.seconds * 1e3,
      Scaled(model.flops / std::max(model.seconds, 1e-9)).c_str(), Scaled(2 * model.flops).c_str(),
      Scaled(step_flops).c_str(), profile.step_s * 1e3,
      Scaled(step_flops / std::max(profile.step_s, 1e-9)).c_str());
  int deepest = 0;
  for (const ModuleRow& row : profile.rows) deepest = std::max(deepest, row.depth);
  const int last = config.module_depth < 0
                       ? deepest
                       : static_cast<int>(std::min<int64_t>(config.module_depth, deepest));
  for (int depth = 1; depth <= last; ++depth) {
    text += "\n" + Costliest(profile.rows, depth, config.top_modules, &ModuleRow::flops, "FLOPs");
    text += "\n" + Costliest(profile.rows, depth, config.top_modules, &ModuleRow::seconds, "time");
  }
  if (!config.detailed) return text;
  text += Format("\n%-40s %-14s %12s %18s %7s %14s %7s", "module", "type", "parameters", "forward",
                 "", "time", "");
  for (const ModuleRow& row : profile.rows) text += "\n" + RowText(row, model);
  return text;
}

}  // namespace dslaunch
