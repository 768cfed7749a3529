#include "agent/node/agent_service.h"

#include <asio/post.hpp>

#include "agent/logs/event_writer.h"
#include "agent/node/copy_service.h"

namespace dslaunch {
grpc::ServerUnaryReactor* AgentService::Prepare(grpc::CallbackServerContext* context,
                                                const pb::PrepareRequest* request,
                                                pb::PrepareReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  asio::post(loop_, [this, request, reply, reactor] {
    *reply = agent_.Prepare(*request);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerBidiReactor<pb::CopyInput, pb::CopyOutput>* AgentService::Copy(
    grpc::CallbackServerContext*) {
  return CopyStream::Serve(/*allowed=*/!is_owned_);
}

grpc::ServerWriteReactor<pb::NodeEvent>* AgentService::Run(grpc::CallbackServerContext*,
                                                           const pb::RunRequest* request) {
  auto* writer = new EventWriter(
      loop_, [&agent = agent_](const EventSink*, bool ok) { agent.events().OnWritten(ok); },
      [&agent = agent_](const EventSink*) { agent.OnStreamOver(); });
  asio::post(loop_,
             [this, request = *request, sink = writer->sink()] { agent_.Run(request, sink); });
  return writer;
}

grpc::ServerUnaryReactor* AgentService::Stop(grpc::CallbackServerContext* context,
                                             const pb::StopRequest* request, pb::Empty*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  asio::post(loop_, [this, request = *request] { agent_.Stop(request); });
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* AgentService::Renew(grpc::CallbackServerContext* context,
                                              const pb::RenewRequest* request,
                                              pb::RenewReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  *reply = agent_.Renew(*request);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* AgentService::Failover(grpc::CallbackServerContext* context,
                                                 const pb::FailoverRequest* request,
                                                 pb::FailoverReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  asio::post(loop_, [this, request, reply, reactor] {
    *reply = agent_.Failover(*request);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* AgentService::Signal(grpc::CallbackServerContext* context,
                                               const pb::SignalRequest* request, pb::Empty*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  asio::post(loop_, [this, signal_number = request->signal()] { agent_.Signal(signal_number); });
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* AgentService::Input(grpc::CallbackServerContext* context,
                                              const pb::InputRequest* request,
                                              pb::InputReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  asio::post(loop_, [this, request, reply, reactor] {
    *reply = agent_.Input(*request);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* AgentService::Detach(grpc::CallbackServerContext* context,
                                               const pb::Empty*, pb::DetachReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  asio::post(loop_, [this, reply, reactor] {
    const Result<std::string> path = agent_.Detach();
    if (path.ok()) reply->set_socket_path(*path);
    reactor->Finish(
        path.ok() ? grpc::Status::OK
                  : grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, path.error().message));
  });
  return reactor;
}

grpc::ServerWriteReactor<pb::NodeEvent>* AgentService::Attach(grpc::CallbackServerContext*,
                                                              const pb::AttachRequest* request) {
  auto* writer = new EventWriter(
      loop_,
      [&agent = agent_](const EventSink* sink, bool ok) {
        agent.events().OnViewerWritten(sink, ok);
      },
      [&agent = agent_](const EventSink* sink) { agent.OnViewerOver(sink); });
  asio::post(loop_,
             [this, request = *request, sink = writer->sink()] { agent_.Attach(request, sink); });
  return writer;
}

grpc::ServerUnaryReactor* AgentService::Status(grpc::CallbackServerContext* context,
                                               const pb::Empty*, pb::JobStatus* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  asio::post(loop_, [this, reply, reactor] {
    *reply = agent_.Status();
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* AgentService::GetStacks(grpc::CallbackServerContext* context,
                                                  const pb::StacksRequest* request,
                                                  pb::StacksReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  asio::post(loop_, [this, request, reply, reactor] {
    agent_.supervisor().GetStacks(*request, [reply, reactor](pb::StacksReply stacks) {
      *reply = std::move(stacks);
      reactor->Finish(grpc::Status::OK);
    });
  });
  return reactor;
}

grpc::ServerUnaryReactor* AgentService::Own(grpc::CallbackServerContext* context,
                                            const pb::OwnPart* request, pb::Empty*) {
  is_owned_ = true;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  asio::post(loop_, [this, request, reactor] {
    reactor->Finish(agent_.Own(*request) ? grpc::Status::OK
                                         : grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                                                        "the job is already prepared"));
  });
  return reactor;
}

}  // namespace dslaunch
