// The folders and log files of a job on its node, as they lie in its job folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch {

// Of one start of one rank.
struct RankFolder {
  uint64_t attempt = 0;
  uint32_t rank = 0;
  std::string path;
};

// Every one of them below FOLDER (BASE/JOB_ID/nodes/NODE), by attempt and rank.
std::vector<RankFolder> ListRankFolders(const std::string& folder);

struct JobLog {
  uint64_t attempt = 0;
  uint32_t rank = 0;
  bool is_stderr = false;
  std::string path;
};

// Every log file below FOLDER, by attempt, rank, stdout before stderr.
std::vector<JobLog> ListJobLogs(const std::string& folder);

// Where `log` stood at a time, by its attempt's `marks` file: lines "unix_ms rank stdout_bytes
// stderr_bytes" in order of time. The last mark that is not younger counts, so that nothing written
// since is missed; without one it is 0.
uint64_t OffsetAt(const JobLog& log, int64_t unix_ms);

}  // namespace dslaunch
