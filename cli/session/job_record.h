// The record of a job on the machine that started it: job.json in the job's folder, for
// `dslaunch ps` and for commands that reach the job later.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/os/ownership.h"
#include "base/unique_fd.h"
#include "cli/launchers/launcher.h"
#include "hostfiles/node_target.h"

namespace dslaunch {

struct JobRecord {
  std::string job_id;
  int64_t pid = 0;           // process id of the front end
  uint64_t start_ticks = 0;  // its start time, which differs if the pid was recycled
  Launcher launcher = Launcher::kLocal;
  std::vector<std::string> ssh_command;   // --ssh_command; often empty
  std::string agent_dir;                  // --agent_dir; often empty
  std::vector<std::string> exec_command;  // copied from LaunchPlan
  std::vector<NodeTarget> nodes;          // in the order of the hostfile
  std::vector<std::string> argv;          // arguments of the front end
  std::string cwd;
  std::string log_dir;  // folder sent to each node; empty: the user's state folder
  int64_t started_unix_ms = 0;
  int64_t ended_unix_ms = 0;  // 0 if the front end has not recorded an end
  int exit_code = 0;          // exit code, once the job has ended

  // Returns "?" for an index that no node has.
  std::string NodeName(size_t index) const {
    return index < nodes.size() ? nodes[index].name : "?";
  }
};

// Returns this user's folder on this machine that has a folder for each job, named by its job id.
std::string OwnJobsFolder();

// Opens the front end's folder of a job, `path`, for events.jsonl and dslaunch.log. It is in the
// folder that the user named with --log_dir (`in_log_dir`), or else in the user's state folder.
Result<UniqueFd> OpenFrontEndFolder(const std::string& path, bool in_log_dir, IfMissing if_missing);

// Writes JOBS_FOLDER/JOB_ID/job.json (0600 in 0700 folders) atomically: a reader sees the old
// content or the new content. Bytes that are not UTF-8 are replaced. Fails with kIo, naming the
// path.
Result<void> WriteJobRecord(const std::string& jobs_folder, const JobRecord& record);

// Fails with kBadInput if there is no such job or its record is invalid; with kIo, also if the
// record does not belong to this user (base/os/ownership.h).
Result<JobRecord> ReadJobRecord(const std::string& jobs_folder, const std::string& job_id);

// Returns every job of the folder that can be read, oldest first. Skips other folders. Fails with
// kIo if another user may have made the folder or may change it.
Result<std::vector<JobRecord>> ListJobRecords(const std::string& jobs_folder);

// Removes folders of jobs that have ended, according to their records, and in which nothing has
// changed for kJobsKeptDays; a few folders in each call. Returns a notice; empty if none was
// removed.
std::string RemoveOldRecords(const std::string& jobs_folder);

}  // namespace dslaunch
