#include "cli/commands/attach_session.h"

#include <algorithm>
#include <csignal>
#include <thread>
#include <utility>

#include "base/text/signal_name.h"
#include "cli/core/job_state.h"
#include "cli/session/agent_call.h"
#include "proto/agent.grpc.pb.h"
#include "proto/wire/cause.h"
#include "proto/wire/job_result.h"

namespace dslaunch {
namespace {

constexpr milliseconds kLookTimeout(10'000);
constexpr milliseconds kReconnectDelay(500);
// Limit for reconnecting to a node, from its last event.
constexpr milliseconds kReconnectFor(60'000);

void EndInspection(const NodeStream& stream) {
  if (stream.inspection() != nullptr) stream.inspection()->End();
}

}  // namespace

AttachSession::AttachSession(JobRecord record, AgentBinary agent, ShownRanks shown_ranks,
                             Terminal& terminal)
    : record_(std::move(record)),
      agent_(std::move(agent)),
      shown_{std::move(shown_ranks), std::nullopt, {}},
      nodes_(record_.nodes.size()),
      poster_(std::make_shared<LoopPoster>(loop_)),
      output_(loop_, terminal),
      signals_(loop_),
      limit_(loop_),
      late_(loop_) {}

AttachSession::~AttachSession() {
  poster_->Close();
  // Destroying a stream waits until the stream has ended, so all streams are ended first and finish
  // concurrently.
  for (const auto& stream : old_streams_) EndInspection(*stream);
  for (const Node& node : nodes_) {
    if (node.stream) EndInspection(*node.stream);
  }
}

int AttachSession::Attach() {
  for (const int signal_number : NotIgnored({SIGINT, SIGTERM, SIGHUP})) signals_.add(signal_number);
  signals_.async_wait([this](const asio::error_code& error, int) {
    if (error) return;
    left_ = true;
    loop_.stop();
  });
  Run();
  if (left_) {
    output_.PrintMessage("dslaunch: job " + record_.job_id +
                         " continues; dslaunch attach, logs -f or stop " + record_.job_id);
    return ToInt(ExitCode::kInterrupted);
  }
  if (!end_) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].result) output_.PrintMessage("dslaunch: " + nodes_[i].lost);
    }
    return ToInt(ExitCode::kUnavailable);
  }
  output_.PrintMessage("dslaunch: job " + record_.job_id + " ended with exit code " +
                       std::to_string(end_->exit_code));
  return end_->exit_code;
}

int AttachSession::Stop(bool now, milliseconds within) {
  stopping_ = true;
  kill_now_ = now;
  limit_.expires_after(within);
  limit_.async_wait([this](const asio::error_code& error) {
    if (!error) loop_.stop();
  });
  Run();
  int exit_code = ToInt(ExitCode::kOk);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const std::string& name = record_.nodes[i].name;
    if (node.result && node.result->done().left_size() == 0) continue;
    if (!node.result && !node.reached && HasFinalStatus()) {
      output_.PrintMessage(
          "dslaunch: " + (node.lost.empty() ? name + " was not reached" : node.lost) +
          "; the job has ended, by its final status on another node");
      continue;
    }
    std::string what = node.lost;
    if (node.result) {
      what = name + ": these processes did not end after SIGKILL:";
      for (const pb::LeftProcess& left : node.result->done().left())
        what += " " + std::to_string(left.pid());
    } else if (what.empty()) {
      what = name + ": it did not confirm its teardown in time; look there for processes of job " +
             record_.job_id;
    }
    output_.PrintMessage("dslaunch: " + what);
    exit_code = ToInt(node.lost.empty() ? ExitCode::kTimedOut : ExitCode::kUnavailable);
  }
  if (exit_code == 0) output_.PrintMessage("dslaunch: job " + record_.job_id + " is stopped");
  return exit_code;
}

void AttachSession::Run() {
  for (size_t i = 0; i < nodes_.size(); ++i) Open(i);
  loop_.run();
  output_.FinishStreams();
  DecideEnd();
  signals_.clear();  // from now on, Ctrl-C ends the wait for a slow terminal
  output_.Drain();
}

