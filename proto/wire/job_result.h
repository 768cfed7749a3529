// Reads and writes result.json, the result of a job in its folder on a node.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "proto/inspect.pb.h"

namespace dslaunch {

// Returns the result to store on this node. `outcome` is the first cause that reached this node;
// the final cause of the rendezvous replaces it. The job succeeds only if all ranks succeeded *and*
// every node confirmed that no process is left. The exit code is 85 if every rank saved and stopped
// on request. Pure.
pb::JobResult MakeJobResult(const std::string& job_id, const pb::Cause& outcome,
                            const pb::NodeDone& done);

// Returns whether every rank saved a checkpoint and stopped on request, which is not a failure.
bool SavedOnRequest(const pb::JobResult& result);

// Writes FOLDER/result.json (mode 0600). The file is synced to the disk before it gets this name,
// so it is never incomplete.
Result<void> WriteJobResult(const std::string& folder, const pb::JobResult& result);

// Returns the result in FOLDER/result.json; nullopt if the file is missing, invalid, or not owned
// by this user.
std::optional<pb::JobResult> ReadJobResult(const std::string& folder);

}  // namespace dslaunch
