#include "cli/bench/preflight.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/count.h"
#include "base/text/split_lines.h"
#include "cli/preflight/replacements.h"

namespace dslaunch {
namespace {

// Returns whether a finding makes its node unfit: a failure, or a warning from a measurement.
bool CountsAgainst(const Finding& finding) {
  return finding.level == Finding::Level::kFailure || finding.measured;
}

std::vector<UnfitNode> UnfitNodes(const std::vector<Finding>& findings) {
  std::vector<UnfitNode> unfit;
  for (const Finding& finding : findings) {
    if (!CountsAgainst(finding)) continue;
    const bool fails = finding.level == Finding::Level::kFailure;
    const auto known = std::ranges::find(unfit, finding.node, &UnfitNode::name);
    if (known == unfit.end())
      unfit.push_back({finding.node, fails});
    else
      known->fails = known->fails || fails;
  }
  return unfit;
}

}  // namespace

Result<PreflightResult> RunPreflight(const DoctorRequest& request, const AgentBinary& agent,
                                     LogLevel log_level, Terminal& terminal) {
  const std::string nodes = Count(request.plan.nodes.size(), "node");
  terminal.SetLive({"dslaunch: preflight of " + nodes});
  terminal.Flush();
  const DoctorInfo info = ExamineNodes(request, agent);
  terminal.SetLive({});
  const std::vector<Finding> findings = Diagnose(info);
  size_t against = 0;
  for (const Finding& finding : findings) {
    if (!CountsAgainst(finding)) continue;
    ++against;
    const std::string hint = finding.hint.empty() ? "" : "; " + finding.hint;
    if (log_level >= LogLevel::kWarning)
      terminal.Err("dslaunch: preflight: " + finding.node + ": " + finding.check + ": " +
                   finding.seen + hint);
  }
  if (against > 0 && log_level >= LogLevel::kInfo) {
    const std::string table = BenchTable(*info.bench, "  ");
    for (const std::string_view line : SplitLines(table)) terminal.Err(line);
  }
  Replacements replaced = ReplaceUnfit(request.plan, UnfitNodes(findings));
  for (const std::string& notice : replaced.notices) {
    if (log_level >= LogLevel::kWarning) terminal.Err("dslaunch: preflight: " + notice);
  }
  if (!replaced.missing.empty()) {
    return Error{ExitCode::kUnavailable,
                 "preflight: " + NameList(replaced.missing, ", ") +
                     " cannot be used, and no spare can replace it; repair it, leave it out "
                     "(--exclude), or give spares in the hostfile (spare=true)"};
  }
  if (against == 0 && log_level >= LogLevel::kInfo) {
    terminal.Err("dslaunch: preflight: " + nodes + " fit, measured in " +
                 Seconds(info.bench->took_ms / 100 * 100));
  }
  return PreflightResult{std::move(replaced.plan), DoctorJson(info, findings)};
}

}  // namespace dslaunch
