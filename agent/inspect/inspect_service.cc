#include "agent/inspect/inspect_service.h"

#include <unistd.h>

#include <algorithm>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <thread>
#include <utility>

#include "agent/inspect/node_info.h"
#include "agent/logs/event_writer.h"
#include "agent/logs/job_folder.h"
#include "agent/logs/job_logs.h"
#include "agent/logs/rank_files.h"
#include "agent/node/attach_socket.h"
#include "agent/node/kept_result.h"
#include "agent/probe/node_probe.h"
#include "base/deadline.h"
#include "base/os/process_tree.h"
#include "proto/agent.grpc.pb.h"
#include "proto/contract/job_id.h"
#include "proto/contract/worker_env.h"
#include "proto/wire/channel.h"

namespace dslaunch {
namespace {

constexpr milliseconds kAgentAnswers(2000);
constexpr milliseconds kLookForNewFiles(500);

bool IsPlace(const pb::JobPlace& place) {
  const std::string& name = place.node_name();
  return IsJobId(place.job_id()) && !name.empty() && name != "." && name != "..";
}

// Returns the job's folder; empty if the job has no folder or `place` is invalid. Fails if the
// folder may belong to another user; no file in the folder may then be read.
Result<std::string> FindFolder(const pb::JobPlace& place) {
  if (!IsPlace(place)) return std::string();
  return JobFolder::Find(place.log_dir(), place.job_id(), place.node_name(), NodeEnvironment());
}

std::string FolderOf(const pb::JobPlace& place) {
  const Result<std::string> found = FindFolder(place);
  return found.ok() ? *found : "";
}

std::vector<std::string> OwnSocketFolders() {
  return SocketFolders(std::getenv("XDG_RUNTIME_DIR"), ::geteuid());
}

// Requests the job's status from its agent. Leaves the status unset if the agent does not answer.
void AskAgent(const pb::JobPlace& place, pb::JobSight& sight) {
  UniqueFd socket =
      ConnectToSocket(OwnSocketFolders(), SocketName(place.job_id(), place.node_index()));
  if (!socket) return;
  const auto stub = pb::Agent::NewStub(ChannelFromFd("agent", std::move(socket)));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kAgentAnswers);
  pb::JobStatus status;
  if (stub->Status(&context, {}, &status).ok()) *sight.mutable_status() = std::move(status);
}

int64_t UnixUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Answers a call with the result of `answer`. The function may block, so it runs on a separate
// thread. The thread may outlive the service, so the function must not use the service.
template <class Request, class Reply>
grpc::ServerUnaryReactor* AnswerOnThread(grpc::CallbackServerContext* context,
                                         const Request* request, Reply* reply,
                                         Reply (*answer)(const Request&)) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  std::thread([request, reply, reactor, answer] {
    *reply = answer(*request);
    reactor->Finish(grpc::Status::OK);
  }).detach();
  return reactor;
}

}  // namespace

pb::JobSight LookAtJob(const pb::JobPlace& place) {
  pb::JobSight sight;
  if (!IsPlace(place)) return sight;
  const std::string folder = FolderOf(place);
  // The agent writes the result while it still listens, so the result is read before the agent is
  // asked.
  if (std::optional<pb::JobResult> result =
          FindResult(folder, OwnSecondResultFolders(place.job_id(), place.node_index()))) {
    sight.set_state(pb::JobSight::ENDED);
    *sight.mutable_result() = *std::move(result);
    return sight;
  }
  if (ConnectToSocket(OwnSocketFolders(), SocketName(place.job_id(), place.node_index()))) {
    sight.set_state(pb::JobSight::RUNNING);
    return sight;
  }
  for (const ProcessInfo& process : ProcessesWithVariable(kJobIdVariable, place.job_id()))
    sight.add_pids(process.id.pid);
  if (sight.pids_size() > 0)
    sight.set_state(pb::JobSight::STRAY);
  else if (!folder.empty())
    sight.set_state(pb::JobSight::LOST);
  return sight;
}

