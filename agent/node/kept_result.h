// How a job ended, kept on its node: in the job's folder, or in a second place where that disk is
// full or does not answer. Otherwise a detached job would lose its exit code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "proto/inspect.pb.h"

namespace dslaunch {

// JOB.NODE.result in each of `socket_folders` (SocketFolders), best first. Pure.
std::vector<std::string> SecondResultFolders(const std::vector<std::string>& socket_folders,
                                             const std::string& job_id, uint32_t node_index);

// Where this process's user has them: in the folders of its sockets, and in memory.
std::vector<std::string> OwnSecondResultFolders(const std::string& job_id, uint32_t node_index);

// Writes it to `folder`, else to the first of `seconds` that can be made private to this user. The
// place that has it; kIo with the error of `folder`.
Result<std::string> KeepResult(const pb::JobResult& result, const std::string& folder,
                               const std::vector<std::string>& seconds);

// From wherever it is; `folder` may be empty: there is none.
std::optional<pb::JobResult> FindResult(const std::string& folder,
                                        const std::vector<std::string>& seconds);

}  // namespace dslaunch
