// Options of a session.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "cli/output/shown_output.h"
#include "cli/plan/launch_plan.h"
#include "cli/request/launch_options.h"
#include "cli/session/copy_list.h"
#include "proto/agent.pb.h"
#include "proto/contract/line_tag.h"

namespace dslaunch {

// In the job's folder at the front end.
inline constexpr const char* kFrontEndLogName = "dslaunch.log";

struct SessionOptions {
  std::string job_id;
  LaunchPlan plan;
  pb::Program program;
  std::shared_ptr<const CopyList> copy_list;  // for the nodes, before the start; null: nothing is
  pb::Copies copies;                          // what the program makes of it
  pb::RankOptions ranks;
  uint32_t save_pid = 0;  // of this process, for the nodes' files; 0: there are none
  pb::Timeouts timeouts;
  int stop_signal = 0;  // the first that ranks get; 0: SIGINT on Ctrl-C, else SIGTERM
  pb::Policy policy;
  DeviceChoice device = DeviceChoice::kAuto;
  MpiChoice mpi = MpiChoice::kAuto;
  ShownOutput shown;                        // with `detach` nothing is
  std::vector<std::string> stdout_filters;  // of lines that are copied; empty: none are
  std::vector<std::string> stderr_filters;
  TagStyle tags;
  LogLevel log_level = LogLevel::kInfo;
  std::string log_dir;
  uint64_t log_max_bytes = 0;
  std::string description;  // the command line without secrets
  int master_port = 0;
  bool master_listen_fd = false;  // see PrepareRequest.pass_master_port
  int rdzv_port = 0;
  std::string network_interface;
  std::string own_address;  // by which other nodes reach this machine; empty: any that they can
  std::string error_file;   // where the first cause of a failure goes, too; empty: nowhere
  bool json = false;        // the closing block on stdout too
  pb::RankStdin rank_stdin;
  std::string stdin_notice;  // for when stdin has something to read; empty: none
  bool detach = false;       // the job goes on without this front end once it runs
  // For events.jsonl, and for dslaunch.log with all that is logged, whatever log_level shows of it;
  // empty: neither is kept.
  std::string job_folder;
  milliseconds connect_timeout{20'000};
  milliseconds retry_wait{5'000};  // before a node that is not there is first tried again
};

}  // namespace dslaunch