pb::RemoveReply RemoveJob(const pb::JobPlace& place) {
  pb::RemoveReply reply;
  const pb::JobSight sight = LookAtJob(place);
  const std::string where = place.node_name() + ": job " + place.job_id();
  if (sight.state() == pb::JobSight::RUNNING) {
    reply.set_refusal(where + " runs; stop it with dslaunch stop " + place.job_id());
    return reply;
  }
  if (!ProcessesWithVariable(kJobIdVariable, place.job_id()).empty()) {
    reply.set_refusal(where + " has ended but processes of it run");
    return reply;
  }
  if (!IsPlace(place)) return reply;
  const Result<std::string> found = FindFolder(place);
  if (!found.ok()) {
    reply.set_refusal(where + ": " + found.error().message);
    return reply;
  }
  const std::filesystem::path folder = *found;
  std::error_code error;
  if (!folder.empty()) std::filesystem::remove_all(folder, error);
  if (error) {
    reply.set_refusal(where + ": cannot remove " + folder.string() + ": " + error.message());
    return reply;
  }
  for (const std::string& second : OwnSecondResultFolders(place.job_id(), place.node_index()))
    std::filesystem::remove_all(second, error);
  // Removes the socket that a killed agent left. Removes the parent folders too, unless other nodes
  // or the front end use them.
  for (const std::string& sockets : OwnSocketFolders())
    ::unlink((sockets + "/" + SocketName(place.job_id(), place.node_index())).c_str());
  if (!folder.empty() && ::rmdir(folder.parent_path().c_str()) == 0)
    ::rmdir(folder.parent_path().parent_path().c_str());
  return reply;
}

// Serves one Read call. Follows files as they appear. Ends when the job has ended and all files
// were read.
class InspectService::Reading {
 public:
  Reading(asio::io_context& loop, pb::ReadRequest request, std::shared_ptr<EventSink> sink)
      : request_(std::move(request)),
        folder_(FolderOf(request_.place())),
        sink_(std::move(sink)),
        stream_(loop, UINT64_MAX),  // no limit, because a requested file is sent completely
        timer_(loop) {
    stream_.Attach(sink_);
    Look();
  }

  const EventSink* sink() const { return sink_.get(); }
  void OnWritten(bool ok) { stream_.OnWritten(ok); }

 private:
  void Look() {
    const bool over =
        !request_.follow() || LookAtJob(request_.place()).state() != pb::JobSight::RUNNING;
    for (const JobLog& log : ListJobLogs(folder_)) {
      if (!request_.all() && std::ranges::count(request_.ranks(), log.rank) == 0) continue;
      if (!seen_.insert(log.path).second) continue;
      if (std::exchange(attempt_, log.attempt) != log.attempt) stream_.EndAttempt();
      const uint64_t offset =
          request_.since_unix_ms() > 0 ? OffsetAt(log, request_.since_unix_ms()) : 0;
      stream_.Follow({log.attempt, log.rank, /*local_rank=*/0, log.is_stderr}, log.path, offset);
    }
    if (over) return stream_.End({});
    timer_.expires_after(kLookForNewFiles);
    timer_.async_wait([this](const asio::error_code& error) {
      if (!error) Look();
    });
  }

  const pb::ReadRequest request_;
  const std::string folder_;
  const std::shared_ptr<EventSink> sink_;
  EventStream stream_;
  asio::steady_timer timer_;
  std::set<std::string> seen_;
  uint64_t attempt_ = 0;
};

namespace {

// Serves one Collect call. Runs on gRPC's threads only, shares no state, and deletes itself.
class Collecting final : public grpc::ServerWriteReactor<pb::RankFilePart> {
 public:
  explicit Collecting(const pb::CollectRequest& request)
      : reader_(FolderOf(request.place()), request.max_bytes()) {
    WriteNext();
  }

