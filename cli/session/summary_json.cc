#include "cli/session/summary_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/deadline.h"
#include "base/os/put_file.h"
#include "base/text/signal_name.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMicrosecondsPerSecond = 1e6;

Json SignalJson(int signal_number) {
  return signal_number == 0 ? Json(nullptr) : Json(SignalName(signal_number));
}

constexpr const char* kRestartNames[] = {"unknown", "can_help", "cannot_help"};

const char* RestartName(EndCause::Restart restart) {
  return kRestartNames[static_cast<size_t>(restart)];
}

EndCause::Restart ReadRestart(const std::string& name) {
  return name == kRestartNames[1]   ? EndCause::Restart::kCanHelp
         : name == kRestartNames[2] ? EndCause::Restart::kCannotHelp
                                    : EndCause::Restart::kUnknown;
}

Json CauseJson(const JobSummary& summary) {
  const EndCause& cause = summary.cause;
  if (cause.kind == EndCause::Kind::kNone) return nullptr;
  const bool of_rank = cause.rank >= 0;
  Json lines = Json::array();
  for (const std::string_view line : LastLines(cause.last_lines)) lines.push_back(line);
  return {{"kind", KindName(cause.kind)},
          {"node", cause.node},
          {"rank", of_rank ? Json(cause.rank) : Json(nullptr)},
          {"local_rank", of_rank ? Json(cause.local_rank) : Json(nullptr)},
          {"exit_code", cause.exit_code},
          {"signal", cause.signal},
          {"signal_name", SignalJson(cause.signal)},
          {"message", FirstCauseText(summary)},
          {"evidence", cause.evidence},
          {"victim", cause.victim},
          {"timed_out", cause.timed_out},
          {"out_of_memory", cause.out_of_memory},
          {"core_dumped", cause.core_dumped},
          {"restart", RestartName(cause.restart)},
          {"restart_reason", cause.restart_reason},
          {"restart_line", cause.restart_line},
          {"last_lines", std::move(lines)},
          {"log", cause.log_path}};
}

Json RankJson(const RankSummary& end) {
  if (!end.reported) return {{"rank", end.rank}, {"reported", false}};
  return {{"rank", end.rank},
          {"reported", true},
          {"exit_code", end.signal == 0 ? Json(end.exit_code) : Json(nullptr)},
          {"signal_name", SignalJson(end.signal)},
          {"stopped", end.stopping},
          {"evidence", end.evidence}};
}

// Returns whole numbers, such as steps and counts, without a decimal point. Returns null for
// numbers that are not finite.
Json NumberJson(double number) {
  constexpr double kMaxWhole = 9e15;
  if (!std::isfinite(number)) return nullptr;
  if (number == std::floor(number) && std::abs(number) < kMaxWhole)
    return static_cast<int64_t>(number);
  return number;
}

Json ResultJson(const JobSummary& summary) {
  if (!summary.result) return nullptr;
  Json json = Json::object();
  for (const auto& [name, number] : *summary.result) json[name] = NumberJson(number);
  return json;
}

// Reads the goodput. Returns nullopt for records of earlier versions, which have no goodput.
std::optional<Goodput> ReadGoodput(const nlohmann::json& json) {
  if (!json.contains("goodput") || json.at("goodput").is_null()) return std::nullopt;
  const auto us = [](const nlohmann::json& seconds) {
    return static_cast<uint64_t>(
        std::llround(std::clamp(seconds.get<double>(), 0.0, 1e12) * kMicrosecondsPerSecond));
  };
  const nlohmann::json& from = json.at("goodput");
  Goodput goodput;
  goodput.wall_us = us(from.at("wall_s"));
  goodput.ranks = from.at("ranks");
  for (size_t i = 0; i < kGoodputBuckets; ++i)
    goodput.times.us[i] = us(from.at("seconds").at(kGoodputNames[i]));
  return goodput;
}

Json NodeJson(const JobSummary& summary, const NodeSummary& node) {
  Json left = Json::array();
  for (const LeftEnd& process : summary.left) {
    if (process.node != node.name) continue;
    left.push_back({{"pid", process.pid},
                    {"command", process.command},
                    {"state", process.state},
                    {"waits_in", process.waits_in}});
  }
  return {{"name", node.name},
          {"state", node.state},
          {"had_ranks", node.member},
          {"log_dir", node.log_dir},
          {"left", std::move(left)}};
}

