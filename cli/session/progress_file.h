// Stores the progress of a job in a small file in the job's folder, for `dslaunch ps` on the front
// end's machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/unique_fd.h"
#include "proto/agent.pb.h"

namespace dslaunch {

struct JobProgress {
  int ranks = 0;             // number of ranks; 0 if unknown
  int64_t step = -1;         // newest step; -1 if no step was reported
  int64_t total_steps = 0;   // planned number of steps; 0 if unknown
  int64_t copied_step = -1;  // newest step that all ranks have copied into memory; -1 if none
  int64_t copied_unix_ms = 0;
  bool operator==(const JobProgress&) const = default;
};

// Writes the progress to FOLDER/progress after each change. A full or broken disk causes no error;
// the file is then outdated or invalid. Not thread-safe.
class ProgressFile {
 public:
  // Opens the file in `folder`, which OpenFrontEndFolder describes. If `folder` is empty, nothing
  // is written.
  ProgressFile(const std::string& folder, bool in_log_dir);

  void OnRunning(int ranks);
  // Records the progress of the lowest rank that reports steps, and the copies in memory of all
  // ranks.
  void OnStatus(const pb::WorkerStatus& status);

 private:
  void OnCopy(uint32_t rank, int64_t step);
  void Write();

  UniqueFd file_;
  JobProgress progress_;
  uint32_t leading_rank_ = UINT32_MAX;
  std::map<uint32_t, int64_t> copied_steps_;  // newest copied step of each rank in this attempt
};

// Reads the progress. Returns an empty progress if the file does not exist or does not belong to
// this user.
JobProgress ReadProgress(const std::string& folder, bool in_log_dir);

}  // namespace dslaunch
