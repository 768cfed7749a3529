// Serves proto/agent.proto on a connected socket. Posts every call to the loop, except Renew and
// Copy.
#pragma once

#include <grpcpp/grpcpp.h>

#include <asio/io_context.hpp>
#include <atomic>
#include <memory>

#include "agent/node/node_agent.h"
#include "proto/agent.grpc.pb.h"

namespace dslaunch {

class AgentService final : public pb::Agent::CallbackService {
 public:
  // `loop` and `agent` must outlive the service.
  AgentService(asio::io_context& loop, NodeAgent& agent) : loop_(loop), agent_(agent) {}

  grpc::ServerUnaryReactor* Prepare(grpc::CallbackServerContext* context,
                                    const pb::PrepareRequest* request,
                                    pb::PrepareReply* reply) override;
  grpc::ServerBidiReactor<pb::CopyInput, pb::CopyOutput>* Copy(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<pb::NodeEvent>* Run(grpc::CallbackServerContext* context,
                                               const pb::RunRequest* request) override;
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context,
                                 const pb::StopRequest* request, pb::Empty* reply) override;
  grpc::ServerUnaryReactor* Renew(grpc::CallbackServerContext* context,
                                  const pb::RenewRequest* request, pb::RenewReply* reply) override;
  grpc::ServerUnaryReactor* Failover(grpc::CallbackServerContext* context,
                                     const pb::FailoverRequest* request,
                                     pb::FailoverReply* reply) override;
  grpc::ServerUnaryReactor* Signal(grpc::CallbackServerContext* context,
                                   const pb::SignalRequest* request, pb::Empty* reply) override;
  grpc::ServerUnaryReactor* Input(grpc::CallbackServerContext* context,
                                  const pb::InputRequest* request, pb::InputReply* reply) override;
  grpc::ServerUnaryReactor* Detach(grpc::CallbackServerContext* context, const pb::Empty* request,
                                   pb::DetachReply* reply) override;
  grpc::ServerWriteReactor<pb::NodeEvent>* Attach(grpc::CallbackServerContext* context,
                                                  const pb::AttachRequest* request) override;
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context, const pb::Empty* request,
                                   pb::JobStatus* reply) override;
  grpc::ServerUnaryReactor* GetStacks(grpc::CallbackServerContext* context,
                                      const pb::StacksRequest* request,
                                      pb::StacksReply* reply) override;
  grpc::ServerUnaryReactor* Own(grpc::CallbackServerContext* context, const pb::OwnPart* request,
                                pb::Empty* reply) override;

 private:
  asio::io_context& loop_;
  NodeAgent& agent_;
  // Whether this node's own command controls the node. Copies from other nodes are then refused.
  std::atomic<bool> is_owned_ = false;
};

}  // namespace dslaunch
