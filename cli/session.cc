#include "cli/session.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <asio/post.hpp>
#include <cstring>
#include <thread>
#include <utility>

#include "cli/count.h"
#include "cli/job_summary.h"
#include "proto/contract/signal_name.h"
#include "rendezvous/cause.h"
#include "rendezvous/certificate_authority.h"
#include "rendezvous/channel.h"

namespace dslaunch {
namespace {

constexpr milliseconds kPrepareTimeout(30'000);
constexpr milliseconds kStopTimeout(5'000);
constexpr milliseconds kWatchdogSlack(2'000);  // a gRPC deadline can be missed while a write blocks
constexpr milliseconds kTeardownSlack(5'000);  // beyond what the nodes allow themselves
constexpr milliseconds kGoodbyeWait(5'000);    // for keepers that have nothing left to do
constexpr milliseconds kSilentNodeWait(
    2'000);  // for a keeper that has just noticed a stopped agent
constexpr milliseconds kSameInterrupt(100);
constexpr milliseconds kDrainTimeout(10'000);  // for a terminal to take the last words

std::chrono::system_clock::time_point SystemTimeAfter(milliseconds duration) {
  return std::chrono::system_clock::now() + duration;
}

}  // namespace

struct LaunchSession::NodeState {
  const PlannedNode* planned = nullptr;
  std::unique_ptr<NodeLink> link;
  UniqueFd stream;  // a second descriptor of the link's stream, to end it with
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<pb::Agent::Stub> stub;
  std::unique_ptr<grpc::ClientContext> prepare_context;
  pb::PrepareReply prepare_reply;
  std::optional<pb::NodeFacts> facts;
  std::optional<Error> failure;  // of connecting or preparing
  std::unique_ptr<EventReader> reader;
  std::unique_ptr<asio::steady_timer> watchdog;
  bool given_up = false;      // it did not end in time
  bool stream_ended = false;  // of Run
  bool ended = false;         // nothing more will come: done, or lost and its link ended
  NodeEnd end;
};

// The Run stream of one node. The next event is read when the last one has been dealt with.
class LaunchSession::EventReader final : public grpc::ClientReadReactor<pb::NodeEvent> {
 public:
  EventReader(LaunchSession& session, size_t index, pb::Agent::Stub& stub,
              const pb::RunRequest& request)
      : session_(session), index_(index), request_(request) {
    stub.async()->Run(&context_, &request_, this);
    StartRead(&event_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    asio::post(session_.loop_, [this] { Handle(); });
  }
  void OnDone(const grpc::Status&) override {
    asio::post(session_.loop_, [this] { session_.OnStreamEnd(index_); });
  }

 private:
  void Handle() {
    if (!event_.has_log()) {
      session_.OnEvent(index_, event_);
      return StartRead(&event_);
    }
    session_.output_.Log(session_.nodes_[index_]->planned->name, event_.log(),
                         [this] { StartRead(&event_); });
  }

  LaunchSession& session_;
  const size_t index_;
  const pb::RunRequest request_;
  grpc::ClientContext context_;
  pb::NodeEvent event_;
};

LaunchSession::LaunchSession(SessionOptions options, Transport& transport, Terminal& terminal)
    : options_(std::move(options)),
      transport_(transport),
      output_(loop_, terminal),
      signals_(loop_),
      teardown_timer_(loop_) {
  for (const PlannedNode& planned : options_.plan.nodes) {
    auto node = std::make_unique<NodeState>();
    node->planned = &planned;
    node->end.name = planned.name;
    nodes_.push_back(std::move(node));
  }
}

int LaunchSession::Run() {
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP})
    signals_.add(signal_number);
  const std::function<void()> wait_for_signal = [&] {
    signals_.async_wait([&](const asio::error_code& error, int signal_number) {
      if (error) return;
      OnSignal(signal_number);
      wait_for_signal();
    });
  };
  wait_for_signal();
  ConnectAll();
  loop_.run();
  const int exit_code = failed_to_start_ ? ReportStartFailure() : ReportEnd();
  signals_.clear();  // whoever does not want to wait for a slow terminal can interrupt that
  output_.Drain(Deadline::After(kDrainTimeout));
  return exit_code;
}

// --- Start ---

void LaunchSession::ConnectAll() {
  pending_ = nodes_.size();
  const Deadline deadline = Deadline::After(options_.connect_timeout);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const PlannedNode& planned = *nodes_[i]->planned;
    NodeTarget target{planned.name, planned.host, planned.port, planned.user};
    // Detached: an interrupted session does not wait for a host that never answers.
    std::thread([this, i, target = std::move(target), deadline] {
      auto link =
          std::make_shared<Result<std::unique_ptr<NodeLink>>>(transport_.Connect(target, deadline));
      asio::post(loop_, [this, i, link] { OnConnected(i, std::move(*link)); });
    }).detach();
  }
  // While the network is busy there is time for the job's keys.
  prepare_.set_job_id(options_.job_id);
  *prepare_.mutable_program() = options_.program;
  *prepare_.mutable_timeouts() = options_.timeouts;
  prepare_.set_log_dir(options_.log_dir);
  prepare_.set_master_port(static_cast<uint32_t>(options_.master_port));
  prepare_.set_local(options_.plan.launcher == Launcher::kLocal);
  prepare_.set_device(options_.device == DeviceChoice::kCuda  ? pb::DEVICE_CUDA
                      : options_.device == DeviceChoice::kCpu ? pb::DEVICE_CPU
                                                              : pb::DEVICE_AUTO);
  for (const auto& node : nodes_) {
    pb::Node& pb_node = *prepare_.add_nodes();
    pb_node.set_name(node->planned->name);
    pb_node.set_slots(static_cast<uint32_t>(node->planned->slots));
  }
}

void LaunchSession::OnConnected(size_t index, Result<std::unique_ptr<NodeLink>> link) {
  NodeState& node = *nodes_[index];
  if (!link.ok()) {
    Fail(index, link.error());
  } else {
    node.link = *std::move(link);
    UniqueFd fd = node.link->TakeFd();
    node.stream.Reset(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
    node.channel = ChannelFromFd(node.planned->name, std::move(fd));
    node.stub = pb::Agent::NewStub(node.channel);
  }
  OnStepDone();
}

// The last answer of a step leads to the next, if all were good.
void LaunchSession::OnStepDone() {
  if (--pending_ > 0) return;
  const bool failed =
      std::any_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node->failure; });
  if (failed) {
    failed_to_start_ = true;
    return loop_.stop();
  }
  preparing_ ? RunAll() : PrepareAll();
}

void LaunchSession::PrepareAll() {
  preparing_ = true;
  pending_ = nodes_.size();
  std::optional<CertificateAuthority> authority;
  if (nodes_.size() > 1) {
    Result<CertificateAuthority> created = CertificateAuthority::Create(options_.job_id);
    if (!created.ok()) return Fail(0, created.error()), void(failed_to_start_ = true), loop_.stop();
    authority.emplace(*std::move(created));
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    NodeState& node = *nodes_[i];
    prepare_.set_node_index(static_cast<uint32_t>(i));
    if (authority) {
      Result<pb::Credentials> credentials = authority->Issue(node.planned->name);
      if (!credentials.ok())
        return Fail(i, credentials.error()), void(failed_to_start_ = true), loop_.stop();
      *prepare_.mutable_credentials() = *std::move(credentials);
    }
    auto request = std::make_shared<pb::PrepareRequest>(prepare_);
    node.prepare_context = std::make_unique<grpc::ClientContext>();
    node.prepare_context->set_deadline(SystemTimeAfter(kPrepareTimeout));
    node.stub->async()->Prepare(
        node.prepare_context.get(), request.get(), &node.prepare_reply,
        [this, i, request](const grpc::Status& status) {
          asio::post(loop_, [this, i, status] { OnPrepared(i, status, nodes_[i]->prepare_reply); });
        });
    node.watchdog = std::make_unique<asio::steady_timer>(loop_, kPrepareTimeout + kWatchdogSlack);
    node.watchdog->async_wait([&node](const asio::error_code& error) {
      if (!error) node.link->Abort("the agent did not answer");
    });
  }
}

void LaunchSession::OnPrepared(size_t index, const grpc::Status& status,
                               const pb::PrepareReply& reply) {
  NodeState& node = *nodes_[index];
  node.watchdog.reset();
  if (!status.ok()) {
    const std::string words = node.link->StderrTail();
    Fail(index, {ExitCode::kUnavailable,
                 node.planned->name + ": its agent broke off before the start (" +
                     status.error_message() + ")" + (words.empty() ? "" : ": " + words)});
  } else if (reply.has_facts()) {
    node.facts = reply.facts();
  } else {
    Fail(index, {static_cast<ExitCode>(reply.failure().exit_code()), reply.failure().message()});
  }
  OnStepDone();
}

void LaunchSession::RunAll() {
  std::vector<NodeGpus> gpus;
  for (const auto& node : nodes_) {
    gpus.push_back(
        {node->planned->name, node->planned->slots, static_cast<int>(node->facts->gpus())});
  }
  Result<DeviceDecision> device =
      DecideDevice(options_.device, gpus, options_.plan.launcher == Launcher::kLocal);
  if (!device.ok()) {
    Fail(0, device.error());
    failed_to_start_ = true;
    return loop_.stop();
  }
  output_.Say("dslaunch: " + PlanLine(options_.plan, device->use_cuda ? "cuda" : "cpu"));

  pb::RunRequest request;
  *request.mutable_rendezvous_endpoints() = nodes_[0]->facts->rendezvous_endpoints();
  request.set_stream_all(options_.tee.all);
  for (const int rank : options_.tee.ranks) request.add_stream_ranks(static_cast<uint32_t>(rank));
  request.set_use_cuda(device->use_cuda);
  running_ = true;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i]->reader = std::make_unique<EventReader>(*this, i, *nodes_[i]->stub, request);
  }
}

void LaunchSession::Fail(size_t index, Error error) { nodes_[index]->failure = std::move(error); }

// --- While it runs ---

void LaunchSession::OnEvent(size_t index, const pb::NodeEvent& event) {
  NodeState& node = *nodes_[index];
  switch (event.event_case()) {
    case pb::NodeEvent::kWorkerEnded:
      workers_ended_.push_back(event.worker_ended());
      break;
    case pb::NodeEvent::kStatus:
      output_.Progress(event.status());
      break;
    case pb::NodeEvent::kNotice:
      output_.Say("dslaunch: " + event.notice().message());
      break;
    case pb::NodeEvent::kOutcome:
      if (!node.end.outcome) node.end.outcome = event.outcome().cause();
      ArmTeardownTimer();
      break;
    case pb::NodeEvent::kDone:
      node.end.done = true;
      node.end.teardown_complete = event.done().teardown_complete();
      for (const pb::LeftProcess& left : event.done().left())
        node.end.left_pids.push_back(left.pid());
      break;
    default:
      break;
  }
}

void LaunchSession::OnStreamEnd(size_t index) {
  NodeState& node = *nodes_[index];
  node.stream_ended = true;
  if (node.end.done) {
    node.ended = true;
    return EndIfAllEnded();
  }
  // The keeper outlives its agent until the node is empty: its end is what to wait for.
  ArmTeardownTimer();
  shutdown(node.stream.get(), SHUT_WR);
  const Deadline deadline =
      Deadline::After(milliseconds(options_.timeouts.grace_ms()) +
                      milliseconds(options_.timeouts.teardown_ms()) + kTeardownSlack);
  std::thread([this, index, link = node.link.get(), deadline] {
    link->WaitEnd(deadline);
    asio::post(loop_, [this, index] { OnLinkEnded(index); });
  }).detach();
}

void LaunchSession::OnLinkEnded(size_t index) {
  NodeState& node = *nodes_[index];
  node.end.lost_reason = "the connection to it broke off";
  node.end.last_words = node.link->StderrTail();
  while (!node.end.last_words.empty() && node.end.last_words.back() == '\n')
    node.end.last_words.pop_back();
  node.ended = true;
  EndIfAllEnded();
}

void LaunchSession::OnSignal(int signal_number) {
  if (signal_number == SIGTSTP) {
    return output_.Say(
        "dslaunch: cannot be suspended, the job on the nodes would not be; Ctrl-C ends it");
  }
  if (signal_number == SIGUSR1 || signal_number == SIGUSR2) {
    for (const auto& node : nodes_) {
      if (!running_ || node->ended) continue;
      auto context = std::make_shared<grpc::ClientContext>();
      auto request = std::make_shared<pb::SignalRequest>();
      auto reply = std::make_shared<pb::Empty>();
      context->set_deadline(SystemTimeAfter(kStopTimeout));
      request->set_signal(signal_number);
      node->stub->async()->Signal(context.get(), request.get(), reply.get(),
                                  [context, request, reply](const grpc::Status&) {});
    }
    return;
  }
  Interrupt(signal_number);
}

void LaunchSession::Interrupt(int signal_number) {
  // timeout(1) and some job systems signal the process and its group: that is one wish, not two.
  const Clock::time_point now = Clock::now();
  if (now - std::exchange(interrupted_at_, now) < kSameInterrupt) return;
  const bool again = std::exchange(was_interrupted_, true);
  const std::string name = SignalName(signal_number);
  pb::Cause cause =
      MakeCause(pb::Cause::INTERRUPTED, 0, ExitCode::kInterrupted, "interrupted by " + name);
  cause.set_exit_code(ExitCodeForSignal(signal_number));
  cause.set_signal(signal_number);
  // What went wrong before the user gave up stays the cause.
  const bool ending =
      std::any_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node->end.outcome; });
  if (!interrupted_ && !ending) interrupted_ = cause;
  if (!running_) return loop_.stop();
  output_.Say(again ? "dslaunch: " + name + " again: killing every rank now"
                    : "dslaunch: " + name + ": stopping every rank (again to kill them at once)");
  SendStop(cause, /*kill_now=*/again);
}

void LaunchSession::SendStop(const pb::Cause& cause, bool kill_now) {
  for (const auto& node : nodes_) {
    if (node->ended) continue;
    auto context = std::make_shared<grpc::ClientContext>();
    auto request = std::make_shared<pb::StopRequest>();
    auto reply = std::make_shared<pb::Empty>();
    context->set_deadline(SystemTimeAfter(kStopTimeout));
    *request->mutable_cause() = cause;
    request->set_kill_now(kill_now);
    node->stub->async()->Stop(context.get(), request.get(), reply.get(),
                              [context, request, reply](const grpc::Status&) {});
  }
  ArmTeardownTimer();
}

// --- The end ---

// Once the end has begun it has a bound, whatever the nodes do.
void LaunchSession::ArmTeardownTimer() {
  if (std::exchange(teardown_armed_, true)) return;
  teardown_timer_.expires_after(milliseconds(options_.timeouts.grace_ms()) +
                                milliseconds(options_.timeouts.teardown_ms()) +
                                milliseconds(options_.timeouts.dead_ms()) + kTeardownSlack);
  teardown_timer_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    teardown_armed_ = false;
    // A node that waits for our own terminal is not late.
    output_.SlowReaderMakesProgress() ? ArmTeardownTimer() : GiveUpWaiting();
  });
}

