#include "cli/commands/logs_session.h"

#include <csignal>
#include <utility>

#include "base/text/signal_name.h"

namespace dslaunch {
LogsSession::LogsSession(JobRecord record, AgentBinary agent, JobCommand command,
                         Terminal& terminal)
    : record_(std::move(record)),
      agent_(std::move(agent)),
      command_(std::move(command)),
      poster_(std::make_shared<LoopPoster>(loop_)),
      output_(loop_, terminal),
      signals_(loop_) {}

LogsSession::~LogsSession() {
  poster_->Close();
  // Destroying a stream waits until the stream has ended, so all streams are ended first and finish
  // concurrently.
  for (const auto& stream : streams_) {
    if (stream->inspection() != nullptr) stream->inspection()->End();
  }
}

int LogsSession::Run() {
  for (const int signal_number : NotIgnored({SIGINT, SIGTERM, SIGHUP})) signals_.add(signal_number);
  signals_.async_wait([this](const asio::error_code& error, int) {
    if (error) return;
    exit_code_ = ToInt(ExitCode::kInterrupted);
    loop_.stop();
  });
  open_ = record_.nodes.size();
  for (size_t i = 0; i < record_.nodes.size(); ++i) Open(i);
  loop_.run();
  signals_.clear();
  output_.FinishStreams();
  output_.Drain();
  return exit_code_;
}

void LogsSession::Open(size_t index) {
  // gRPC reads the request when the call starts, so the handlers own the request.
  auto request = std::make_shared<pb::ReadRequest>();
  *request->mutable_place() = PlaceOf(record_, index);
  request->set_all(command_.shown_ranks.all);
  for (const int rank : command_.shown_ranks.ranks) request->add_ranks(static_cast<uint32_t>(rank));
  request->set_follow(command_.follow);
  request->set_since_unix_ms(command_.since_unix_ms);
  auto complete = std::make_shared<bool>(false);
  NodeStream::Handlers handlers;
  handlers.start = [request](const std::shared_ptr<grpc::Channel>& channel,
                             grpc::ClientContext* context, NodeStream::Reactor* reactor) {
    pb::Inspection::NewStub(channel)->async()->Read(context, request.get(), reactor);
  };
  handlers.event = [complete](const pb::NodeEvent& event) {
    *complete = *complete || event.has_done();
  };
  handlers.log = [this, index](const pb::LogChunk& chunk, std::function<void()> go_on) {
    output_.Log(record_.nodes[index].name, chunk, std::move(go_on));
  };
  handlers.broke_rules = [this, index](const std::string& what) {
    output_.PrintMessage("dslaunch: " + record_.nodes[index].name + ": its agent sent " + what);
  };
  handlers.over = [this, index, complete](const Result<void>& result) {
    OnOver(index, result, *complete);
  };
  streams_.push_back(std::make_unique<NodeStream>(poster_, std::move(handlers)));
  streams_.back()->Open(record_, index, AgentRole::Kind::kRead, agent_,
                        Deadline::After(kConnectTimeout));
}

void LogsSession::OnOver(size_t index, const Result<void>& result, bool complete) {
  if (!result.ok() || !complete) {
    output_.PrintMessage("dslaunch: " + (result.ok()
                                             ? record_.nodes[index].name + ": the connection broke"
                                             : result.error().message));
    exit_code_ = ToInt(ExitCode::kUnavailable);
  }
  if (--open_ == 0) loop_.stop();
}

}  // namespace dslaunch
