// The end of a job: result.json in a node's job folder.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "proto/inspect.pb.h"

namespace dslaunch {

// Returns the result that this node records. `outcome` is the first cause that reached it; the
// rendezvous' final cause replaces it. Success requires that all ranks succeeded *and* every node
// confirmed its teardown. The exit code is 85 if every rank saved and stopped on request. Pure.
pb::JobResult MakeJobResult(const std::string& job_id, const pb::Cause& outcome,
                            const pb::NodeDone& done);

// Returns whether every rank saved and stopped because it was asked to, which is not a failure.
bool SavedOnRequest(const pb::JobResult& result);

// Writes FOLDER/result.json (0600) and syncs it to disk before renaming it into place.
Result<void> WriteJobResult(const std::string& folder, const pb::JobResult& result);

// Returns nullopt if the file is missing, invalid, or not owned by this user.
std::optional<pb::JobResult> ReadJobResult(const std::string& folder);

}  // namespace dslaunch
