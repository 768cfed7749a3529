// Defines the options of a session.
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

struct CopyList;  // defined in cli/session/copy_list.h

// Name of the log file in the job's folder on the front end's machine.
inline constexpr const char* kFrontEndLogName = "dslaunch.log";
// Name of the file with the measurements of --preflight in the job's folder on the front end's
// machine.
inline constexpr const char* kPreflightName = "preflight.json";

// The specification of a job and the options that only the front end uses.
struct SessionOptions {
  pb::JobSpec job;  // specification of the job; the session adds the list of nodes
  LaunchPlan plan;
  // Files and folders to copy to the nodes before the start; nullptr if there are none.
  std::shared_ptr<const CopyList> copy_list;
  MpiChoice mpi = MpiChoice::kAuto;
  ShownOutput shown;  // output of ranks to show; ignored if the job is detachable
  TagStyle tags;
  LogLevel log_level = LogLevel::kInfo;
  // Address at which other nodes reach this machine; empty for any address.
  std::string own_address;
  std::string error_file;    // file that also gets the first cause of a failure; may be empty
  bool json = false;         // whether to print the closing block on stdout as JSON too
  MetricsPlaces metrics;     // destinations of metrics; if any is set, the nodes send samples
  std::string stdin_notice;  // notice about unread bytes in stdin; may be empty
  // Folder for events.jsonl and dslaunch.log; empty to write neither file. dslaunch.log contains
  // all logged lines, whatever level the terminal shows.
  std::string job_folder;
  std::string preflight;  // content of the file kPreflightName; may be empty
  milliseconds connect_timeout{20'000};
  milliseconds retry_wait{5'000};  // pause before the first attempt to reconnect to a node
};

}  // namespace dslaunch
