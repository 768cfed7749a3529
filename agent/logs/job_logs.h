// Lists the folders and log files of a job in its folder on a node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch {

// A rank's folder in one attempt.
struct RankFolder {
  uint64_t attempt = 0;
  uint32_t rank = 0;
  std::string path;
};

// Returns all rank folders below FOLDER (BASE/JOB_ID/nodes/NODE), sorted by attempt and rank.
std::vector<RankFolder> ListRankFolders(const std::string& folder);

struct JobLog {
  uint64_t attempt = 0;
  uint32_t rank = 0;
  bool is_stderr = false;
  std::string path;
};

// Returns all log files below FOLDER, sorted by attempt and rank, stdout before stderr.
std::vector<JobLog> ListJobLogs(const std::string& folder);

// Returns the size that `log` had at the time `unix_ms`, from the file `marks` of its attempt:
// lines "unix_ms rank stdout_bytes stderr_bytes" in order of time. Uses the last mark that is not
// later than `unix_ms`, so that no output since that time is missed. Returns 0 if there is no such
// mark.
uint64_t OffsetAt(const JobLog& log, int64_t unix_ms);

}  // namespace dslaunch
