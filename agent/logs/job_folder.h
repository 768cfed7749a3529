// Where a node keeps a job's files.
#pragma once

#include <cstdint>
#include <string>

#include "agent/host/program.h"
#include "base/error.h"

namespace dslaunch {

// BASE/JOB_ID/nodes/NODE/attempt_K/rank_R/{stdout.log,stderr.log,error.json}, where K is the
// attempt; nodes may share the base folder.
class JobFolder {
 public:
  // BASE/JOB_ID/nodes/NODE, which need not be there.
  static std::string PathFor(const std::string& base, const std::string& job_id,
                             const std::string& node_name, const Environment& environment);

  // Makes BASE/JOB_ID/nodes/NODE, private to the user (0700). An empty `base` is the user's state
  // folder, $XDG_STATE_HOME/dslaunch/jobs. kIo names the folder, the node and the way out.
  static Result<JobFolder> Create(const std::string& base, const std::string& job_id,
                                  const std::string& node_name, const Environment& environment);

  std::string AttemptFolder(uint64_t attempt) const;

  // Makes the folder of one rank, in the attempt's, and returns it.
  Result<std::string> MakeRankFolder(uint64_t attempt, uint32_t rank) const;

  const std::string& path() const { return path_; }  // BASE/JOB_ID/nodes/NODE

 private:
  explicit JobFolder(std::string path, std::string node_name)
      : path_(std::move(path)), node_name_(std::move(node_name)) {}
  std::string path_;
  std::string node_name_;
};

}  // namespace dslaunch
