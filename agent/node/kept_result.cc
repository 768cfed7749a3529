#include "agent/node/kept_result.h"

#include <unistd.h>

#include <cstdlib>

#include "agent/node/attach_socket.h"
#include "base/os/ownership.h"
#include "proto/wire/job_result.h"

namespace dslaunch {

std::vector<std::string> SecondResultFolders(const std::vector<std::string>& socket_folders,
                                             const std::string& job_id, uint32_t node_index) {
  std::vector<std::string> folders;
  for (const std::string& folder : socket_folders)
    folders.push_back(folder + "/" + job_id + "." + std::to_string(node_index) + ".result");
  return folders;
}

std::vector<std::string> OwnSecondResultFolders(const std::string& job_id, uint32_t node_index) {
  std::vector<std::string> folders = SocketFolders(std::getenv("XDG_RUNTIME_DIR"), ::geteuid());
  folders.push_back("/dev/shm/dslaunch-" + std::to_string(::geteuid()));
  return SecondResultFolders(folders, job_id, node_index);
}

Result<std::string> KeepResult(const pb::JobResult& result, const std::string& folder,
                               const std::vector<std::string>& seconds) {
  const Result<void> first = WriteJobResult(folder, result);
  if (first.ok()) return folder;
  for (const std::string& second : seconds) {
    if (OpenOwnFolder(second, ::geteuid(), IfMissing::kMake).ok() &&
        WriteJobResult(second, result).ok())
      return second;
  }
  return first.error();
}

std::optional<pb::JobResult> FindResult(const std::string& folder,
                                        const std::vector<std::string>& seconds) {
  std::optional<pb::JobResult> result;
  if (!folder.empty()) result = ReadJobResult(folder);
  for (const std::string& second : seconds) {
    if (result) break;
    const Result<UniqueFd> own = OpenOwnFolder(second, ::geteuid(), IfMissing::kFail);
    if (own.ok() && own->valid()) result = ReadJobResult(second);
  }
  return result;
}

}  // namespace dslaunch
