#include "agent/node/node_rendezvous.h"

#include <asio/post.hpp>
#include <thread>
#include <utility>

#include "agent/core/rendezvous_options.h"
#include "agent/host/node_identity.h"
#include "agent/host/open_files.h"

namespace dslaunch {
namespace {

// Multiple of dead_ms after which the connection counts as broken. It exceeds 1, so that the core
// judges the silence of the rendezvous first.
constexpr int kRendezvousPatience = 2;

}  // namespace

NodeRendezvous::NodeRendezvous(asio::io_context& loop, NodeOutput& out)
    : loop_(loop), out_(out), core_(out.core()), poster_(std::make_shared<LoopPoster>(loop)) {}

// Returns the limits of the messages that the rendezvous of this job may send to this node.
PeerLimits NodeRendezvous::Limits() const {
  PeerLimits limits;
  limits.nodes = core_.job().nodes().size();
  limits.ranks = core_.job().nodes().num_slots();
  limits.slots = core_.job().node().slots();
  return limits;
}

Result<void> NodeRendezvous::Open(const pb::FailoverRequest& last) {
  const NodeJob& job = core_.job();
  const pb::PrepareRequest& prepare = job.request();
  ListenOptions listen;
  listen.loopback_only = prepare.job().local();
  listen.port = static_cast<int>(prepare.job().rdzv_port());
  listen.network_interface = prepare.job().network_interface();
  const auto age = std::chrono::duration_cast<milliseconds>(Clock::now() - made_at_);
  if (prepare.node_index() == 0) listen.advertised_address = prepare.advertised_address();
  DSL_TRY(CheckOpenFiles(job.node_name(), job.nodes().size(), ReadOpenFiles()));
  DSL_TRY_ASSIGN(std::unique_ptr<RendezvousServer> server,
                 RendezvousServer::Start(RendezvousOptions(prepare, job.nodes(), last, age), listen,
                                         prepare.credentials(), [this](const std::string& line) {
                                           asio::post(loop_, [this, line] { out_.Log(line); });
                                         }));
  const MutexLock lock(server_mutex_);
  server_ = std::move(server);
  return {};
}

std::vector<std::string> NodeRendezvous::endpoints() const {
  return server_ ? server_->endpoints() : std::vector<std::string>();
}

void NodeRendezvous::OpenVotes(RankLinkHub& hub) {
  votes_ = std::make_unique<ElectionLink>(
      loop_, hub, Limits(),
      ElectionLink::Handlers{
          .on_vote =
              [this](uint32_t voter, const pb::Vote& vote) {
                out_.Feed(
                    [&](Clock::time_point now) { core_.majority().OnVote(voter, vote, now); });
              },
          .on_voter_gone = [this](uint32_t voter) { core_.majority().OnVoterGone(voter); },
          .on_answer =
              [this](uint32_t candidate, const pb::VoteAnswer& answer) {
                out_.Feed([&](Clock::time_point now) {
                  core_.majority().OnVoteAnswer(candidate, answer, now);
                });
              },
          .on_line = [this](const std::string& line) { out_.Log(line); }});
}

void NodeRendezvous::OpenLink() {
  const pb::PrepareRequest& prepare = core_.job().request();
  link_ = std::make_unique<RendezvousLink>(
      loop_, prepare.job().job_id(), prepare.node_index(), Limits(),
      [this](const pb::RendezvousMessage& message) {
        out_.Feed([&](Clock::time_point now) {
          core_.OnRendezvousMessage(message, now, BootClock::now());
        });
      },
      [this](const std::string& why) {
        out_.Feed([&](Clock::time_point now) { core_.membership().OnEnd(why, now); });
      },
      [this](BootClock::time_point sent, std::chrono::microseconds age) {
        core_.majority().OnMajority(sent, age, BootClock::now());
      });
}

void NodeRendezvous::Turn(std::vector<pb::Stillness> stillness) {
  const WorkersCore& workers = core_.workers();
  link_->SetBeat(workers.attempt(), workers.ranks().Progress(Clock::now()), std::move(stillness));
  if (core_.membership().IsQuiet(Clock::now())) link_->Refresh();
}

void NodeRendezvous::TickServer() {
  std::shared_ptr<RendezvousServer> server;
  {
    const MutexLock lock(server_mutex_);
    server = server_;
  }
  if (server) server->Tick();
}

void NodeRendezvous::Do(agent_action::SendToRendezvous& action) {
  const uint64_t attempt = action.message.attempt();
  link_->Send(attempt, std::move(action.message));
}

void NodeRendezvous::Do(agent_action::FindRendezvous& action) {
  find_ = action;
  Dial(action, [this](const Result<RendezvousRoute>& route) {
    if (route.ok()) route_ = *route;
    const Result<std::string> address =
        route.ok() ? Result<std::string>(route->address) : route.error();
    out_.Feed([&](Clock::time_point now) { core_.membership().OnFound(address, now); });
  });
}

void NodeRendezvous::Dial(const agent_action::FindRendezvous& action,
                          std::function<void(Result<RendezvousRoute>)> then) {
  const pb::PrepareRequest& prepare = core_.job().request();
  // The search blocks and cannot be interrupted, so it runs on a thread that may outlive this
  // agent.
  std::thread([action, then = std::move(then), poster = poster_, job_id = prepare.job().job_id(),
               credentials = prepare.credentials(),
               silent_after =
                   kRendezvousPatience * milliseconds(prepare.job().timeouts().dead_ms()),
               deadline = Deadline::After(action.limit)] {
    Result<RendezvousRoute> route = FindRendezvous(action.endpoints, job_id, action.node_index,
                                                   credentials, deadline, silent_after);
    poster->Post([then, route = std::move(route)] { then(route); });
  }).detach();
}

void NodeRendezvous::Join(agent_action::JoinRendezvous& action) {
  action.join.set_identity(NodeIdentity());
  if (action.in_process) route_ = {server_->InProcessChannel(), ""};
  // A node that does not reconnect within dead_ms counts as lost, so the search for reconnecting
  // has that limit.
  agent_action::FindRendezvous again = find_;
  again.limit = milliseconds(core_.job().timeouts().dead_ms());
  RendezvousLink::Redial redial;
  if (!action.in_process) {
    redial = [this, again](std::function<void(Result<RendezvousRoute>)> then) {
      Dial(again, std::move(then));
    };
  }
  link_->Join(route_, std::move(action.join), std::move(redial));
}

void NodeRendezvous::Do(agent_action::LeaveRendezvous&) {
  std::shared_ptr<RendezvousServer> server;
  {
    const MutexLock lock(server_mutex_);
    server.swap(server_);
  }
  server.reset();
  link_->Leave();
}

void NodeRendezvous::Do(agent_action::SendVote& action) {
  if (votes_) votes_->SendVote(action);
}

void NodeRendezvous::Do(agent_action::WithdrawVote&) {
  if (votes_) votes_->WithdrawVote();
}

void NodeRendezvous::Do(agent_action::AnswerVote& action) {
  if (votes_) votes_->AnswerVote(action);
}

void NodeRendezvous::Do(agent_action::OpenRendezvous& action) {
  const Result<void> opened = Open(action.last);
  const Result<std::vector<std::string>> endpoints =
      opened.ok() ? Result<std::vector<std::string>>(server_->endpoints()) : opened.error();
  out_.Feed([&](Clock::time_point) { core_.majority().OnRendezvousOpened(endpoints); });
}

}  // namespace dslaunch
