#include "cli/session/session_links.h"

#include <utility>

#include "base/count.h"
#include "base/text/sanitize.h"
#include "base/text/size_text.h"
#include "cli/core/call_times.h"
#include "cli/launchers/start_all.h"

namespace dslaunch {
namespace {

constexpr milliseconds kGoodbyeWait(5'000);  // limit of the wait for supervisors without processes

}  // namespace

SessionLinks::SessionLinks(asio::io_context& loop, const SessionOptions& options, SessionCore& core,
                           std::shared_ptr<Transport> transport, Handlers handlers)
    : loop_(loop),
      options_(options),
      core_(core),
      handlers_(std::move(handlers)),
      poster_(std::make_shared<LoopPoster>(loop)),
      connector_(loop, poster_, std::move(transport), options.connect_timeout, options.retry_wait),
      clients_(options.plan.nodes.size()) {}

// Drops pending handlers now, while the objects that they use still exist.
SessionLinks::~SessionLinks() {
  poster_->Close();
  connector_.Stop();
  loop_.restart();
  loop_.poll();
}

Result<void> SessionLinks::MakeKeys() {
  if (clients_.size() == 1) return {};
  Result<CertificateAuthority> created = CertificateAuthority::Create(options_.job.job_id());
  if (!created.ok()) return created.error();
  authority_.emplace(*std::move(created));
  return {};
}

void SessionLinks::Input(size_t node, const std::string& data, bool end,
                         std::function<void(bool)> then) {
  clients_[node]->Input(data, end, std::move(then));
}

// --- Connections to nodes ---

void SessionLinks::Do(const action::Connect& connect) {
  connector_.Connect(connect.node, options_.plan.nodes[connect.node], connect.attempt,
                     [this, index = connect.node](Result<std::unique_ptr<NodeLink>> link) {
                       OnConnected(index, std::move(link));
                     });
}

void SessionLinks::OnConnected(size_t index, Result<std::unique_ptr<NodeLink>> link) {
  if (!link.ok()) return handlers_.carry(core_.OnConnected(index, link.error(), Clock::now()));
  const NodeAddresses addresses = {(*link)->Address(), (*link)->OwnAddress()};
  // The notice is probably the same for many nodes, so it is logged once.
  const std::string notice = (*link)->Notice();
  const bool is_shown = options_.log_level >= LogLevel::kInfo;
  if (!notice.empty() && !std::exchange(notice_logged_, true) && is_shown)
    handlers_.log(LogLevel::kInfo, notice);
  std::unique_ptr<NodeClient>& client = clients_[index];
  if (client) past_clients_.push_back(std::move(client));
  client = std::make_unique<NodeClient>(loop_, poster_, core_.nodes().names()[index],
                                        *std::move(link), LinkSilentAfter(options_.job.timeouts()));
  handlers_.carry(core_.OnConnected(index, addresses, Clock::now()));
}

void SessionLinks::Do(const action::AwaitEnd& await) {
  NodeClient* const client = clients_[await.node].get();
  client->AwaitEnd(Deadline::After(await.limit), [this, index = await.node,
                                                  client](bool supervisor_ended) {
    if (!IsNewest(index, client)) return;
    handlers_.carry(core_.OnLinkEnded(index, supervisor_ended, client->LastOutput(), Clock::now()));
  });
}

std::string SessionLinks::Cancellation() const {
  const StartAll* const start = RowOf(options_.plan.launcher).start_all;
  if (start == nullptr || start->read_cancellation == nullptr) return "";
  for (const auto& client : clients_) {
    const std::string how = client ? start->read_cancellation(client->LastOutput()) : "";
    if (!how.empty()) return how;
  }
  return "";
}

// A supervisor without processes ends when it reads end of file, so the streams are closed first.
void SessionLinks::Close() {
  for (const auto& client : clients_) {
    if (client) client->SayGoodbye();
  }
  const Deadline deadline = Deadline::After(kGoodbyeWait);
  for (size_t i = 0; i < clients_.size(); ++i) {
    if (clients_[i] && !core_.end().HasGivenUp(i)) clients_[i]->WaitEnd(deadline);
  }
}

void SessionLinks::LeaveRunning() {
  for (const auto& client : clients_) {
    if (!client) continue;
    client->LeaveRunning();
    client->SayGoodbye();
  }
}

// --- Calls to agents ---

Result<pb::PrepareRequest> SessionLinks::WithCredentials(size_t index, pb::PrepareRequest request) {
  if (authority_) {
    const std::string public_key = clients_[index]->link().PublicKey();
    DSL_TRY_ASSIGN(*request.mutable_credentials(),
                   public_key.empty() ? authority_->Issue(request.node_index())
                                      : authority_->IssueFor(request.node_index(), public_key));
  }
  return request;
}

void SessionLinks::Do(action::Prepare& prepare) {
  const auto answer = [this, index = prepare.node, client = clients_[prepare.node].get()](
                          const Result<pb::PreparedNode>& info) {
    if (IsNewest(index, client)) handlers_.carry(core_.OnPrepared(index, info, Clock::now()));
  };
  Result<pb::PrepareRequest> request = WithCredentials(prepare.node, std::move(prepare.request));
  if (!request.ok()) return poster_->Post([answer, error = request.error()] { answer(error); });
  if (!options_.copy_list) return clients_[prepare.node]->Prepare(*std::move(request), answer);
  CopyAndPrepare(prepare.node, *std::move(request), answer);
}

void SessionLinks::CopyAndPrepare(size_t index, pb::PrepareRequest request,
                                  std::function<void(const Result<pb::PreparedNode>&)> answer) {
  NodeClient* const client = clients_[index].get();
  client->Copy(options_.copy_list, [this, index, client, request = std::move(request),
                                    answer = std::move(answer),
                                    began = Clock::now()](Result<pb::CopyDone> done) mutable {
    if (!IsNewest(index, client)) return;
    if (!done.ok()) return answer(done.error());
    const uint64_t bytes = done->received_bytes();
    handlers_.log(LogLevel::kDebug, core_.nodes().names()[index] +
                                        (bytes == 0 ? ": all files were there already"
                                                    : ": " + SizeText(bytes) + " were copied in " +
                                                          WholeSeconds(Clock::now() - began)) +
                                        ", in " + SanitizeForTerminal(done->folder()));
    client->Prepare(std::move(request), std::move(answer));
  });
}

void SessionLinks::Do(action::Run& run) {
  const size_t index = run.node;
  NodeClient* const client = clients_[index].get();
  EventReader::Handlers handlers;
  handlers.event = [this, index](const pb::NodeEvent& event) { handlers_.event(index, event); };
  handlers.log = [this, index](const pb::LogChunk& chunk, std::function<void()> go_on) {
    handlers_.output(index, chunk, std::move(go_on));
  };
  handlers.ended = [this, index, client] {
    if (IsNewest(index, client)) handlers_.carry(core_.OnStreamEnd(index, Clock::now()));
  };
  handlers.broke_rules = [this, index, client](const std::string& what) {
    if (IsNewest(index, client)) handlers_.carry(core_.OnBrokenRules(index, what, Clock::now()));
  };
  handlers.listening = [this, index, client] {
    if (IsNewest(index, client)) core_.contact().OnListening(index, Clock::now());
  };
  handlers.holding = [this, index, client] {
    if (IsNewest(index, client)) core_.contact().OnHolding(index);
  };
  client->Run(std::move(run.request), std::move(handlers), LimitsOf(index));
}

PeerLimits SessionLinks::LimitsOf(size_t index) const {
  const LaunchPlan& plan = options_.plan;
  PeerLimits limits;
  limits.nodes = static_cast<uint32_t>(plan.nodes.size());
  limits.ranks = core_.job_state().most_ranks();
  limits.slots = static_cast<uint32_t>(plan.nodes[index].slots);
  if (!core_.job_state().restartable()) limits.attempts = 1;
  return limits;
}

void SessionLinks::Do(const action::Renew& renew) {
  clients_[renew.node]->Renew(renew.last_seen_us, renew.timeout,
                              [this, index = renew.node, client = clients_[renew.node].get()](
                                  std::optional<uint64_t> clock_us) {
                                if (IsNewest(index, client))
                                  handlers_.carry(core_.OnRenewed(index, clock_us, Clock::now()));
                              });
}

void SessionLinks::Do(const action::Failover& failover) {
  clients_[failover.node]->Failover(
      failover.request,
      [this, index = failover.node, host = size_t{failover.request.rendezvous_node()}](
          const Result<pb::RendezvousOpened>& opened) {
        handlers_.carry(core_.OnFailoverAnswered(index, host, opened, Clock::now()));
      });
}

void SessionLinks::Do(const action::ShowStacks& show) {
  struct Answers {
    std::vector<NodeStacks> nodes;
    size_t missing = 0;
  };
  const auto answers = std::make_shared<Answers>();
  answers->missing = show.nodes.size();
  for (const size_t index : show.nodes)
    answers->nodes.push_back({core_.nodes().names()[index], {}, ""});
  for (size_t i = 0; i < show.nodes.size(); ++i) {
    clients_[show.nodes[i]]->GetStacks(
        LimitsOf(show.nodes[i]), [this, answers, i](Result<pb::StacksReply> reply) {
          NodeStacks& node = answers->nodes[i];
          if (reply.ok())
            node.ranks.assign(reply->ranks().begin(), reply->ranks().end());
          else
            node.trouble = reply.error().message;
          if (--answers->missing == 0) handlers_.stacks(answers->nodes);
        });
  }
}

void SessionLinks::Do(const action::Detach& detach) {
  clients_[detach.node]->Detach([this](const Result<void>& result) {
    handlers_.carry(core_.OnDetached(result, Clock::now()));
  });
}

void SessionLinks::Do(const action::DropOutput&) {
  for (const auto& client : clients_) {
    if (client) client->DropOutput();
  }
}

}  // namespace dslaunch
