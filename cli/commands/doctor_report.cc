#include "cli/commands/doctor_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/count.h"
#include "base/text/sanitize.h"
#include "cli/commands/doctor_text.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;
using Level = Finding::Level;

const char* LevelName(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kWarning:
      return "warn";
    case Level::kFailure:
      break;
  }
  return "FAIL";
}

// Describes a node without findings in one line.
std::string Describe(const DoctorInfo& info, const DoctorNode& node) {
  const pb::NodeInfo& report = *node.report;
  std::vector<std::string> parts = {Count(report.cores(), "core"),
                                    MemoryText(report.memory_bytes())};
  if (report.gpus().installed_size() > 0)
    parts.push_back(GpuNames(report.gpus()) + (report.gpus().driver().empty()
                                                   ? ""
                                                   : " (driver " + report.gpus().driver() + ")"));
  else
    parts.push_back("no GPU");
  for (const pb::Disk& disk : report.disks()) {
    if (disk.use() == pb::Disk::STATE) parts.push_back(MemoryText(disk.free_bytes()) + " free");
  }
  if (info.launcher != Launcher::kLocal)
    parts.push_back("clock " + SignedTime(node.clock_ahead_us));
  if (const pb::FoundProgram& program = report.found_program(); !program.executable().empty()) {
    parts.push_back("runs " + program.executable() +
                    (program.said().empty() ? "" : " (" + program.said() + ")"));
  }
  if (info.nodes.size() > 1 && info.rendezvous) {
    const std::string& host = info.nodes[*info.rendezvous].name;
    if (&info.nodes[*info.rendezvous] == &node) {
      parts.push_back("rendezvous");
    } else if (const pb::ReachResult* const way =
                   node.reach ? FirstReached(*node.reach) : nullptr) {
      parts.push_back("reaches " + host + " through " + way->interface());
    }
  }
  if (node.spare) parts.push_back("spare");
  return SanitizeForTerminal(JoinTexts(parts, ", "));
}

Json LimitJson(const pb::Limit& limit) {
  Json json = {{"soft", nullptr}, {"hard", nullptr}};
  if (limit.soft() != kUnlimited) json["soft"] = limit.soft();
  if (limit.hard() != kUnlimited) json["hard"] = limit.hard();
  return json;
}

Json ReportJson(const pb::NodeInfo& report) {
  Json gpus = Json::array(), disks = Json::array(), interfaces = Json::array(),
       programs = Json::array();
  for (const pb::Gpu& gpu : report.gpus().installed()) {
    gpus.push_back({{"name", gpu.name()},
                    {"uuid", gpu.uuid()},
                    {"memory_bytes", gpu.memory_bytes()},
                    {"memory_used_bytes", gpu.memory_used_bytes()}});
  }
  for (const pb::Disk& disk : report.disks()) {
    disks.push_back({{"use", disk.use() == pb::Disk::STATE ? "state" : "shared_memory"},
                     {"path", disk.path()},
                     {"free_bytes", disk.free_bytes()},
                     {"total_bytes", disk.total_bytes()},
                     {"trouble", disk.trouble()}});
  }
  for (const pb::NetworkInterface& interface : report.interfaces()) {
    interfaces.push_back({{"name", interface.name()},
                          {"up", interface.up()},
                          {"addresses", std::vector<std::string>(interface.addresses().begin(),
                                                                 interface.addresses().end())}});
  }
  constexpr const char* kStates[] = {"missing", "broken", "works"};
  for (const pb::InstalledProgram& program : report.programs()) {
    programs.push_back({{"name", program.name()},
                        {"path", program.path()},
                        {"state", kStates[std::clamp(static_cast<int>(program.state()), 0, 2)]},
                        {"said", program.said()}});
  }
  return {{"version", report.version()},
          {"build_id", report.build_id()},
          {"host_name", report.host_name()},
          {"system", report.system()},
          {"boot_id", report.boot_id()},
          {"cores", report.cores()},
          {"memory_bytes", report.memory_bytes()},
          {"memory_available_bytes", report.memory_available_bytes()},
          {"gpus", std::move(gpus)},
          {"gpus_visible", report.gpus().visible()},
          {"gpu_driver", report.gpus().driver()},
          {"cuda", report.gpus().cuda()},
          {"disks", std::move(disks)},
          {"open_files", LimitJson(report.open_files())},
          {"processes", LimitJson(report.processes())},
          {"locked_memory", LimitJson(report.locked_memory())},
          {"interfaces", std::move(interfaces)},
          {"infiniband", report.infiniband()},
          {"programs", std::move(programs)},
          {"program", report.has_found_program()
                          ? Json{{"executable", report.found_program().executable()},
                                 {"said", report.found_program().said()},
                                 {"failure", report.found_program().failure()}}
                          : Json()}};
}

