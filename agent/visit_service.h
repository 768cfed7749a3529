// What `dslaunch-agent read` serves (proto/visit.proto): a job's files on its node.
#pragma once

#include <grpcpp/grpcpp.h>

#include <asio/io_context.hpp>
#include <memory>
#include <vector>

#include "proto/visit.grpc.pb.h"

namespace dslaunch {

// Calls are handed to the loop, on whose thread everything happens.
class VisitService final : public pb::Visit::CallbackService {
 public:
  // The loop outlives the service.
  explicit VisitService(asio::io_context& loop);
  ~VisitService() override;

  grpc::ServerUnaryReactor* Look(grpc::CallbackServerContext* context, const pb::JobPlace* request,
                                 pb::JobSight* reply) override;
  grpc::ServerWriteReactor<pb::NodeEvent>* Read(grpc::CallbackServerContext* context,
                                                const pb::ReadRequest* request) override;
  grpc::ServerUnaryReactor* Remove(grpc::CallbackServerContext* context,
                                   const pb::JobPlace* request, pb::RemoveReply* reply) override;

 private:
  class Reading;

  asio::io_context& loop_;
  std::vector<std::shared_ptr<Reading>> readings_;
};

// How the job stands on this node.
pb::JobSight LookAtJob(const pb::JobPlace& place);

// Removes its files, or says why not.
pb::RemoveReply RemoveJob(const pb::JobPlace& place);

}  // namespace dslaunch
