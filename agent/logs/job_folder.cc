#include "agent/logs/job_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "proto/contract/job_paths.h"

namespace dslaunch {
namespace {

Result<void> MakeFolders(const std::string& path, const std::string& node_name) {
  std::string failed;
  const int error_number = MakePrivateFolders(path, failed);
  if (error_number == 0) return {};
  return Error{ExitCode::kIo, node_name + ": cannot make the log folder " + failed + ": " +
                                  strerror(error_number) + "; choose another with --log_dir"};
}

}  // namespace

std::string JobFolder::PathFor(const std::string& base, const std::string& job_id,
                               const std::string& node_name, const Environment& environment) {
  std::string path = base;
  if (path.empty()) {
    path = JobsFolder(FindVariable(environment, "XDG_STATE_HOME"),
                      FindVariable(environment, "HOME"), geteuid());
  }
  std::string node_folder = node_name;
  std::replace(node_folder.begin(), node_folder.end(), '/', '_');
  return path + "/" + job_id + "/nodes/" + node_folder;
}

Result<JobFolder> JobFolder::Create(const std::string& base, const std::string& job_id,
                                    const std::string& node_name, const Environment& environment) {
  std::string path = PathFor(base, job_id, node_name, environment);
  DSL_TRY(MakeFolders(path, node_name));
  return JobFolder(std::move(path), node_name);
}

std::string JobFolder::AttemptFolder(uint64_t attempt) const {
  return path_ + "/attempt_" + std::to_string(attempt);
}

Result<std::string> JobFolder::MakeRankFolder(uint64_t attempt, uint32_t rank) const {
  std::string folder = AttemptFolder(attempt) + "/rank_" + std::to_string(rank);
  DSL_TRY(MakeFolders(folder, node_name_));
  return folder;
}

}  // namespace dslaunch
