// The progress of a job, for `dslaunch ps` on the machine of the front end: a small file in the
// job's folder there.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/unique_fd.h"
#include "proto/agent.pb.h"

namespace dslaunch {

struct JobProgress {
  int ranks = 0;             // 0: unknown
  int64_t step = -1;         // -1: none was reported
  int64_t total_steps = 0;   // 0: unknown
  int64_t copied_step = -1;  // newest step that all ranks have copied into memory; -1: none
  int64_t copied_unix_ms = 0;
  bool operator==(const JobProgress&) const = default;
};

// Overwrites FOLDER/progress after each change. If the disk is full or broken, the file is late or
// useless, but there is no error. Not thread-safe.
class ProgressFile {
 public:
  // `folder` and `in_log_dir`: see OpenFrontEndFolder. If `folder` is empty, nothing is written.
  ProgressFile(const std::string& folder, bool in_log_dir);

  void OnRunning(int ranks);
  // Follows the lowest rank that reports steps, and the copies in memory of all ranks.
  void OnStatus(const pb::WorkerStatus& status);

 private:
  void OnCopy(uint32_t rank, int64_t step);
  void Write();

  UniqueFd file_;
  JobProgress progress_;
  uint32_t leading_rank_ = UINT32_MAX;
  std::map<uint32_t, int64_t> copied_steps_;  // newest copied step of each rank in this attempt
};

// Returns an empty progress if there is no such file or it does not belong to this user.
JobProgress ReadProgress(const std::string& folder, bool in_log_dir);

}  // namespace dslaunch
