#include "cli/core/start_core.h"

#include <algorithm>
#include <utility>

#include "agent/accelerators/accelerators.h"
#include "base/count.h"
#include "cli/core/connect_failures.h"
#include "cli/plan/device_decision.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

constexpr uint32_t kMetricsSampleMs = 5'000;

constexpr milliseconds kNameOthersToo(2'000);
// kMostRequestBytes limits the bytes of pending requests to prepare, so that thousands of large
// requests do not fill the memory. kFewestRequests is the number of requests that may always be
// pending, whatever their size.
constexpr size_t kMostRequestBytes = size_t{64} << 20;
constexpr size_t kFewestRequests = 32;

// Returns whether connecting again may succeed. A node that is switched off or far away may become
// reachable, but a node that refuses needs an action of the user.
bool IsRetryable(const Error& error) {
  return error.code == ExitCode::kUnavailable || error.code == ExitCode::kTimedOut;
}

}  // namespace

StartCore::StartCore(const SessionOptions& options, Clock::time_point now, NodeRequests& requests,
                     SessionNodes& nodes, JobState& job, SessionOutbox& out)
    : options_(options),
      started_at_(now),
      requests_(requests),
      nodes_(nodes),
      job_(job),
      out_(out),
      failures_(nodes.size()) {}

std::string StartCore::SinceStart(Clock::time_point now) const {
  return Seconds(std::chrono::duration_cast<milliseconds>(now - started_at_).count());
}

void StartCore::Start() {
  pending_ = nodes_.size();
  out_.Log(LogLevel::kDebug,
           "job " + options_.job.job_id() + ": connecting to " + NameList(nodes_.names(), ", "));
  for (size_t i = 0; i < nodes_.size(); ++i) out_.Do(action::Connect{i, /*attempt=*/0});
}

// --- Connecting to the nodes ---

void StartCore::OnConnected(size_t index, Result<NodeAddresses> addresses, Clock::time_point now) {
  if (addresses.ok()) {
    nodes_.OnReached(index, *std::move(addresses));
    out_.Log(LogLevel::kDebug, nodes_.names()[index] + " is reached after " + SinceStart(now));
  } else {
    const std::string& why = addresses.error().message;
    out_.Record(action::Record::Kind::kFailed, index, why);
    out_.Log(LogLevel::kDebug, why + " (after " + SinceStart(now) + ")");
    failures_[index] = addresses.error();
  }
  if (--pending_ == 0) return OnAllConnected();
  if (!failures_[index] || giving_up_ || CanStartWithoutFailures()) return;
  giving_up_ = true;
  out_.Do(action::SetTimer{SessionTimer::kConnect, now + kNameOthersToo});
}

void StartCore::OnConnectTimer() {
  if (pending_ > 0) Fail();
}

size_t StartCore::Failures() const {
  return static_cast<size_t>(std::ranges::count_if(
      failures_, [](const std::optional<Error>& failure) { return failure.has_value(); }));
}

bool StartCore::CanStartWithoutFailures() const {
  const LaunchPlan& plan = options_.plan;
  return nodes_.size() - Failures() >=
             static_cast<size_t>(std::max(plan.start_nodes, plan.min_nodes)) &&
         std::ranges::all_of(failures_, [](const std::optional<Error>& failure) {
           return !failure || IsRetryable(*failure);
         });
}

void StartCore::OnAllConnected() {
  if (Failures() > 0 && !CanStartWithoutFailures()) return Fail();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!failures_[i]) continue;
    out_.Log(LogLevel::kWarning, failures_[i]->message + "; starting without " + nodes_.names()[i]);
    failures_[i].reset();
    nodes_.OnEnded(i, /*is_empty=*/false);
    job_.OnAbsent(i);
    requests_.AddAbsent(i);
  }
  ChooseHost();
  pending_ =
      static_cast<size_t>(std::ranges::count_if(nodes_.all(), &SessionNodes::Node::is_reached));
  most_preparing_ = std::max(kFewestRequests, kMostRequestBytes / requests_.PrepareBytes());
  PrepareMore();
}

// Chooses the host among the reached nodes. Prefers a node with ranks to a spare.
void StartCore::ChooseHost() {
  using Node = SessionNodes::Node;
  const std::vector<Node>& nodes = nodes_.all();
  auto host = std::ranges::find_if(
      nodes, [](const Node& node) { return node.is_reached && !node.planned->spare; });
  if (host == nodes.end()) host = std::ranges::find_if(nodes, &Node::is_reached);
  requests_.SetHost(static_cast<size_t>(host - nodes.begin()));
  job_.SetRendezvous(requests_.host());
}

// --- Preparing ---

// Prepares more nodes, as long as the limit of pending requests allows it. Nodes that wait for
// their turn keep their lease, because it is renewed meanwhile.
void StartCore::PrepareMore() {
  for (; num_preparing_ < most_preparing_ && next_to_prepare_ < nodes_.size(); ++next_to_prepare_) {
    if (!nodes_[next_to_prepare_].is_reached) continue;
    ++num_preparing_;
    nodes_.Prepare(next_to_prepare_);
  }
}

