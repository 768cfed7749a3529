// Writes events.jsonl in the job's folder at the front end. The file contains the events of a job
// for programs, one JSON object per line.
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

// Appends events to a file. Each line is written at once, as a whole, and begins {"t": seconds
// since 1970, "event": ...}. A full or broken disk loses lines but never ends the job. Not
// thread-safe.
class EventLog {
 public:
  // Limit of the bytes of the events of all nodes together. Each node has an equal share, but at
  // least kMinNodeBytes. Further events of the node are left out, and one line reports this
  // ("events_left_out"). The names of an attempt's nodes are counted separately: they are written
  // once for each attempt, up to the same limit.
  static constexpr size_t kMaxBytes = size_t{32} << 20;
  static constexpr size_t kMinNodeBytes = size_t{64} << 10;

  // Appends to FOLDER/events.jsonl, and creates the folder (0700) if necessary. If `folder` is
  // empty, nothing is written. `in_log_dir` is true if `folder` is inside the folder of
  // --log_dir, instead of the user's state folder. `complain` is called once, with a sentence, if
  // writing is not possible.
  EventLog(const std::string& folder, bool in_log_dir,
           std::function<void(const std::string&)> complain);

  void Planned(const std::string& job_id, const LaunchPlan& plan, const pb::Program& program);
  void Connected(const std::string& node, const std::string& job_dir);
  void Failed(const std::string& node, const std::string& message);
  void Lost(const std::string& node, const std::string& message);
  // Records a node's event; most kinds of events are not recorded. `names` are the names of all
  // nodes. `unix_ms` is the time of the event; nullopt if the event happened just now.
  void Record(const std::vector<std::string>& names, size_t node, const pb::NodeEvent& event,
              std::optional<int64_t> unix_ms = std::nullopt);
  // Records the stacks of ranks. `stacks` is the result of StacksJson.
  void Stacks(std::string_view stacks);
  void Interrupted(const std::string& signal_name);
  // Records the end of the job. `closing` is the result of SummaryJson.
  void Ended(std::string_view closing);

 private:
  // Writes an event. `fields` is a JSON object. `unix_ms` is nullopt for the current time.
  void Write(std::string_view event, const std::string& fields,
             std::optional<int64_t> unix_ms = std::nullopt);
  // Writes an event of a node, within the node's share of the limit for `nodes` nodes;
  // `uncounted_bytes` of the event do not count.
  void WriteOfNode(std::string_view event, const std::string& node, const std::string& fields,
                   size_t nodes, std::optional<int64_t> unix_ms, size_t uncounted_bytes = 0);
  // Returns the names of the attempt's nodes; empty if they have already been written.
  std::vector<std::string> NamesOnce(const std::vector<std::string>& names,
                                     const pb::Started& started);

  std::function<void(const std::string&)> complain_;
  std::string path_;
  UniqueFd file_;
  bool complained_ = false;
  bool line_is_open_ = false;  // whether the disk accepted only a part of the last line
  std::map<std::string, size_t> node_bytes_;  // number of bytes written so far, by name of the node
  uint64_t named_attempt_ = 0;  // newest attempt for which the names of nodes were written
  size_t names_bytes_ = 0;      // number of bytes of names in all attempts
};

}  // namespace dslaunch
