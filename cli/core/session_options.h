// Options of a session.
#pragma once

#include <memory>
#include <string>

#include "base/deadline.h"
#include "cli/output/shown_output.h"
#include "cli/plan/launch_plan.h"
#include "cli/request/launch_options.h"
#include "cli/request/metrics_places.h"
#include "proto/agent.pb.h"
#include "proto/contract/line_tag.h"

namespace dslaunch {

struct CopyList;  // cli/session/copy_list.h

// In the job's folder at the front end.
inline constexpr const char* kFrontEndLogName = "dslaunch.log";
// The measurements of --preflight, in the same folder.
inline constexpr const char* kPreflightName = "preflight.json";

// The job's specification and what only the front end uses.
struct SessionOptions {
  pb::JobSpec job;  // without the list of nodes, which the session adds
  LaunchPlan plan;
  // Files to copy to the nodes before the start; may be null.
  std::shared_ptr<const CopyList> copy_list;
  MpiChoice mpi = MpiChoice::kAuto;
  ShownOutput shown;  // not used if the job is detachable
  TagStyle tags;
  LogLevel log_level = LogLevel::kInfo;
  std::string own_address;   // address by which other nodes reach this machine; empty for any
  std::string error_file;    // file that also gets the first cause of a failure; may be empty
  bool json = false;         // the closing block on stdout too
  MetricsPlaces metrics;     // the nodes send samples if any is set
  std::string stdin_notice;  // notice if stdin has unread bytes; may be empty
  // For events.jsonl, and for dslaunch.log with all that is logged, whatever log_level shows of it;
  // empty: neither is kept.
  std::string job_folder;
  std::string preflight;  // content of kPreflightName; may be empty
  milliseconds connect_timeout{20'000};
  milliseconds retry_wait{5'000};  // before a node that is not there is first tried again
};

}  // namespace dslaunch
