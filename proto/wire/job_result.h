// How a job ended: result.json in a node's job folder.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "proto/inspect.pb.h"

namespace dslaunch {

// What this node puts on record. Pure. `outcome` is the cause as it heard it first; the last word
// of the rendezvous replaces it. Success is that all ranks succeeded *and* every node confirmed its
// teardown. 85 where every rank saved and stopped on request.
pb::JobResult MakeJobResult(const std::string& job_id, const pb::Cause& outcome,
                            const pb::NodeDone& done);

// Every rank saved and stopped because it was asked to, which is not a failure.
bool SavedOnRequest(const pb::JobResult& result);

// FOLDER/result.json, complete on the disk before it has its name (0600).
Result<void> WriteJobResult(const std::string& folder, const pb::JobResult& result);

// nullopt when there is none, none that can be understood, or none of this user's own.
std::optional<pb::JobResult> ReadJobResult(const std::string& folder);

}  // namespace dslaunch
