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
  int64_t pid = 0;           // of the front end
  uint64_t start_ticks = 0;  // when it started, which distinguishes it from a recycled pid
  Launcher launcher = Launcher::kLocal;
  std::vector<std::string> ssh_command;   // --ssh_command; often empty
  std::string agent_dir;                  // --agent_dir; often empty
  std::vector<std::string> exec_command;  // LaunchPlan's
  std::vector<NodeTarget> nodes;          // in the order of the hostfile
  std::vector<std::string> argv;          // of the front end
  std::string cwd;
  std::string log_dir;  // folder sent to each node; empty: the user's state folder
  int64_t started_unix_ms = 0;
  int64_t ended_unix_ms = 0;  // 0 if the front end knows of no end
  int exit_code = 0;          // exit code, once the job has ended

  // "?" for an index that no node has.
  std::string NodeName(size_t index) const {
    return index < nodes.size() ? nodes[index].name : "?";
  }
};

// This user's folder on this machine with a folder for each job, named by its job id.
std::string OwnJobsFolder();

// Opens the front end's folder of a job, which is `path`: for events.jsonl and dslaunch.log. In the
// folder that the user named with --log_dir, or in his state folder.
Result<UniqueFd> OpenFrontEndFolder(const std::string& path, bool in_log_dir, IfMissing if_missing);

// Writes JOBS_FOLDER/JOB_ID/job.json (0600 in 0700 folders); a reader sees the old content or the
// new, never half of one. Bytes that are not UTF-8 are replaced. kIo names the path.
Result<void> WriteJobRecord(const std::string& jobs_folder, const JobRecord& record);

// kBadInput when there is no such job or its record cannot be understood; kIo, also where the
// record is not this user's own (base/os/ownership.h).
Result<JobRecord> ReadJobRecord(const std::string& jobs_folder, const std::string& job_id);

// Every job of the folder that can be read, oldest first. Other folders are passed over. kIo:
// another user may have made the folder or may change it.
Result<std::vector<JobRecord>> ListJobRecords(const std::string& jobs_folder);

// Removes the folders of jobs that are on record as ended and in which nothing has changed for
// kJobsKeptDays; a few at once. Returns a notice, empty where there were none.
std::string RemoveOldRecords(const std::string& jobs_folder);

}  // namespace dslaunch
