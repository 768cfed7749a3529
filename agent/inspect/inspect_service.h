// What `dslaunch-agent read` serves (proto/inspect.proto): a job's files on its node, and what the
// node is like.
#pragma once

#include <grpcpp/grpcpp.h>

#include <asio/io_context.hpp>
#include <memory>
#include <vector>

#include "agent/inspect/reachability_probe.h"
#include "proto/inspect.grpc.pb.h"

namespace dslaunch {

// Calls are handed to the loop, on whose thread everything happens but what blocks, which has a
// thread for each call.
class InspectService final : public pb::Inspection::CallbackService {
 public:
  // The loop outlives the service.
  explicit InspectService(asio::io_context& loop);
  ~InspectService() override;

  // The inspection is over: takes away what it made on the node. On the loop's thread, or once that
  // has stopped.
  void Leave() { probe_.Stop(); }

  grpc::ServerUnaryReactor* Look(grpc::CallbackServerContext* context, const pb::JobPlace* request,
                                 pb::JobSight* reply) override;
  grpc::ServerWriteReactor<pb::NodeEvent>* Read(grpc::CallbackServerContext* context,
                                                const pb::ReadRequest* request) override;
  grpc::ServerWriteReactor<pb::RankFilePart>* Collect(grpc::CallbackServerContext* context,
                                                      const pb::CollectRequest* request) override;
  grpc::ServerUnaryReactor* Remove(grpc::CallbackServerContext* context,
                                   const pb::JobPlace* request, pb::RemoveReply* reply) override;
  grpc::ServerUnaryReactor* GetNodeInfo(grpc::CallbackServerContext* context,
                                        const pb::NodeInfoRequest* request,
                                        pb::NodeInfo* reply) override;
  grpc::ServerUnaryReactor* Listen(grpc::CallbackServerContext* context,
                                   const pb::ListenRequest* request,
                                   pb::ListenReply* reply) override;
  grpc::ServerUnaryReactor* Reach(grpc::CallbackServerContext* context,
                                  const pb::ReachRequest* request, pb::ReachReply* reply) override;

 private:
  class Reading;

  asio::io_context& loop_;
  std::vector<std::shared_ptr<Reading>> readings_;
  ReachabilityProbe probe_;
};

// How the job stands on this node.
pb::JobSight LookAtJob(const pb::JobPlace& place);

// Removes its files, or says why not.
pb::RemoveReply RemoveJob(const pb::JobPlace& place);

}  // namespace dslaunch
