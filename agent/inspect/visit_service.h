// What `dslaunch-agent read` serves (proto/visit.proto): a job's files on its node, and what the
// node is like.
#pragma once

#include <grpcpp/grpcpp.h>

#include <asio/io_context.hpp>
#include <memory>
#include <vector>

#include "agent/inspect/beacon.h"
#include "proto/visit.grpc.pb.h"

namespace dslaunch {

// Calls are handed to the loop, on whose thread everything happens but what blocks, which has a
// thread for each call.
class VisitService final : public pb::Visit::CallbackService {
 public:
  // The loop outlives the service.
  explicit VisitService(asio::io_context& loop);
  ~VisitService() override;

  // The visit is over: takes away what it made on the node. On the loop's thread, or once that has
  // stopped.
  void Leave() { beacon_.PutOut(); }

  grpc::ServerUnaryReactor* Look(grpc::CallbackServerContext* context, const pb::JobPlace* request,
                                 pb::JobSight* reply) override;
  grpc::ServerWriteReactor<pb::NodeEvent>* Read(grpc::CallbackServerContext* context,
                                                const pb::ReadRequest* request) override;
  grpc::ServerWriteReactor<pb::RunFilePart>* Collect(grpc::CallbackServerContext* context,
                                                     const pb::CollectRequest* request) override;
  grpc::ServerUnaryReactor* Remove(grpc::CallbackServerContext* context,
                                   const pb::JobPlace* request, pb::RemoveReply* reply) override;
  grpc::ServerUnaryReactor* Examine(grpc::CallbackServerContext* context,
                                    const pb::ExamineRequest* request,
                                    pb::NodeReport* reply) override;
  grpc::ServerUnaryReactor* Listen(grpc::CallbackServerContext* context,
                                   const pb::ListenRequest* request,
                                   pb::ListenReply* reply) override;
  grpc::ServerUnaryReactor* Reach(grpc::CallbackServerContext* context,
                                  const pb::ReachRequest* request, pb::ReachReply* reply) override;

 private:
  class Reading;

  asio::io_context& loop_;
  std::vector<std::shared_ptr<Reading>> readings_;
  Beacon beacon_;
};

// How the job stands on this node.
pb::JobSight LookAtJob(const pb::JobPlace& place);

// Removes its files, or says why not.
pb::RemoveReply RemoveJob(const pb::JobPlace& place);

}  // namespace dslaunch