void LaunchSession::GiveUpWaiting() {
  for (const auto& node : nodes_) {
    if (node->ended) continue;
    node->end.lost_reason =
        "it did not say in time that it is empty; look for job " + options_.job_id + " there";
    node->given_up = true;
    node->link->Abort("teardown timed out");
  }
  loop_.stop();
}

void LaunchSession::EndIfAllEnded() {
  if (std::ranges::all_of(nodes_, [](const auto& node) { return node->ended; }))
    return loop_.stop();
  // Nothing will come from a node that the others gave up for its silence.
  if (!std::ranges::all_of(nodes_,
                           [this](const auto& node) { return node->ended || IsGivenUp(*node); }))
    return;
  teardown_timer_.expires_after(kSilentNodeWait);
  teardown_timer_.async_wait([this](const asio::error_code& error) {
    if (!error) GiveUpWaiting();
  });
}

// The other nodes lost it, and its stream has not even ended, as it does when an agent is killed.
bool LaunchSession::IsGivenUp(const NodeState& node) const {
  return !node.stream_ended && std::ranges::any_of(nodes_, [&](const auto& other) {
    const std::optional<pb::Cause>& cause = other->end.outcome;
    return cause && cause->kind() == pb::Cause::NODE_LOST &&
           nodes_[cause->node_index()].get() == &node;
  });
}

