// How a session leaves its job alone.
#include <utility>

#include "cli/session/session.h"
#include "proto/wire/cause.h"

namespace dslaunch {

// The ready barrier has passed, so there is a job to leave. Nodes that are not there have no part
// in it.
void LaunchSession::DetachAll() {
  if (std::exchange(detaching_, true)) return;
  connector_.Stop();
  for (const NodeState& node : nodes_) {
    if (!node.client || node.ended) continue;
    ++pending_;
    node.client->Detach([this](const Result<void>& result) { OnDetached(result); });
  }
}

// One node that cannot be left ends the job: half of it would need this front end.
void LaunchSession::OnDetached(const Result<void>& result) {
  --pending_;
  if (!result.ok() && std::exchange(detaching_, false)) {
    Say(LogLevel::kError, result.error().message + "; the job is stopped");
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].client || nodes_[i].ended) continue;
      nodes_[i].client->Stop(MakeCause(pb::Cause::NODE_LOST, static_cast<uint32_t>(i),
                                       ExitCode::kUnavailable, result.error().message),
                             /*kill_now=*/false);
    }
    return ArmTeardownTimer();
  }
  if (pending_ > 0 || !detaching_) return;
  detached_ = true;
  loop_.stop();
}

int LaunchSession::ReportDetached() {
  for (const NodeState& node : nodes_) {
    if (node.client) node.client->SayGoodbye();
  }
  const std::string& id = options_.job_id;
  output_.Print(id);
  Say(LogLevel::kInfo,
      "detached; dslaunch ps | logs -f " + id + " | attach " + id + " | stop " + id);
  return ToInt(ExitCode::kOk);
}

}  // namespace dslaunch
