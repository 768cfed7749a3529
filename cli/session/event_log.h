// Writes events.jsonl in the job's folder at the front end: the events of a job for programs, one
// JSON object per line.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "cli/core/job_state.h"
#include "cli/plan/launch_plan.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// Each line is written at once, as a whole, and begins {"t": seconds since 1970, "event": ...}. A
// full or broken disk loses lines, but never ends the job. Not thread-safe.
class EventLog {
 public:
  // Bytes of the events of all nodes together; each node has an equal share, and kMinNodeBytes at
  // least. More are left out, which one line for the node reports ("events_left_out").
  // The names of an attempt's nodes do not count: they are written once, until they are as much.
  static constexpr size_t kMaxBytes = size_t{32} << 20;
  static constexpr size_t kMinNodeBytes = size_t{64} << 10;

  // Appends to FOLDER/events.jsonl, and makes the folder (0700) if need be. `in_log_dir`: as
  // OpenFrontEndFolder has it. `complain` gets one sentence, once, when that cannot be done. An
  // empty folder: nothing is kept.
  EventLog(const std::string& folder, bool in_log_dir,
           std::function<void(const std::string&)> complain);

  void Planned(const std::string& job_id, const LaunchPlan& plan, const pb::Program& program);
  void Connected(const std::string& node, const std::string& job_dir);
  void Failed(const std::string& node, const std::string& message);
  void Lost(const std::string& node, const std::string& message);
  // Records a node's event; most kinds are not kept. `names` of all nodes. `unix_ms`: when it
  // happened, if that is not now.
  void Record(const std::vector<std::string>& names, size_t node, const pb::NodeEvent& event,
              std::optional<int64_t> unix_ms = std::nullopt);
  // `stacks` is StacksJson's.
  void Stacks(std::string_view stacks);
  void Interrupted(const std::string& signal_name);
  // `closing` is SummaryJson's.
  void Ended(std::string_view closing);

 private:
  // `fields` is a JSON object. `unix_ms`: nullopt for now.
  void Write(std::string_view event, const std::string& fields,
             std::optional<int64_t> unix_ms = std::nullopt);
  // Writes an event of one of the `nodes` nodes of the job, within its share, which
  // `uncounted_bytes` do not use.
  void WriteOfNode(std::string_view event, const std::string& node, const std::string& fields,
                   size_t nodes, std::optional<int64_t> unix_ms, size_t uncounted_bytes = 0);
  // Returns the names of the attempt's nodes; empty if they have been written.
  std::vector<std::string> NamesOnce(const std::vector<std::string>& names,
                                     const pb::Started& started);

  std::function<void(const std::string&)> complain_;
  std::string path_;
  UniqueFd file_;
  bool complained_ = false;
  bool line_is_open_ = false;                 // the disk took only part of the last one
  std::map<std::string, size_t> node_bytes_;  // written so far, by the node's name
  uint64_t named_attempt_ = 0;                // the newest whose nodes were written
  size_t names_bytes_ = 0;                    // bytes of all attempts
};

}  // namespace dslaunch