// End of file is the goodbye: keepers with nothing left to do end at once.
void LaunchSession::CloseLinks() {
  for (const auto& node : nodes_) {
    if (node->link) shutdown(node->stream.get(), SHUT_WR);
  }
  const Deadline deadline = Deadline::After(kGoodbyeWait);
  for (const auto& node : nodes_) {
    if (node->link && !node->given_up) node->link->WaitEnd(deadline);
  }
}

int LaunchSession::ReportStartFailure() {
  CloseLinks();
  int exit_code = 0;
  size_t failures = 0;
  for (const auto& node : nodes_) {
    if (!node->failure) continue;
    if (failures++ == 0) exit_code = ToInt(node->failure->code);
    output_.Say("dslaunch: " + node->failure->message);
  }
  if (nodes_.size() > 1) {
    output_.Say("dslaunch: nothing was started (" + std::to_string(failures) + " of " +
                Count(nodes_.size(), "node") + " failed)");
  }
  return exit_code;
}

int LaunchSession::ReportEnd() {
  output_.FinishStreams();
  std::vector<NodeEnd> ends;
  for (const auto& node : nodes_) ends.push_back(node->end);
  CloseLinks();
  if (!running_) {
    output_.Say("dslaunch: interrupted before anything was started");
    return interrupted_->exit_code();
  }
  const JobEnd end = DecideJobEnd(interrupted_, ends);
  std::vector<std::string> job_dirs;
  for (const auto& node : nodes_) job_dirs.push_back(node->facts->job_dir());
  output_.Say(
      SummarizeJob(options_.plan, end, workers_ended_, job_dirs, Clock::now() - started_at_));
  return end.exit_code;
}

}  // namespace dslaunch