void StartCore::OnPrepared(size_t index, Result<pb::PreparedNode> info, Clock::time_point now) {
  if (info.ok()) {
    nodes_.OnPrepared(index, *std::move(info));
    const pb::PreparedNode& prepared = *nodes_[index].info;
    out_.Log(LogLevel::kDebug,
             nodes_.names()[index] + " is prepared after " + SinceStart(now) + ", with " +
                 CountText(RowOf(prepared.device()), static_cast<int>(prepared.gpus())) +
                 "; its logs are in " + prepared.job_dir());
  } else {
    out_.Record(action::Record::Kind::kFailed, index, info.error().message);
    failures_[index] = info.error();
  }
  --num_preparing_;
  if (--pending_ > 0) return PrepareMore();
  Failures() == 0 ? RunAll() : Fail();
}

void StartCore::RunAll() {
  std::vector<NodeGpus> gpus;
  for (const SessionNodes::Node& node : nodes_.all()) {
    if (!node.info) continue;
    const Host& planned = *node.planned;
    gpus.push_back({planned.name, planned.slots, static_cast<int>(node.info->gpus()),
                    planned.devices.empty() ? -1 : planned.devices.back(), node.info->device()});
  }
  Result<DeviceDecision> device =
      DecideDevice(options_.job.device(), gpus, options_.plan.launcher == Launcher::kLocal,
                   options_.job.only_cuda());
  if (!device.ok()) return Fail(0, device.error());
  std::string no_pmix;
  for (const SessionNodes::Node& node : nodes_.all()) {
    if (no_pmix.empty() && node.info) no_pmix = node.info->no_pmix();
  }
  const Result<pb::MpiService> mpi = DecideMpi(options_.mpi, no_pmix, options_.plan.world_size());
  if (!mpi.ok()) return Fail(0, mpi.error());
  if (out_.ShouldLog(LogLevel::kInfo)) {
    const std::string shown =
        options_.job.detachable()
            ? ""
            : options_.shown.Hint(static_cast<size_t>(options_.plan.world_size()));
    out_.Log(LogLevel::kInfo, PlanLine(options_.plan, DeviceOption(device->device)) +
                                  (shown.empty() ? "" : "; " + shown));
  }
  out_.Log(LogLevel::kDebug, device->reason);
  pb::RunRequest run;
  *run.mutable_mpi() = *mpi;
  const size_t host = requests_.host();
  *run.mutable_rendezvous_endpoints() = nodes_[host].info->rendezvous_endpoints();
  out_.Log(
      LogLevel::kDebug,
      "the rendezvous is on " + nodes_.names()[host] + ": " +
          NameList({run.rendezvous_endpoints().begin(), run.rendezvous_endpoints().end()}, ", "));
  if (!options_.job.detachable()) *run.mutable_shown() = options_.shown.ToProto();
  run.set_device(device->device);
  if (options_.metrics.any()) run.mutable_samples()->set_every_ms(kMetricsSampleMs);
  requests_.SetRun(std::move(run));
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].is_reached)
      nodes_.Run(i);
    else
      out_.Ask(session_request::Reconnect{i});
  }
  out_.Ask(session_request::BeginWatch{});
}

// --- Failures of the start ---

void StartCore::Fail(size_t index, Error error) {
  failures_[index] = std::move(error);
  Fail();
}

void StartCore::Fail() {
  has_failed_ = true;
  out_.Ask(session_request::Finish{});
}

SessionEnd StartCore::End() const {
  SessionEnd end{.kind = SessionEnd::Kind::kNotStarted};
  std::vector<NodeFailure> failures;
  std::vector<std::string> unknown;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const std::optional<Error>& failure = failures_[i];
    if (giving_up_ && !failure && !nodes_[i].is_reached) unknown.push_back(nodes_.names()[i]);
    if (!failure) continue;
    if (failures.empty()) {
      end.job.cause = MakeCause(pb::Cause::START_FAILED, static_cast<uint32_t>(i), failure->code,
                                failure->message);
    }
    failures.push_back({nodes_.names()[i], nodes_[i].planned->host, failure->message});
  }
  end.lines = FoldFailures(failures);
  if (!unknown.empty()) {
    end.lines.push_back("no answer so far from: " + NameList(unknown, ", ") + " (" +
                        Count(unknown.size(), "node") + ")");
  }
  if (nodes_.size() > 1) {
    end.lines.push_back("nothing was started (" + std::to_string(failures.size()) + " of " +
                        Count(nodes_.size(), "node") + " failed)");
  }
  end.job.exit_code = FailureCode(end.job.cause.exit_code(), ExitCode::kInternal);
  return end;
}

}  // namespace dslaunch