// Returns the number of a signal's name, such as 9 for "SIGKILL"; 0 for null.
int SignalNumber(const nlohmann::json& name) {
  constexpr int kSignals = 64;
  for (int number = 1; number <= kSignals && name.is_string(); ++number) {
    if (SignalName(number) == name.get<std::string>()) return number;
  }
  return 0;
}

EndCause::Kind KindOf(const std::string& name) {
  using Kind = EndCause::Kind;
  for (const Kind kind :
       {Kind::kNone, Kind::kWorkerExit, Kind::kWorkerSignal, Kind::kStartFailed, Kind::kNodeLost,
        Kind::kTimedOut, Kind::kInterrupted, Kind::kFrontEndLost, Kind::kHang}) {
    if (name == KindName(kind)) return kind;
  }
  return Kind::kInternal;
}

EndCause ReadCause(const nlohmann::json& json) {
  EndCause cause;
  if (json.is_null()) return cause;
  cause.kind = KindOf(json.at("kind"));
  cause.node = json.at("node");
  if (!json.at("rank").is_null()) cause.rank = json.at("rank");
  if (!json.at("local_rank").is_null()) cause.local_rank = json.at("local_rank");
  cause.exit_code = json.at("exit_code");
  cause.signal = json.at("signal");
  cause.message = json.at("message");
  cause.evidence = json.at("evidence");
  cause.victim = json.at("victim");
  cause.timed_out = json.value("timed_out", false);  // missing in records of earlier versions
  cause.out_of_memory = json.at("out_of_memory");
  cause.core_dumped = json.at("core_dumped");
  // Records of earlier versions lack these fields, so they have defaults.
  cause.restart = ReadRestart(json.value("restart", ""));
  cause.restart_reason = json.value("restart_reason", "");
  cause.restart_line = json.value("restart_line", "");
  for (const nlohmann::json& line : json.at("last_lines"))
    cause.last_lines += line.get<std::string>() + "\n";
  cause.log_path = json.at("log");
  return cause;
}

RankSummary ReadWorker(const nlohmann::json& json) {
  RankSummary end;
  end.rank = json.at("rank");
  end.reported = json.at("reported");
  if (!end.reported) return end;
  if (!json.at("exit_code").is_null()) end.exit_code = json.at("exit_code");
  end.signal = SignalNumber(json.at("signal_name"));
  end.stopping = json.at("stopped");
  end.evidence = json.at("evidence");
  return end;
}

void ReadNode(const nlohmann::json& json, JobSummary& summary) {
  const NodeSummary node = {json.at("name"), json.at("state"), json.at("had_ranks"),
                            json.at("log_dir")};
  summary.num_nodes += node.member ? 1 : 0;
  for (const nlohmann::json& left : json.at("left")) {
    summary.left.push_back(
        {node.name, left.at("pid"), left.at("command"), left.at("state"), left.at("waits_in")});
  }
  summary.nodes.push_back(node);
}

}  // namespace

Json GoodputJson(const std::optional<Goodput>& goodput) {
  if (!goodput) return nullptr;
  Json seconds = Json::object();
  for (size_t i = 0; i < kGoodputBuckets; ++i)
    seconds[kGoodputNames[i]] = static_cast<double>(goodput->times.us[i]) / kMicrosecondsPerSecond;
  return {{"seconds", std::move(seconds)},
          {"wall_s", static_cast<double>(goodput->wall_us) / kMicrosecondsPerSecond},
          {"ranks", goodput->ranks},
          {"productive_share", goodput->ProductiveShare()}};
}

