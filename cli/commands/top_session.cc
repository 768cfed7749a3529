#include "cli/commands/top_session.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>
#include <utility>

#include "base/text/sanitize.h"
#include "base/text/signal_name.h"
#include "cli/session/agent_call.h"
#include "proto/agent.grpc.pb.h"
#include "proto/wire/cause.h"
#include "proto/wire/peer_check.h"

namespace dslaunch {
namespace {

constexpr milliseconds kSampleEvery(2'000);
constexpr milliseconds kMeasureEvery(1'000);
// Number of samples; nvidia-smi may need a second for the first sample.
constexpr uint32_t kMeasureSamples = 3;
constexpr milliseconds kMeasureFor(25'000);
constexpr milliseconds kLateNodes(4'000);
constexpr milliseconds kDrawEvery(250);
constexpr milliseconds kReconnectDelay(500);
// Limit for reconnecting to a node, from its last event.
constexpr milliseconds kReconnectFor(60'000);
constexpr milliseconds kLookTimeout(10'000);
constexpr milliseconds kStacksLimit(12'000);
// Bytes of a rank's earlier output that are shown at first.
constexpr uint64_t kLogBytes = 16 << 10;

}  // namespace

TopSession::TopSession(JobRecord record, AgentBinary agent, std::function<bool()> stop_front_end)
    : record_(std::move(record)),
      agent_(std::move(agent)),
      stop_front_end_(std::move(stop_front_end)),
      model_([this] {
        std::vector<std::string> names;
        for (const NodeTarget& node : record_.nodes) names.push_back(node.name);
        return names;
      }()),
      nodes_(record_.nodes.size()),
      poster_(std::make_shared<LoopPoster>(loop_)),
      signals_(loop_),
      resizes_(loop_),
      turn_(loop_) {}

TopSession::~TopSession() {
  terminal_.reset();
  poster_->Close();
  CloseLog();
  // Destroying a stream waits until the stream has ended, so all streams are ended first and finish
  // concurrently.
  const auto end = [](const std::unique_ptr<NodeStream>& stream) {
    if (stream && stream->inspection() != nullptr) stream->inspection()->End();
  };
  for (const auto& stream : old_streams_) end(stream);
  for (const Node& node : nodes_) end(node.stream);
  if (keys_) keys_->release();  // keeps stdin open, because the descriptor is borrowed
}

Result<TopSession::End> TopSession::Show() {
  DSL_TRY_ASSIGN(terminal_, CursesTerminal::Open());
  for (const int signal_number : NotIgnored({SIGINT, SIGTERM, SIGHUP})) signals_.add(signal_number);
  signals_.async_wait([this](const asio::error_code& error, int) {
    if (!error) loop_.stop();
  });
  resizes_.add(SIGWINCH);
  AwaitResize();
  keys_.emplace(loop_, STDIN_FILENO);
  AwaitKey();
  Begin(kSampleEvery);
  Draw();
  loop_.run();
  terminal_.reset();
  if (!job_ended_) return End::kLeft;
  if (std::ranges::none_of(nodes_, &Node::reached)) return Unreachable();
  return End::kJobEnded;
}

Result<void> TopSession::Measure() {
  Begin(kMeasureEvery);
  const Deadline deadline = Deadline::After(kMeasureFor);
  // Deadline for the remaining nodes; set once the first node is measured.
  std::optional<Deadline> late;
  while (!job_ended_ && !deadline.Expired() && !(late && late->Expired())) {
    const size_t known = model_.KnownNodes(kMeasureSamples);
    if (known == nodes_.size()) break;
    if (known > 0 && !late) late = Deadline::After(kLateNodes);
    loop_.run_for(milliseconds(50));
    loop_.restart();
  }
  if (std::ranges::none_of(nodes_, &Node::reached)) return Unreachable();
  return {};
}

Error TopSession::Unreachable() const {
  const std::string& why = model_.nodes().front().trouble;
  return {ExitCode::kUnavailable,
          why.empty() ? record_.nodes.front().name + " did not answer in time" : why};
}

void TopSession::Begin(milliseconds every) {
  every_ = every;
  for (size_t i = 0; i < nodes_.size(); ++i) Open(i);
}

void TopSession::Open(size_t index) {
  Node& node = nodes_[index];
  if (node.stream) old_streams_.push_back(std::move(node.stream));
  NodeStream::Handlers handlers;
  // gRPC reads the request when the call starts, so the handlers own the request.
  auto request = std::make_shared<pb::AttachRequest>();
  request->mutable_samples()->set_every_ms(static_cast<uint32_t>(every_.count()));
  request->mutable_samples()->set_last_lines(true);
  handlers.start = [request](const std::shared_ptr<grpc::Channel>& channel,
                             grpc::ClientContext* context, NodeStream::Reactor* reactor) {
    pb::Agent::NewStub(channel)->async()->Attach(context, request.get(), reactor);
  };
  handlers.event = [this, index](const pb::NodeEvent& event) { OnEvent(index, event); };
  handlers.log = [](const pb::LogChunk&, const std::function<void()>& go_on) { go_on(); };
  handlers.over = [this, index](const Result<void>& result) { OnStreamOver(index, result); };
  handlers.broke_rules = [this, index](const std::string& what) {
    nodes_[index].over = true;
    model_.OnLost(index, record_.nodes[index].name + ": its agent sent " + what);
    EndIfAllOver();
  };
  node.stream = std::make_unique<NodeStream>(poster_, std::move(handlers));
  node.stream->Open(record_, index, AgentRole::Kind::kAttach, agent_,
                    Deadline::After(kConnectTimeout));
}

void TopSession::OnEvent(size_t index, const pb::NodeEvent& event) {
  Node& node = nodes_[index];
  node.last_seen = Clock::now();
  if (!std::exchange(node.reached, true) || node.over ||
      model_.nodes()[index].state == ModelNode::State::kLost)
    model_.OnReached(index);
  model_.OnEvent(index, event, node.last_seen);
  if (event.has_done()) {
    node.over = true;
    EndIfAllOver();
  }
}

// Handles the end of a node's stream. Either the job has ended on the node or the connection broke,
// so the node's files are read to find out.
void TopSession::OnStreamOver(size_t index, const Result<void>& result) {
  const Node& node = nodes_[index];
  if (node.over) return;
  const std::string why = result.ok()
                              ? record_.nodes[index].name + ": the connection to its agent broke"
                              : result.error().message;
  model_.OnLost(index, why);
  if (!node.reached) return OnLost(index, why);
  std::thread([this, poster = poster_, record = record_, agent = agent_, index, why] {
    const Result<pb::JobSight> sight =
        InspectNode(record, index, agent, Deadline::After(kLookTimeout));
    const bool has_ended = sight.ok() && sight->state() != pb::JobSight::RUNNING;
    poster->Post([this, index, why, has_ended] {
      if (!has_ended) return OnLost(index, why);
      pb::NodeEvent done;
      done.mutable_done();
      OnEvent(index, done);
    });
  }).detach();
}

// Handles the loss of a node. Reconnects for kReconnectFor to a node that was reached before.
void TopSession::OnLost(size_t index, const std::string& why) {
  Node& node = nodes_[index];
  model_.OnLost(index, why);
  if (!node.reached || Clock::now() - node.last_seen >= kReconnectFor) {
    node.over = true;
    return EndIfAllOver();
  }
  asio::steady_timer& retry = retries_.try_emplace(index, loop_).first->second;
  retry.expires_after(kReconnectDelay);
  retry.async_wait([this, index](const asio::error_code& error) {
    if (!error) Open(index);
  });
}

// Ends the session once all nodes are over. If a node has ended, the job is ending, so the other
// nodes are waited for only briefly.
void TopSession::EndIfAllOver() {
  const bool any_done = std::ranges::any_of(
      model_.nodes(), [](const ModelNode& node) { return node.state == ModelNode::State::kDone; });
  const bool all_over = std::ranges::all_of(nodes_, [&](const Node& node) {
    return node.over || (any_done && Clock::now() - node.last_seen > kLateNodes);
  });
  if (!all_over) return;
  job_ended_ = true;
  loop_.stop();
}

// --- The screen and its keys ---

void TopSession::AwaitResize() {
  resizes_.async_wait([this](const asio::error_code& error, int) {
    if (error) return;
    terminal_->Resize();
    Draw();
    AwaitResize();
  });
}

void TopSession::AwaitKey() {
  keys_->async_wait(asio::posix::stream_descriptor::wait_read,
                    [this](const asio::error_code& error) {
                      if (error) return loop_.stop();
                      bool any = false;
                      while (const std::optional<TopKey> key = terminal_->ReadKey()) {
                        any = true;
                        Act(OnKey(view_, *key, table_, terminal_->rows()));
                        if (loop_.stopped()) return;
                      }
                      // stdin that is readable without a key belongs to a closed terminal, so the
                      // session ends.
                      if (!any && ::isatty(STDIN_FILENO) == 0) return loop_.stop();
                      Draw();
                      AwaitKey();
                    });
}

// Draws the screen now, and again after kDrawEvery. If drawing takes long, the pause is longer, so
// that drawing takes at most a tenth of the time.
void TopSession::Draw() {
  EndIfAllOver();
  const Clock::time_point begin = Clock::now();
  TopScreen screen = dslaunch::Draw(model_, job(), view_, {Clock::now(), UnixMs()},
                                    terminal_->rows(), terminal_->columns());
  table_ = std::move(screen.rows);
  terminal_->Show(screen);
  constexpr int kShare = 10;
  turn_.expires_after(std::max<Clock::duration>(kDrawEvery, kShare * (Clock::now() - begin)));
  turn_.async_wait([this](const asio::error_code& error) {
    if (!error) Draw();
  });
}

void TopSession::Act(TopAction action) {
  switch (action) {
    case TopAction::kLeave:
      return loop_.stop();
    case TopAction::kReadStacks:
      return ReadStacks();
    case TopAction::kFollowLog:
      return FollowLog();
    case TopAction::kCloseText:
      stacks_.reset();
      return CloseLog();
    case TopAction::kStopJob:
      return StopJob();
    case TopAction::kNone:
      return;
  }
}

const TopRow* TopSession::ChosenRow() const {
  return table_.empty() ? nullptr : &table_[std::min(view_.cursor, table_.size() - 1)];
}

void TopSession::ReadStacks() {
  const TopRow* const row = ChosenRow();
  if (row == nullptr) return;
  std::map<size_t, pb::StacksRequest> requests;
  for (const uint32_t rank : row->ranks) {
    const auto known = model_.ranks().find(rank);
    if (known != model_.ranks().end()) requests[known->second.node].add_ranks(rank);
  }
  stacks_ = std::make_shared<StacksWanted>();
  stacks_->missing = requests.size();
  ShowText(view_, "stacks of the row's ranks", {"reading ..."});
  for (auto& [index, request] : requests) {
    NodeStacks node;
    node.node = record_.nodes[index].name;
    NodeInspection* const inspection = nodes_[index].stream->inspection();
    if (inspection == nullptr) {
      node.trouble = node.node + ": there is no connection to its agent";
      poster_->Post([this, wanted = stacks_, index, node] { OnStacks(wanted, index, node); });
      continue;
    }
    using Call = AgentCall<pb::StacksRequest, pb::StacksReply>;
    auto call = std::make_shared<Call>(kStacksLimit, inspection->BeginCall());
    call->request = std::move(request);
    pb::Agent::NewStub(inspection->channel())
        ->async()
        ->GetStacks(&call->context, &call->request, &call->reply,
                    [this, poster = poster_, wanted = stacks_, index, node,
                     call](const grpc::Status& status) mutable {
                      const Result<void> checked = CheckStacksReply(call->reply, {});
                      if (!status.ok())
                        node.trouble = node.node + " did not answer in time";
                      else if (!checked.ok())
                        node.trouble = node.node + ": its agent sent " + checked.error().message;
                      else
                        node.ranks.assign(call->reply.ranks().begin(), call->reply.ranks().end());
                      poster->Post([this, wanted, index, node] { OnStacks(wanted, index, node); });
                    });
  }
}

void TopSession::OnStacks(const std::shared_ptr<StacksWanted>& wanted, size_t, NodeStacks stacks) {
  wanted->nodes.push_back(std::move(stacks));
  if (--wanted->missing > 0 || wanted != stacks_) return;
  stacks_.reset();
  const std::string text = StacksText(wanted->nodes);
  std::vector<std::string> lines;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  ShowText(view_, "stacks of the row's ranks",
           lines.empty() ? std::vector<std::string>{"no rank of the row runs"} : std::move(lines));
}

void TopSession::FollowLog() {
  const TopRow* const row = ChosenRow();
  const auto known =
      row == nullptr ? model_.ranks().end() : model_.ranks().find(row->ranks.front());
  if (known == model_.ranks().end()) return;
  const ModelRank& rank = known->second;
  NodeInspection* const inspection = nodes_[rank.node].stream->inspection();
  if (inspection == nullptr) {
    view_.message = "there is no connection to " + record_.nodes[rank.node].name;
    return;
  }
  CloseLog();
  auto request = std::make_shared<pb::AttachRequest>();
  request->mutable_shown()->add_ranks(rank.rank);
  for (const bool is_stderr : {false, true}) {
    const uint64_t size = is_stderr ? rank.sample.stderr_bytes() : rank.sample.stdout_bytes();
    pb::LogOffset& offset = *request->add_offsets();
    offset.set_attempt(model_.attempt());
    offset.set_rank(rank.rank);
    offset.set_is_stderr(is_stderr);
    offset.set_offset(size > kLogBytes ? size - kLogBytes : 0);
  }
  ShowText(view_, "output of rank " + std::to_string(rank.rank), {});
  EventReader::Handlers handlers;
  handlers.event = [](const pb::NodeEvent&) {};
  handlers.log = [this, number = ++log_number_](const pb::LogChunk& chunk,
                                                const std::function<void()>& go_on) {
    if (number != log_number_) return go_on();  // drops output of a log that is no longer shown
    log_lines_[chunk.is_stderr()].Append(chunk.data(), Clock::now(), [this](std::string_view line) {
      AppendText(view_, SanitizeForTerminal(line), terminal_->rows());
    });
    go_on();
  };
  handlers.ended = [] {};
  log_ = EventReader::Start(
      poster_, std::move(handlers),
      [request, counted = inspection->BeginCall(), channel = inspection->channel()](
          grpc::ClientContext* context, EventReader* reader) {
        pb::Agent::NewStub(channel)->async()->Attach(context, request.get(), reader);
      });
}

void TopSession::CloseLog() {
  ++log_number_;
  if (log_) std::exchange(log_, nullptr)->Cancel();
  log_lines_.clear();
}

void TopSession::StopJob() {
  view_.message = "the job is being stopped";
  if (stop_front_end_()) return;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    NodeInspection* const inspection = nodes_[i].stream->inspection();
    if (inspection == nullptr) continue;
    const pb::Cause cause = MakeSignalCause(pb::Cause::INTERRUPTED, static_cast<uint32_t>(i),
                                            SIGTERM, "stopped by dslaunch top");
    SendStop(*pb::Agent::NewStub(inspection->channel()), cause, /*kill_now=*/false,
             inspection->BeginCall());
  }
}

}  // namespace dslaunch