  void OnWriteDone(bool ok) override {
    if (ok)
      WriteNext();
    else
      Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  void WriteNext() {
    std::optional<pb::RankFilePart> part = reader_.Next();
    if (!part) return Finish(grpc::Status::OK);
    part_ = *std::move(part);
    StartWrite(&part_);
  }

  RankFileReader reader_;
  pb::RankFilePart part_;
};

}  // namespace

InspectService::InspectService(asio::io_context& loop) : loop_(loop), probe_(loop) {}
InspectService::~InspectService() = default;

grpc::ServerUnaryReactor* InspectService::Look(grpc::CallbackServerContext* context,
                                               const pb::JobPlace* request, pb::JobSight* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  asio::post(loop_, [request, reply, reactor] {
    *reply = LookAtJob(*request);
    if (reply->state() == pb::JobSight::RUNNING) AskAgent(*request, *reply);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerWriteReactor<pb::NodeEvent>* InspectService::Read(grpc::CallbackServerContext*,
                                                              const pb::ReadRequest* request) {
  auto* writer = new EventWriter(
      loop_,
      [this](const EventSink* sink, bool ok) {
        for (const auto& reading : readings_) {
          if (reading->sink() == sink) return reading->OnWritten(ok);
        }
      },
      [this](const EventSink* sink) {
        std::erase_if(readings_, [&](const auto& reading) { return reading->sink() == sink; });
      });
  asio::post(loop_, [this, request = *request, sink = writer->sink()] {
    readings_.push_back(std::make_shared<Reading>(loop_, request, sink));
  });
  return writer;
}

grpc::ServerWriteReactor<pb::RankFilePart>* InspectService::Collect(
    grpc::CallbackServerContext*, const pb::CollectRequest* request) {
  return new Collecting(*request);
}

grpc::ServerUnaryReactor* InspectService::Remove(grpc::CallbackServerContext* context,
                                                 const pb::JobPlace* request,
                                                 pb::RemoveReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  asio::post(loop_, [request, reply, reactor] {
    *reply = RemoveJob(*request);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

// The answer is computed on a separate thread, which may outlive the service, so that thread does
// not use the service.
grpc::ServerUnaryReactor* InspectService::GetNodeInfo(grpc::CallbackServerContext* context,
                                                      const pb::NodeInfoRequest* request,
                                                      pb::NodeInfo* reply) {
  const int64_t received = UnixUs();
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  std::thread([request, reply, reactor, received] {
    *reply = dslaunch::GetNodeInfo(*request);
    reply->set_received_unix_us(received);
    reply->set_answered_unix_us(UnixUs());
    reactor->Finish(grpc::Status::OK);
  }).detach();
  return reactor;
}

grpc::ServerUnaryReactor* InspectService::Listen(grpc::CallbackServerContext* context,
                                                 const pb::ListenRequest* request,
                                                 pb::ListenReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  asio::post(loop_, [this, request, reply, reactor] {
    *reply = probe_.Start(*request);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* InspectService::Reach(grpc::CallbackServerContext* context,
                                                const pb::ReachRequest* request,
                                                pb::ReachReply* reply) {
  return AnswerOnThread(context, request, reply, ProbeReachability);
}

grpc::ServerUnaryReactor* InspectService::MeasureNode(grpc::CallbackServerContext* context,
                                                      const pb::MeasureRequest* request,
                                                      pb::NodeMeasurement* reply) {
  return AnswerOnThread(context, request, reply, dslaunch::MeasureNode);
}

grpc::ServerUnaryReactor* InspectService::ServeLink(grpc::CallbackServerContext* context,
                                                    const pb::ServeLinkRequest* request,
                                                    pb::ServeLinkReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  asio::post(loop_, [this, request, reply, reactor] {
    *reply = links_.Start(*request);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* InspectService::MeasureLink(grpc::CallbackServerContext* context,
                                                      const pb::MeasureLinkRequest* request,
                                                      pb::LinkMeasurement* reply) {
  return AnswerOnThread(context, request, reply, dslaunch::MeasureLink);
}

}  // namespace dslaunch
