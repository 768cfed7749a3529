// Finds and creates the folder of a job's files on a node.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "agent/host/program.h"
#include "base/error.h"

namespace dslaunch {

// The folder of a job on one node: BASE/JOB_ID/nodes/NODE. It contains
// attempt_K/rank_R/{stdout.log,stderr.log,error.json}, where K is the number of the attempt. Nodes
// may share the base folder.
class JobFolder {
 public:
  // Returns the path of an existing BASE/JOB_ID/nodes/NODE; empty if it does not exist. Fails with
  // kIo if another user may have created the folder or may change it (base/os/ownership.h); no file
  // in the folder may then be read.
  static Result<std::string> Find(const std::string& base, const std::string& job_id,
                                  const std::string& node_name, const Environment& environment);

  // Creates BASE/JOB_ID/nodes/NODE, private to the user (0700). An empty `base` means the user's
  // state folder, $XDG_STATE_HOME/dslaunch/jobs, which no other user may be able to change; a base
  // that the user named may be shared. Fails with kIo; the message names the folder, the node and a
  // hint.
  static Result<JobFolder> Create(const std::string& base, const std::string& job_id,
                                  const std::string& node_name, const Environment& environment);

  std::string AttemptFolder(uint64_t attempt) const;

  // Creates the folder of one rank in one attempt and returns its path.
  Result<std::string> MakeRankFolder(uint64_t attempt, uint32_t rank) const;

  const std::string& path() const { return path_; }

 private:
  JobFolder(std::string base, std::string state_folder, std::string below, std::string node_name)
      : base_(std::move(base)),
        state_folder_(std::move(state_folder)),
        below_(std::move(below)),
        path_((base_.empty() ? state_folder_ : base_) + "/" + below_),
        node_name_(std::move(node_name)) {}

  // Creates the folder `below`, a path relative to the base.
  Result<void> Make(const std::string& below) const;

  std::string base_;          // folder that the user named; empty for the state folder
  std::string state_folder_;  // state folder, used if `base_` is empty
  std::string below_;         // path relative to the base: JOB_ID/nodes/NODE
  std::string path_;
  std::string node_name_;
};

}  // namespace dslaunch