void AttachSession::Open(size_t index) {
  Node& node = nodes_[index];
  if (node.stream) old_streams_.push_back(std::move(node.stream));
  NodeStream::Handlers handlers;
  // gRPC reads the request when the call starts, so the handlers own the request.
  auto request = std::make_shared<pb::AttachRequest>();
  handlers.start = [this, index, request](const std::shared_ptr<grpc::Channel>& channel,
                                          grpc::ClientContext* context,
                                          NodeStream::Reactor* reactor) {
    *request->mutable_shown() = shown_.ToProto();
    for (const auto& [key, offset] : nodes_[index].offsets) {
      pb::LogOffset& named = *request->add_offsets();
      named.set_attempt(std::get<0>(key));
      named.set_rank(std::get<1>(key));
      named.set_is_stderr(std::get<2>(key));
      named.set_offset(offset);
    }
    pb::Agent::NewStub(channel)->async()->Attach(context, request.get(), reactor);
  };
  handlers.event = [this, index](const pb::NodeEvent& event) { OnEvent(index, event); };
  handlers.log = [this, index](const pb::LogChunk& chunk, std::function<void()> go_on) {
    OnLog(index, chunk, std::move(go_on));
  };
  handlers.over = [this, index](const Result<void>& result) { OnStreamOver(index, result); };
  handlers.broke_rules = [this, index](const std::string& what) {
    nodes_[index].lost = record_.nodes[index].name + " was lost: its agent sent " + what;
    EndIfAllOver();
  };
  node.stream = std::make_unique<NodeStream>(poster_, std::move(handlers));
  node.stream->Open(record_, index, AgentRole::Kind::kAttach, agent_,
                    Deadline::After(kConnectTimeout));
}

void AttachSession::OnEvent(size_t index, const pb::NodeEvent& event) {
  Node& node = nodes_[index];
  node.last_seen = Clock::now();
  node.reached = true;
  if (stopping_ && !std::exchange(node.stop_sent, true)) SendStop(index);
  if (event.has_started()) {
    const size_t world_size = event.started().world_size();
    output_.SetShownRanks(shown_.CountRanks(world_size, nodes_.size(), world_size));
  }
  switch (event.event_case()) {
    case pb::NodeEvent::kStatus:
      if (!stopping_) output_.Progress(event.status());
      break;
    case pb::NodeEvent::kNotice:
      output_.PrintMessage("dslaunch: " + event.notice().message());
      break;
    case pb::NodeEvent::kRestarting: {
      const pb::Restarting& restarting = event.restarting();
      // The end of this attempt was already reported by another node.
      if (restarting.attempt() <= ended_attempt_) break;
      ended_attempt_ = restarting.attempt();
      output_.PrintMessage(
          "dslaunch: " +
          AttemptEndText(restarting, record_.NodeName(restarting.cause().node_index())));
      break;
    }
    case pb::NodeEvent::kOutcome:
      node.outcome = event.outcome().cause();
      break;
    case pb::NodeEvent::kDone:
      node.result = MakeJobResult(record_.job_id, node.outcome.value_or(pb::Cause()), event.done());
      node.result->set_ended_unix_ms(UnixMs());
      EndIfAllOver();
      break;
    default:
      break;
  }
}

void AttachSession::OnLog(size_t index, const pb::LogChunk& chunk, std::function<void()> go_on) {
  Node& node = nodes_[index];
  node.last_seen = Clock::now();
  node.reached = true;
  node.offsets[{chunk.attempt(), chunk.rank(), chunk.is_stderr()}] =
      chunk.offset() + chunk.data().size();
  if ((chunk.data().empty() && !chunk.stands_still()) || stopping_) return go_on();
  output_.Log(record_.nodes[index].name, chunk, std::move(go_on));
}

