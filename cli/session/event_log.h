// Writes events.jsonl in the job's folder at the front end: the events of a job for programs, one
// JSON object per line.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "cli/plan/launch_plan.h"
#include "cli/session/job_state.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// Each line is written at once, as a whole, and begins {"t": seconds since 1970, "event": ...}. A
// full or broken disk loses lines, but never ends the job. Not thread-safe.
class EventLog {
 public:
  // Appends to FOLDER/events.jsonl, and makes the folder (0700) if need be. `complain` gets one
  // sentence, once, when that cannot be done. An empty folder: nothing is kept.
  EventLog(const std::string& folder, std::function<void(const std::string&)> complain);

  void Planned(const std::string& job_id, const LaunchPlan& plan, const pb::Program& program);
  void Connected(const std::string& node, const std::string& job_dir);
  void Failed(const std::string& node, const std::string& message);
  void Lost(const std::string& node, const std::string& message);
  // Records a node's event; most kinds are not kept. `names` of all nodes.
  void Record(const std::vector<std::string>& names, size_t node, const pb::NodeEvent& event);
  void Interrupted(const std::string& signal_name);
  // `closing` is SummaryJson's.
  void Ended(std::string_view closing);

 private:
  // `fields` is a JSON object.
  void Write(std::string_view event, const std::string& fields);

  std::function<void(const std::string&)> complain_;
  std::string path_;
  UniqueFd file_;
  bool complained_ = false;
  bool line_is_open_ = false;  // the disk took only part of the last one
};

}  // namespace dslaunch
