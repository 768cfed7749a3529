// Where a node keeps a job's files.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "agent/host/program.h"
#include "base/error.h"

namespace dslaunch {

// BASE/JOB_ID/nodes/NODE/attempt_K/rank_R/{stdout.log,stderr.log,error.json}, where K is the
// attempt; nodes may share the base folder.
class JobFolder {
 public:
  // The path of a BASE/JOB_ID/nodes/NODE that is there; empty when it is not. kIo: another user may
  // have made it or may change it (base/os/ownership.h), so nothing in it is to be read.
  static Result<std::string> Find(const std::string& base, const std::string& job_id,
                                  const std::string& node_name, const Environment& environment);

  // Makes BASE/JOB_ID/nodes/NODE, private to the user (0700). An empty `base` is the user's state
  // folder, $XDG_STATE_HOME/dslaunch/jobs, which no other user may be able to change; a base that
  // the user named may be shared. kIo names the folder, the node and a hint.
  static Result<JobFolder> Create(const std::string& base, const std::string& job_id,
                                  const std::string& node_name, const Environment& environment);

  std::string AttemptFolder(uint64_t attempt) const;

  // Makes the folder of one rank, in the attempt's, and returns it.
  Result<std::string> MakeRankFolder(uint64_t attempt, uint32_t rank) const;

  const std::string& path() const { return path_; }  // BASE/JOB_ID/nodes/NODE

 private:
  JobFolder(std::string base, std::string state_folder, std::string below, std::string node_name)
      : base_(std::move(base)),
        state_folder_(std::move(state_folder)),
        below_(std::move(below)),
        path_((base_.empty() ? state_folder_ : base_) + "/" + below_),
        node_name_(std::move(node_name)) {}

  // Makes a folder of the base.
  Result<void> Make(const std::string& below) const;

  std::string base_;          // that the user named; empty: the state folder
  std::string state_folder_;  // where `base_` is empty
  std::string below_;         // JOB_ID/nodes/NODE
  std::string path_;
  std::string node_name_;
};

}  // namespace dslaunch
