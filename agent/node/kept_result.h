// Stores the result of a job on its node, so that the exit code of a detached job is not lost. Uses
// the job's folder, or a second folder if that disk is full or does not respond.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "proto/inspect.pb.h"

namespace dslaunch {

// Returns the path of JOB.NODE.result in each of `socket_folders` (SocketFolders), best first.
// Pure.
std::vector<std::string> SecondResultFolders(const std::vector<std::string>& socket_folders,
                                             const std::string& job_id, uint32_t node_index);

// Returns the second folders of this process's user: one in each folder for the user's sockets, and
// one in /dev/shm, whose content is in memory.
std::vector<std::string> OwnSecondResultFolders(const std::string& job_id, uint32_t node_index);

// Writes the result to `folder`, otherwise to the first of `seconds` that can be made private to
// this user. Returns the folder that has the result. If no folder can be used, fails with kIo and
// the error of `folder`.
Result<std::string> KeepResult(const pb::JobResult& result, const std::string& folder,
                               const std::vector<std::string>& seconds);

// Returns the result from the first folder that has it; nullopt if no folder has it. `folder` is
// empty if the job has no folder.
std::optional<pb::JobResult> FindResult(const std::string& folder,
                                        const std::vector<std::string>& seconds);

}  // namespace dslaunch
