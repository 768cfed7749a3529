// Implements the service of `dslaunch-agent read` (proto/inspect.proto), which reports a job's
// files on its node and facts about the node.
#pragma once

#include <grpcpp/grpcpp.h>

#include <asio/io_context.hpp>
#include <memory>
#include <vector>

#include "agent/inspect/reachability_probe.h"
#include "agent/probe/link_probe.h"
#include "proto/inspect.grpc.pb.h"

namespace dslaunch {

// Serves the calls of one inspection. Calls are posted to the loop and run on its thread. Each
// blocking call runs on a thread of its own.
class InspectService final : public pb::Inspection::CallbackService {
 public:
  // `loop` must outlive the service.
  explicit InspectService(asio::io_context& loop);
  ~InspectService() override;

  // Removes all ports and files that the inspection has created on the node. Call this at the end
  // of the inspection, on the loop's thread or after the loop has stopped.
  void StopProbe() {
    probe_.Stop();
    links_.Stop();
  }

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
  grpc::ServerUnaryReactor* MeasureNode(grpc::CallbackServerContext* context,
                                        const pb::MeasureRequest* request,
                                        pb::NodeMeasurement* reply) override;
  grpc::ServerUnaryReactor* ServeLink(grpc::CallbackServerContext* context,
                                      const pb::ServeLinkRequest* request,
                                      pb::ServeLinkReply* reply) override;
  grpc::ServerUnaryReactor* MeasureLink(grpc::CallbackServerContext* context,
                                        const pb::MeasureLinkRequest* request,
                                        pb::LinkMeasurement* reply) override;

 private:
  class Reading;

  asio::io_context& loop_;
  std::vector<std::shared_ptr<Reading>> readings_;
  ReachabilityProbe probe_;
  LinkServer links_;
};

// Returns the state of the job on this node.
pb::JobSight LookAtJob(const pb::JobPlace& place);

// Removes the job's files. If they cannot or must not be removed, the reply contains the reason.
pb::RemoveReply RemoveJob(const pb::JobPlace& place);

}  // namespace dslaunch