// Handles the end of a node's stream. Either the job has ended on the node or the connection broke,
// so the node's files are read to find out.
void AttachSession::OnStreamOver(size_t index, const Result<void>& result) {
  if (nodes_[index].over()) return;
  if (!result.ok()) return Lost(index, result.error().message);
  std::thread([this, poster = poster_, record = record_, agent = agent_, index] {
    Result<pb::JobSight> sight = InspectNode(record, index, agent, Deadline::After(kLookTimeout));
    poster->Post([this, index, sight = std::move(sight)] { OnSight(index, sight); });
  }).detach();
}

void AttachSession::OnSight(size_t index, const Result<pb::JobSight>& sight) {
  Node& node = nodes_[index];
  const std::string& name = record_.nodes[index].name;
  if (!sight.ok()) return Lost(index, sight.error().message);
  if (sight->state() == pb::JobSight::RUNNING)
    return Lost(index, name + ": the connection to its agent broke");
  if (sight->state() == pb::JobSight::ENDED) {
    node.result = sight->result();
  } else if (sight->state() == pb::JobSight::STRAY) {
    node.lost = name + ": the job has processes there but no agent:";
    for (const int pid : sight->pids()) node.lost += " " + std::to_string(pid);
  } else {
    node.lost = name + ": nothing of job " + record_.job_id +
                " runs there, and there is no record of how it ended";
  }
  EndIfAllOver();
}

// Handles the loss of a node. Reconnects for kReconnectFor to a node that was reached before.
void AttachSession::Lost(size_t index, const std::string& why) {
  Node& node = nodes_[index];
  if (!node.reached || Clock::now() - node.last_seen >= kReconnectFor) {
    node.lost = why;
    return EndIfAllOver();
  }
  asio::steady_timer& retry = retries_.try_emplace(index, loop_).first->second;
  retry.expires_after(kReconnectDelay);
  retry.async_wait([this, index](const asio::error_code& error) {
    if (!error) Open(index);
  });
}

void AttachSession::SendStop(size_t index) {
  const pb::Cause cause = MakeSignalCause(pb::Cause::INTERRUPTED, static_cast<uint32_t>(index),
                                          SIGTERM, "stopped by dslaunch stop");
  NodeInspection& inspection = *nodes_[index].stream->inspection();
  dslaunch::SendStop(*pb::Agent::NewStub(inspection.channel()), cause, kill_now_,
                     inspection.BeginCall());
}

bool AttachSession::HasFinalStatus() const {
  return std::ranges::any_of(nodes_, [](const Node& node) {
    return node.result.has_value() && node.result->done().completed();
  });
}

void AttachSession::EndIfAllOver() {
  if (std::ranges::all_of(nodes_, [](const Node& node) { return node.over(); }))
    return loop_.stop();
  const bool awaits_reached =
      std::ranges::any_of(nodes_, [](const Node& node) { return node.reached && !node.over(); });
  if (awaits_reached || !HasFinalStatus() || std::exchange(late_armed_, true)) return;
  late_.expires_after(kLateAnswers);
  late_.async_wait([this](const asio::error_code& error) {
    if (!error) loop_.stop();
  });
}

void AttachSession::DecideEnd() {
  std::vector<const pb::JobResult*> results;
  for (const Node& node : nodes_) {
    if (node.result) results.push_back(&*node.result);
  }
  // The final status from one node is enough, even if another node cannot be reached.
  const pb::JobResult* const chosen = ChooseResult(results);
  if (chosen == nullptr || (results.size() < nodes_.size() && !chosen->done().completed())) return;
  const pb::JobResult& result = *chosen;
  JobView view;
  view.record = record_;
  view.state = JobView::State::kEnded;
  view.exit_code = result.exit_code();
  view.ended_unix_ms = result.ended_unix_ms();
  view.detail = CauseText(result.cause(), record_.NodeName(result.cause().node_index()));
  view.result = result;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].result && &*nodes_[i].result == chosen) view.result_node = i;
  }
  end_ = std::move(view);
}

}  // namespace dslaunch
