// Stores the job of a node: the front end's PrepareRequest, and the values that this node's own
// command decides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/exit_code.h"
#include "proto/agent.pb.h"
#include "proto/wire/node_list.h"

namespace dslaunch {

class NodeJob {
 public:
  // Sets the values that this node's own command decides. Returns false if they are set already, or
  // if the job is prepared.
  bool OnOwn(const pb::OwnPart& part);
  // Sets request(), with values of this node's own command in place of the front end's. Fails with
  // kInternal if the job is incomplete or another job was set before, and with kNoPermission if the
  // job is not for this node.
  Result<void> OnPrepare(pb::PrepareRequest request);
  // Records that the machine has everything that the job needs.
  void OnPrepared() { prepared_ = true; }

  bool prepared() const { return prepared_; }
  const std::optional<pb::OwnPart>& own() const { return own_; }
  const pb::PrepareRequest& request() const { return request_; }
  const pb::JobSpec& spec() const { return request_.job(); }
  const pb::Timeouts& timeouts() const { return spec().timeouts(); }
  const NodeTable& nodes() const { return nodes_; }
  const pb::Node& node() const { return node_; }
  const std::string& node_name() const { return node_.name(); }
  uint32_t node_index() const { return request_.node_index(); }

  // Returns a cause that names this node.
  pb::Cause Cause(pb::Cause::Kind kind, ExitCode code, std::string message) const;

 private:
  Result<void> PutInOwnPart(pb::PrepareRequest& request, const NodeTable& nodes) const;

  std::optional<pb::OwnPart> own_;
  pb::PrepareRequest request_;
  NodeTable nodes_;
  pb::Node node_;
  bool prepared_ = false;
};

}  // namespace dslaunch
