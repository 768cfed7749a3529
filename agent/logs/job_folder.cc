#include "agent/logs/job_folder.h"

#include <unistd.h>

#include <algorithm>

#include "base/os/ownership.h"
#include "proto/contract/job_paths.h"

namespace dslaunch {
namespace {

// Returns JOB_ID/nodes/NODE, with '_' in place of each '/' in the node's name.
std::string FolderOfNode(const std::string& job_id, const std::string& node_name) {
  std::string node_folder = node_name;
  std::replace(node_folder.begin(), node_folder.end(), '/', '_');
  return job_id + "/nodes/" + node_folder;
}

// Opens a folder. It is below a base that the user named, which other users may share, or below the
// state folder, which other users must not share. Returns an invalid descriptor if the folder is
// missing and `if_missing` does not create it.
Result<UniqueFd> Open(const std::string& base, const std::string& state_folder,
                      const std::string& below, IfMissing if_missing) {
  return base.empty() ? OpenOwnFolder(state_folder + "/" + below, ::geteuid(), if_missing)
                      : OpenOwnFolderIn(base, below, ::geteuid(), if_missing);
}

std::string StateFolder(const Environment& environment) {
  return JobsFolder(FindVariable(environment, "XDG_STATE_HOME"), FindVariable(environment, "HOME"),
                    ::geteuid());
}

}  // namespace

Result<JobFolder> JobFolder::Create(const std::string& base, const std::string& job_id,
                                    const std::string& node_name, const Environment& environment) {
  JobFolder folder(base, base.empty() ? StateFolder(environment) : "",
                   FolderOfNode(job_id, node_name), node_name);
  DSL_TRY(folder.Make(folder.below_));
  return folder;
}

Result<std::string> JobFolder::Find(const std::string& base, const std::string& job_id,
                                    const std::string& node_name, const Environment& environment) {
  const std::string state_folder = base.empty() ? StateFolder(environment) : "";
  const std::string below = FolderOfNode(job_id, node_name);
  DSL_TRY_ASSIGN(const UniqueFd folder, Open(base, state_folder, below, IfMissing::kFail));
  return folder ? (base.empty() ? state_folder : base) + "/" + below : "";
}

Result<void> JobFolder::Make(const std::string& below) const {
  const Result<UniqueFd> made = Open(base_, state_folder_, below, IfMissing::kMake);
  if (made.ok()) return {};
  return Error{ExitCode::kIo, node_name_ + ": cannot make the log folder: " + made.error().message +
                                  "; choose another with --log_dir"};
}

std::string JobFolder::AttemptFolder(uint64_t attempt) const {
  return path_ + "/attempt_" + std::to_string(attempt);
}

Result<std::string> JobFolder::MakeRankFolder(uint64_t attempt, uint32_t rank) const {
  const std::string below = "/attempt_" + std::to_string(attempt) + "/rank_" + std::to_string(rank);
  DSL_TRY(Make(below_ + below));
  return path_ + below;
}

}  // namespace dslaunch
