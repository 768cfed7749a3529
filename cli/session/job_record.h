// Stores the record of a job on the machine that started the job: job.json in the job's folder.
// `dslaunch ps` reads the record, and so do commands that connect to the job later.
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
  uint64_t start_ticks = 0;  // start time of the front end, which differs if the pid was recycled
  Launcher launcher = Launcher::kLocal;
  std::vector<std::string> ssh_command;  // value of --ssh_command; empty if not given
  std::string agent_dir;                 // value of --agent_dir; empty if not given
  // Words that run a command on a node (LaunchPlan::exec_command).
  std::vector<std::string> exec_command;
  std::vector<NodeTarget> nodes;  // nodes in the order of the hostfile
  std::vector<std::string> argv;  // command line of the front end
  std::string cwd;
  std::string log_dir;  // log folder sent to each node; empty for the user's state folder
  int64_t started_unix_ms = 0;
  int64_t ended_unix_ms = 0;  // Unix time of the end; 0 if the front end has not recorded an end
  int exit_code = 0;          // exit code of the job, valid once it has ended

  // Returns the name of a node; "?" if `index` is not the index of a node.
  std::string NodeName(size_t index) const {
    return index < nodes.size() ? nodes[index].name : "?";
  }
};

// Returns this user's folder on this machine that contains a folder for each job, named by the job
// id.
std::string OwnJobsFolder();

// Opens `path`, the front end's folder of a job for events.jsonl and dslaunch.log. With
// `in_log_dir`, the folder is directly in the folder that the user named by --log_dir, which is not
// checked; otherwise it is in the user's state folder. If the folder is missing, creates it, or
// returns an invalid descriptor, depending on `if_missing`. Fails with kIo if another user may
// write the folder.
Result<UniqueFd> OpenFrontEndFolder(const std::string& path, bool in_log_dir, IfMissing if_missing);

// Writes JOBS_FOLDER/JOB_ID/job.json (0600 in 0700 folders) atomically: a reader sees either the
// old content or the new content. Bytes that are not UTF-8 are replaced. Returns kIo, naming the
// path, if the file cannot be written.
Result<void> WriteJobRecord(const std::string& jobs_folder, const JobRecord& record);

// Reads the record of a job. Returns kBadInput if no such job exists or its record is invalid.
// Returns kIo if the record cannot be read, or if it does not belong to this user
// (base/os/ownership.h).
Result<JobRecord> ReadJobRecord(const std::string& jobs_folder, const std::string& job_id);

// Returns the records of all jobs in the folder that can be read, oldest first. Skips other
// folders. Returns kIo if another user may have created the folder or may change it.
Result<std::vector<JobRecord>> ListJobRecords(const std::string& jobs_folder);

// Removes the folders of jobs that have ended according to their records, and in which nothing has
// changed for kJobsKeptDays. Each call removes only a few folders. Returns a notice; empty if no
// folder was removed.
std::string RemoveOldRecords(const std::string& jobs_folder);

}  // namespace dslaunch