Json NodeJson(const DoctorNode& node) {
  Json json = {{"node", node.name},         {"slots", node.slots},
               {"spare", node.spare},       {"steps", node.steps},
               {"failed_step", nullptr},    {"failure", nullptr},
               {"clock_ahead_us", nullptr}, {"clock_error_us", nullptr},
               {"reach", Json::array()},    {"info", nullptr}};
  if (!node.failed_step.empty()) {
    json["failed_step"] = node.failed_step;
    json["failure"] = node.failure;
  }
  if (node.report) {
    json["clock_ahead_us"] = node.clock_ahead_us;
    json["clock_error_us"] = node.clock_error_us;
    json["info"] = ReportJson(*node.report);
  }
  if (!node.reach) return json;
  for (const pb::ReachResult& attempt : node.reach->results()) {
    json["reach"].push_back({{"endpoint", attempt.endpoint()},
                             {"reached", attempt.reached()},
                             {"trouble", attempt.trouble()},
                             {"local_address", attempt.local_address()},
                             {"interface", attempt.interface()},
                             {"took_us", attempt.took_us()}});
  }
  return json;
}

// Returns the measured figures of a node; an empty list if nothing was measured.
Json FiguresJson(const DoctorInfo& info, const DoctorNode& node) {
  Json figures = Json::array();
  if (!info.bench) return figures;
  const auto index = static_cast<size_t>(&node - info.nodes.data());
  for (const Figure& figure : info.bench->figures) {
    if (figure.node != index) continue;
    figures.push_back({{"figure", KindName(figure.kind)},
                       {"part", figure.part},
                       {"value", figure.value},
                       {"median", MedianOf(info.bench->figures, figure.kind)},
                       {"text", FigureText(figure.kind, figure.value)}});
  }
  return figures;
}

}  // namespace

bool AnyFails(const std::vector<Finding>& findings) {
  return std::ranges::any_of(
      findings, [](const Finding& finding) { return finding.level == Level::kFailure; });
}

std::string DoctorTable(const DoctorInfo& info, const std::vector<Finding>& findings) {
  struct Row {
    std::string node, level, text;
  };
  std::vector<Row> rows;
  size_t failing_nodes = 0, warnings = 0;
  const auto add_findings = [&](const std::string& name) {
    bool fails = false;
    size_t added = 0;
    for (const Finding& finding : findings) {
      if (finding.node != name || finding.level == Level::kOk) continue;
      rows.push_back({added++ == 0 ? name : "", LevelName(finding.level),
                      finding.check + ": " + finding.seen});
      if (!finding.hint.empty()) rows.push_back({"", "", "-> " + finding.hint});
      fails = fails || finding.level == Level::kFailure;
      warnings += finding.level == Level::kWarning;
    }
    failing_nodes += fails;
    return added > 0;
  };
  for (const DoctorNode& node : info.nodes) {
    const bool has_findings = add_findings(node.name);
    if (!has_findings) rows.push_back({node.name, LevelName(Level::kOk), Describe(info, node)});
    // For a failed connection, list the steps that were completed.
    if (!node.failed_step.empty() && !node.steps.empty())
      rows.push_back({"", "", "done before: " + JoinTexts(node.steps, ", ")});
  }
  add_findings("this machine");
  for (const Finding& finding : findings) {
    if (finding.node.empty() && finding.level == Level::kOk)
      rows.push_back({"all", LevelName(Level::kOk), finding.check + ": " + finding.seen});
  }
  size_t name_width = 0;
  for (const Row& row : rows) name_width = std::max(name_width, row.node.size());
  std::string text;
  for (const Row& row : rows) {
    text += row.node + std::string(name_width - row.node.size() + 2, ' ') + row.level +
            std::string(6 - row.level.size(), ' ') + row.text + "\n";
  }
  if (info.bench) text += BenchTable(*info.bench, "  ");
  const std::string nodes = Count(info.nodes.size(), "node");
  text += failing_nodes > 0 ? std::to_string(failing_nodes) + " of " + nodes +
                                  (failing_nodes == 1 ? " fails" : " fail")
          : warnings > 0 ? nodes + " can be used"
                         : "All is well on " + nodes;
  if (warnings > 0) text += ", " + Count(warnings, "warning");
  return text + "\n";
}

std::string DoctorJson(const DoctorInfo& info, const std::vector<Finding>& findings) {
  Json json = {{"ok", !AnyFails(findings)}, {"version", info.version},
               {"build_id", info.build_id}, {"launcher", RowOf(info.launcher).name},
               {"directory", info.cwd},     {"rendezvous", nullptr},
               {"nodes", Json::array()},    {"findings", Json::array()},
               {"bench_ms", nullptr}};
  if (info.bench) json["bench_ms"] = info.bench->took_ms;
  if (info.rendezvous) {
    json["rendezvous"] = {{"node", info.nodes[*info.rendezvous].name},
                          {"endpoints", Json::array()}};
    if (info.listen) {
      for (const std::string& endpoint : info.listen->endpoints())
        json["rendezvous"]["endpoints"].push_back(endpoint);
    }
  }
  for (const DoctorNode& node : info.nodes) {
    json["nodes"].push_back(NodeJson(node));
    json["nodes"].back()["figures"] = FiguresJson(info, node);
  }
  for (const Finding& finding : findings) {
    constexpr const char* kLevels[] = {"ok", "warn", "fail"};
    json["findings"].push_back({{"node", finding.node},
                                {"check", finding.check},
                                {"level", kLevels[static_cast<size_t>(finding.level)]},
                                {"seen", finding.seen},
                                {"hint", finding.hint}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace dslaunch
