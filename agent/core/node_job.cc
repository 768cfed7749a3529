#include "agent/core/node_job.h"

#include <utility>

#include "proto/contract/job_id.h"
#include "proto/wire/cause.h"

namespace dslaunch {

bool NodeJob::OnOwn(const pb::OwnPart& part) {
  if (own_ || prepared_) return false;
  own_ = part;
  return true;
}

// The node's own command may decide what runs on this node. Its values then replace all values of
// the front end that could change that.
Result<void> NodeJob::PutInOwnPart(pb::PrepareRequest& request, const NodeTable& nodes) const {
  if (!own_) return {};
  // Node names and the job ID become parts of paths, so "." and ".." are rejected.
  bool bad_name = false;
  for (uint32_t index = 0; index < nodes.size(); ++index)
    bad_name |= nodes.At(index).name().find_first_not_of('.') == std::string::npos;
  const bool has_node = request.node_index() < nodes.size();
  const bool bad_slots = has_node && nodes.SlotsOf(request.node_index()) != own_->slots();
  if (bad_name || bad_slots || !IsJobId(request.job().job_id()))
    return Error{ExitCode::kNoPermission, "the front end sent a job that is not this command's"};
  pb::JobSpec& job = *request.mutable_job();
  *job.mutable_ranks() = own_->ranks();
  job.clear_copies();
  job.clear_node_check();
  job.set_detachable(false);
  job.clear_rank_stdin();
  request.clear_devices();
  request.mutable_credentials()->set_private_key(own_->private_key());
  return {};
}

Result<void> NodeJob::OnPrepare(pb::PrepareRequest request) {
  if (prepared_) return Error{ExitCode::kInternal, "the agent was prepared twice"};
  DSL_TRY_ASSIGN(NodeTable nodes, NodeTable::Read(request.job().nodes()));
  DSL_TRY(PutInOwnPart(request, nodes));
  if (request.node_index() >= nodes.size() || request.rendezvous_node() >= nodes.size() ||
      request.job().ranks().program().argv_size() == 0) {
    return Error{ExitCode::kInternal, "the front end sent an incomplete job"};
  }
  request_ = std::move(request);
  nodes_ = std::move(nodes);
  node_ = nodes_.At(request_.node_index());
  return {};
}

pb::Cause NodeJob::Cause(pb::Cause::Kind kind, ExitCode code, std::string message) const {
  return MakeCause(kind, node_index(), code, std::move(message));
}

}  // namespace dslaunch