std::optional<JobSummary> ReadSummaryJson(const nlohmann::json& json, bool is_local) try {
  JobSummary summary;
  summary.is_local = is_local;
  summary.job_id = json.at("job");
  summary.exit_code = json.at("exit_code");
  summary.saved_on_request = json.value("saved_on_request", false);
  summary.cause = ReadCause(json.at("cause"));
  const std::set<int> victims = json.at("victims");
  for (const nlohmann::json& rank : json.at("ranks")) {
    summary.workers.push_back(ReadWorker(rank));
    summary.workers.back().victim = victims.contains(summary.workers.back().rank);
  }
  summary.world_size = static_cast<int>(summary.workers.size());
  summary.num_nodes = 0;
  for (const nlohmann::json& node : json.at("nodes")) ReadNode(node, summary);
  for (const NodeSummary& node : summary.nodes) {
    if (node.member && summary.logs.empty() && !node.log_dir.empty())
      summary.logs = PathOnNode(summary, node.name, node.log_dir);
  }
  summary.remarks = json.at("remarks");
  summary.restarts = json.at("restarts");
  summary.attempts = json.at("attempts");
  summary.goodput = ReadGoodput(json);
  summary.duration_s = json.at("duration_s");
  return summary;
} catch (const nlohmann::json::exception&) {
  return std::nullopt;
}

const char* KindName(EndCause::Kind kind) {
  switch (kind) {
    case EndCause::Kind::kNone:
      return "none";
    case EndCause::Kind::kWorkerExit:
      return "worker_exit";
    case EndCause::Kind::kWorkerSignal:
      return "worker_signal";
    case EndCause::Kind::kStartFailed:
      return "start_failed";
    case EndCause::Kind::kNodeLost:
      return "node_lost";
    case EndCause::Kind::kTimedOut:
      return "timed_out";
    case EndCause::Kind::kInterrupted:
      return "interrupted";
    case EndCause::Kind::kFrontEndLost:
      return "front_end_lost";
    case EndCause::Kind::kHang:
      return "hang";
    case EndCause::Kind::kInternal:
      return "internal";
  }
  return "internal";
}

std::string SummaryJson(const JobSummary& summary) {
  std::vector<RankSummary> workers = summary.workers;
  std::ranges::sort(workers, {}, &RankSummary::rank);
  Json victims = Json::array();
  Json ranks = Json::array();
  for (const RankSummary& end : workers) {
    if (end.victim) victims.push_back(end.rank);
    ranks.push_back(RankJson(end));
  }
  Json nodes = Json::array();
  for (const NodeSummary& node : summary.nodes) nodes.push_back(NodeJson(summary, node));
  const Json json = {{"job", summary.job_id},
                     {"exit_code", summary.exit_code},
                     {"saved_on_request", summary.saved_on_request},
                     {"result", ResultJson(summary)},
                     {"cause", CauseJson(summary)},
                     {"victims", std::move(victims)},
                     {"ranks", std::move(ranks)},
                     {"nodes", std::move(nodes)},
                     {"remarks", summary.remarks},
                     {"restarts", summary.restarts},
                     {"attempts", summary.attempts},
                     {"goodput", GoodputJson(summary.goodput)},
                     {"duration_s", summary.duration_s}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Returns the content of the error file. For a rank that was killed by a signal, the code is the
// negative signal number, as in torchelastic.
std::string ErrorFileJson(const JobSummary& summary, int64_t unix_s) {
  const EndCause& cause = summary.cause;
  const std::string text = FirstCauseText(summary);
  const bool of_rank = cause.rank >= 0;
  const Json json = {{"message",
                      {{"message", cause.evidence.empty() ? text : cause.evidence},
                       {"errorCode", !of_rank            ? summary.exit_code
                                     : cause.signal != 0 ? -cause.signal
                                                         : cause.exit_code},
                       {"extraInfo",
                        {{"py_callstack", of_rank ? cause.last_lines : text},
                         {"timestamp", std::to_string(unix_s)},
                         {"rank", of_rank ? Json(cause.rank) : Json(nullptr)},
                         {"node", cause.node},
                         {"first_cause", text}}}}}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<void> WriteErrorFile(const std::string& path, const JobSummary& summary) {
  if (path.empty()) return {};
  Result<void> written =
      PutFile(path, ErrorFileJson(summary, UnixMs() / 1000) + "\n", /*overwrite=*/true);
  if (written.ok()) return {};
  return Error{written.error().code, "TORCHELASTIC_ERROR_FILE: " + written.error().message};
}

}  // namespace dslaunch
