#include "cli/session/event_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/deadline.h"
#include "base/text/signal_name.h"
#include "cli/plan/secrets.h"
#include "cli/session/job_record.h"
#include "cli/session/job_summary.h"
#include "cli/session/summary_json.h"
#include "proto/wire/cause.h"
#include "proto/wire/node_set.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string NameAt(const std::vector<std::string>& names, uint32_t index) {
  return index < names.size() ? names[index] : "";
}

Json ToJson(const std::vector<std::string>& names, const pb::Cause& cause) {
  if (cause.kind() == pb::Cause::NONE) return nullptr;
  return {{"kind", KindName(ToKind(cause.kind()))},
          {"node", NameAt(names, cause.node_index())},
          {"rank", cause.rank() < 0 ? Json(nullptr) : Json(cause.rank())},
          {"attempt", cause.attempt()},
          {"exit_code", cause.exit_code()},
          {"signal_name", cause.signal() == 0 ? Json(nullptr) : Json(SignalName(cause.signal()))},
          {"message", CauseText(cause, NameAt(names, cause.node_index()))},
          {"evidence", cause.evidence()}};
}

Json StartedJson(const pb::Started& started, Json members) {
  Json json = {{"attempt", started.attempt()},
               {"first_rank", started.first_rank()},
               {"pids", std::vector<int>(started.pids().begin(), started.pids().end())},
               {"world_size", started.world_size()},
               {"master_addr", started.master_addr()},
               {"master_port", started.master_port()},
               {"restarts", started.restart_count()}};
  if (!members.empty()) json["nodes"] = std::move(members);
  return json;
}

Json WorkerJson(const pb::WorkerEnded& ended) {
  return {{"attempt", ended.attempt()},
          {"rank", ended.rank()},
          {"exit_code", ended.exit_code()},
          {"signal_name", ended.signal() == 0 ? Json(nullptr) : Json(SignalName(ended.signal()))},
          {"stopped", ended.stopping()},
          {"victim", ended.victim()},
          {"tolerated", ended.tolerated()},
          {"out_of_memory", ended.out_of_memory()},
          {"core_dumped", ended.core_dumped()},
          {"evidence", ended.evidence()},
          {"log", ended.log_path()}};
}

}  // namespace

EventLog::EventLog(const std::string& folder, bool in_log_dir,
                   std::function<void(const std::string&)> complain)
    : complain_(std::move(complain)) {
  if (folder.empty()) return;
  path_ = folder + "/events.jsonl";
  const Result<UniqueFd> opened = OpenFrontEndFolder(folder, in_log_dir, IfMissing::kMake);
  std::string why = opened.ok() ? "" : opened.error().message;
  if (opened.ok()) {
    file_.Reset(::openat(opened->get(), "events.jsonl",
                         O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (file_) return;
    why = path_ + ": " + std::strerror(errno);
  }
  complained_ = true;
  complain_("events are not recorded: " + why);
}

void EventLog::Planned(const std::string& job_id, const LaunchPlan& plan,
                       const pb::Program& program) {
  Json nodes = Json::array();
  for (const Host& node : plan.nodes)
    nodes.push_back({{"name", node.name}, {"slots", node.slots}, {"spare", node.spare}});
  Json environment = Json::object();
  for (const pb::EnvVar& variable : program.env())
    environment[variable.name()] = MaskedValue(variable.name(), variable.value());
  Write("plan", Dump({{"job", job_id},
                      {"nodes", std::move(nodes)},
                      {"min_nodes", plan.min_nodes},
                      {"max_nodes", plan.max_nodes},
                      {"world_size", plan.world_size()},
                      {"argv", MaskedArguments({program.argv().begin(), program.argv().end()})},
                      {"cwd", program.cwd()},
                      {"env", std::move(environment)}}));
}

void EventLog::Connected(const std::string& node, const std::string& job_dir) {
  Write("node_connected", Dump({{"node", node}, {"job_dir", job_dir}}));
}

void EventLog::Failed(const std::string& node, const std::string& message) {
  Write("node_failed", Dump({{"node", node}, {"message", message}}));
}

void EventLog::Lost(const std::string& node, const std::string& message) {
  Write("node_lost", Dump({{"node", node}, {"message", message}}));
}

void EventLog::Stacks(std::string_view stacks) { Write("stacks", std::string(stacks)); }

void EventLog::Interrupted(const std::string& signal_name) {
  Write("interrupted", Dump({{"signal_name", signal_name}}));
}

void EventLog::Record(const std::vector<std::string>& names, size_t node,
                      const pb::NodeEvent& event, std::optional<int64_t> unix_ms) {
  const auto write = [&](std::string_view what, Json fields, size_t uncounted_bytes = 0) {
    Json json = {{"node", names[node]}};
    json.update(fields);
    WriteOfNode(what, names[node], Dump(json), names.size(), unix_ms, uncounted_bytes);
  };
  switch (event.event_case()) {
    case pb::NodeEvent::kStarted: {
      Json members = NamesOnce(names, event.started());
      const size_t bytes = members.empty() ? 0 : Dump(members).size();
      return write("started", StartedJson(event.started(), std::move(members)), bytes);
    }
    case pb::NodeEvent::kRestarting: {
      const pb::Restarting& restarting = event.restarting();
      return write("restarting", {{"attempt", restarting.attempt()},
                                  {"cause", ToJson(names, restarting.cause())},
                                  {"reason", restarting.reason()},
                                  {"delay_ms", restarting.delay_ms()}});
    }
    case pb::NodeEvent::kWorkerEnded:
      return write("worker_ended", WorkerJson(event.worker_ended()));
    case pb::NodeEvent::kNotice:
      return write("notice", {{"message", event.notice().message()}});
    case pb::NodeEvent::kOutcome:
      return write("outcome", {{"attempt", event.outcome().attempt()},
                               {"cause", ToJson(names, event.outcome().cause())}});
    case pb::NodeEvent::kDone:
      return write("node_done", {{"teardown_complete", event.done().teardown_complete()},
                                 {"processes_left", event.done().left_size()}});
    default:
      return;
  }
}

void EventLog::Ended(std::string_view closing) { Write("end", std::string(closing)); }

// Returns the names of the attempt's nodes on the first call for an attempt, else nothing. The
// names are written once, because thousands of names from each of thousands of nodes would fill the
// log.
std::vector<std::string> EventLog::NamesOnce(const std::vector<std::string>& names,
                                             const pb::Started& started) {
  if (started.attempt() <= named_attempt_ || names_bytes_ > kMaxBytes) return {};
  named_attempt_ = started.attempt();
  std::vector<std::string> members;
  for (const uint32_t index : IndexesOf(started.members(), names.size())) {
    members.push_back(names[index]);
    names_bytes_ += names[index].size();
  }
  return members;
}

void EventLog::WriteOfNode(std::string_view event, const std::string& node,
                           const std::string& fields, size_t nodes, std::optional<int64_t> unix_ms,
                           size_t uncounted_bytes) {
  const size_t share = std::max(kMaxBytes / nodes, kMinNodeBytes);
  size_t& bytes = node_bytes_[node];
  if (bytes > share) return;
  bytes += fields.size() - uncounted_bytes;
  if (bytes <= share) return Write(event, fields, unix_ms);
  Write("events_left_out", Dump({{"node", node}, {"after_bytes", share}}));
}

void EventLog::Write(std::string_view event, const std::string& fields,
                     std::optional<int64_t> unix_ms) {
  if (!file_) return;
  const double time_s = static_cast<double>(unix_ms.value_or(UnixMs())) / 1000;
  char head[64];
  std::snprintf(head, sizeof head, "{\"t\":%.3f,\"event\":\"", time_s);
  const std::string line = (line_is_open_ ? "\n" : "") + std::string(head) + std::string(event) +
                           "\"," + fields.substr(1) + "\n";
  const ssize_t written = ::write(file_.get(), line.data(), line.size());
  const int error_number = written < 0 ? errno : ENOSPC;
  if (written == static_cast<ssize_t>(line.size())) {
    line_is_open_ = false;
    return;
  }
  line_is_open_ = line_is_open_ || written > 0;
  if (std::exchange(complained_, true)) return;
  complain_("events are missing in " + path_ + ": " + std::strerror(error_number));
}

}  // namespace dslaunch
