#include "tests/sim/front_end.h"

#include <signal.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "base/backoff.h"
#include "cli/core/call_times.h"
#include "proto/wire/cause.h"
#include "tests/sim/per_node.h"
#include "tests/sim/rendezvous.h"

namespace dslaunch::sim {
namespace {

constexpr int64_t kConnectMs = 300;

Error Broken(const std::string& what) { return {ExitCode::kUnavailable, what}; }

}  // namespace

FrontEnd::FrontEnd(World& world)
    : world_(world),
      options_(OptionsFor(world)),
      core_(options_, Now(),
            world.bug == PlantedBug::kFailsOverTooEarly
                ? SessionCore::PlantedBug::kFailsOverTooEarly
                : SessionCore::PlantedBug::kNone),
      clients_(world.job.size()) {}

SessionOptions FrontEnd::OptionsFor(const World& world) {
  SessionOptions options;
  options.job.set_job_id(world.job.prepare.job().job_id());
  options.plan = world.job.plan;
  *options.job.mutable_ranks()->mutable_program() = world.job.prepare.job().ranks().program();
  *options.job.mutable_timeouts() = world.job.timeouts();
  *options.job.mutable_policy() = world.job.policy();
  options.job.set_detachable(world.job.detached);
  options.log_level = world.trace.on() ? LogLevel::kDebug : LogLevel::kError;
  return options;
}

Clock::time_point FrontEnd::Now() const {
  return world_.timeline.NowOn(world_.front_end_machine.clock);
}

FrontEnd::Client* FrontEnd::ClientOf(const NodeIncarnation& incarnation) {
  Client& client = clients_[incarnation.node()];
  return client.incarnation == &incarnation ? &client : nullptr;
}

void FrontEnd::Start() { Carry(core_.Start(Now())); }

void FrontEnd::Carry(SessionCore::Actions actions) {
  for (SessionAction& action : actions) {
    std::visit([this](auto& one) { Do(one); }, action);
  }
  if (finished_ && !process_.gone) Finish();
}

void FrontEnd::Do(const action::Log& say) {
  Log([&] { return say.text; });
}

// --- Reaching nodes ---

void FrontEnd::Do(const action::Connect& connect) {
  const auto index = static_cast<uint32_t>(connect.node);
  if (connect.attempt == 0) {
    const bool absent = std::ranges::count(world_.job.absent, index) > 0;
    return world_.timeline.After(
        world_.random.Between(100, 2'000), &process_, [this, index, absent] {
          absent ? OnConnected(index, false) : Reach(index, /*again=*/false);
        });
  }
  const double part = static_cast<double>(world_.random.Between(0, 999)) / 1'000;
  const milliseconds pause =
      PauseAfter(connect.attempt - 1, options_.retry_wait, kMaxRetryWait, part);
  world_.timeline.After(pause.count(), &process_, [this, index] {
    if (connecting_stopped_ || reconnects_ == world_.job.most_reconnects) return;
    world_.timeline.After(kConnectMs, &process_, [this, index] {
      if (reconnects_ < world_.job.most_reconnects) Reach(index, /*again=*/true);
    });
  });
}

void FrontEnd::OnConnected(uint32_t index, bool reached) {
  Log([&] { return (reached ? "reaches " : "does not reach ") + world_.NameOf(index); });
  if (reached)
    Carry(core_.OnConnected(index, NodeAddresses(), Now()));
  else
    Carry(core_.OnConnected(index, Broken("no route to host"), Now()));
}

void FrontEnd::Reach(uint32_t index, bool again) {
  const Client& last = clients_[index];
  if (last.incarnation != nullptr && !last.is_over && !last.link_closed)
    world_.invariants.Fail(world_.NameOf(index) + " is reached again, but its last agent stays");
  const auto answer = [this, index, again](NodeIncarnation* incarnation) {
    if (incarnation != nullptr) {
      clients_[index] = Client();
      clients_[index].incarnation = incarnation;
      if (again) ++reconnects_;
    }
    OnConnected(index, incarnation != nullptr);
  };
  if (world_.per_node && index > 0) return world_.per_node->Connect(index, answer);
  const Place self = world_.network.front_end();
  if (world_.machines[index].off || world_.machines[world_.network.RelayOf(index)].off ||
      world_.network.IsCut(self, index) || world_.network.IsCut(index, self))
    return answer(nullptr);
  world_.incarnations.push_back(
      std::make_unique<NodeIncarnation>(world_, world_.incarnations.size(), index));
  answer(world_.incarnations.back().get());
}

// --- Calls ---

std::string FrontEnd::EndpointOf(const Rendezvous& rendezvous) const {
  const auto found = std::ranges::find_if(
      world_.rendezvous, [&](const auto& known) { return known.get() == &rendezvous; });
  return std::to_string(found - world_.rendezvous.begin());
}

Rendezvous* FrontEnd::RendezvousAt(const std::string& endpoint) const {
  return world_.rendezvous[std::stoul(endpoint)].get();
}

void FrontEnd::Do(action::Prepare& prepare) {
  Client& client = clients_[prepare.node];
  client.is_preparing = true;
  NodeIncarnation& incarnation = *client.incarnation;
  if (client.link_closed) {
    return world_.timeline.After(
        0, &process_, [this, &incarnation] { OnPrepared(incarnation, Broken("its link ended")); });
  }
  auto request = std::make_shared<pb::PrepareRequest>(std::move(prepare.request));
  Notify(incarnation, incarnation.loop(), [this, &incarnation, request] {
    const bool ok = incarnation.Prepare(*request);
    Answer(incarnation, [this, &incarnation, ok, server = incarnation.server()] {
      if (!ok) return OnPrepared(incarnation, Broken("the disk is full"));
      pb::PreparedNode info;
      if (server != nullptr) info.add_rendezvous_endpoints(EndpointOf(*server));
      OnPrepared(incarnation, std::move(info));
    });
  });
  world_.timeline.After(kPrepareTimeout.count(), &process_, [this, &incarnation] {
    OnPrepared(incarnation, Broken("no answer in time"));
  });
}

void FrontEnd::OnPrepared(NodeIncarnation& incarnation, Result<pb::PreparedNode> info) {
  Client* const client = ClientOf(incarnation);
  if (client != nullptr && std::exchange(client->is_preparing, false))
    Carry(core_.OnPrepared(incarnation.node(), std::move(info), Now()));
}

void FrontEnd::Do(action::Run& run) {
  Client& client = clients_[run.node];
  client.runs = true;
  core_.contact().OnListening(run.node, Now());
  NodeIncarnation& incarnation = *client.incarnation;
  if (client.link_closed)
    return world_.timeline.After(0, &process_, [this, &incarnation] { OnStreamEnd(incarnation); });
  Notify(incarnation, incarnation.loop(),
         [&incarnation, rendezvous = RendezvousAt(run.request.rendezvous_endpoints(0))] {
           incarnation.Run(rendezvous);
         });
  for (auto& read : std::exchange(client.unread, {}))
    world_.timeline.After(0, &process_, [read = std::move(read)] { read(); });
}

void FrontEnd::Do(const action::Renew& renew) {
  Client& client = clients_[renew.node];
  NodeIncarnation& incarnation = *client.incarnation;
  const uint64_t number = ++client.renewals;
  Notify(incarnation, incarnation.threads(),
         [this, &incarnation, number, last_seen_us = renew.last_seen_us,
          sent = world_.timeline.now()] {
           const uint64_t clock_us = incarnation.Renew(last_seen_us, sent);
           Answer(incarnation, [this, &incarnation, number, clock_us] {
             Client* const newest = ClientOf(incarnation);
             if (newest == nullptr) return;
             newest->answered = number;
             Carry(core_.OnRenewed(incarnation.node(), clock_us, Now()));
           });
         });
  if (!client.is_preparing) return;  // otherwise the core does not wait for the answer
  world_.timeline.After(renew.timeout.count(), &process_, [this, &incarnation, number] {
    const Client* const newest = ClientOf(incarnation);
    if (newest != nullptr && newest->answered < number)
      Carry(core_.OnRenewed(incarnation.node(), std::nullopt, Now()));
  });
}

void FrontEnd::Do(action::Failover& move) {
  NodeIncarnation& incarnation = *clients_[move.node].incarnation;
  const uint32_t host = move.request.rendezvous_node();
  Log([&] {
    return "tells " + world_.NameOf(incarnation.node()) +
           " who decides: " + move.request.ShortDebugString();
  });
  Rendezvous* const rendezvous =
      host == incarnation.node() ? nullptr : RendezvousAt(move.request.rendezvous_endpoints(0));
  const uint64_t number = failovers_sent_++;
  failovers_answered_.push_back(false);
  auto request = std::make_shared<pb::FailoverRequest>(std::move(move.request));
  Notify(incarnation, incarnation.loop(), [this, &incarnation, number, host, rendezvous, request] {
    const bool ok = incarnation.Failover(*request, rendezvous);
    Answer(incarnation, [this, &incarnation, number, host, ok, server = incarnation.server()] {
      if (!ok)
        return OnFailoverAnswered(incarnation, number, host,
                                  Broken("it does not wait for another"));
      pb::RendezvousOpened opened;
      if (server != nullptr) opened.add_rendezvous_endpoints(EndpointOf(*server));
      OnFailoverAnswered(incarnation, number, host, opened);
    });
  });
  world_.timeline.After(kCallTimeout.count(), &process_, [this, &incarnation, number, host] {
    OnFailoverAnswered(incarnation, number, host, Broken("no answer in time"));
  });
}

void FrontEnd::OnFailoverAnswered(NodeIncarnation& incarnation, uint64_t number, uint32_t host,
                                  const Result<pb::RendezvousOpened>& opened) {
  if (failovers_answered_[number]) return;
  failovers_answered_[number] = true;
  const bool decides = host == incarnation.node() && opened.ok();
  if (decides) ++failovers_;
  Log([&] {
    return world_.NameOf(incarnation.node()) + (opened.ok() ? " agrees" : " does not agree");
  });
  Carry(core_.OnFailoverAnswered(incarnation.node(), host, opened, Now()));
}

void FrontEnd::Do(action::Stop& stop) {
  const Client& client = clients_[stop.node];
  if (client.is_over) return;
  NodeIncarnation& incarnation = *client.incarnation;
  Notify(incarnation, incarnation.loop(),
         [&incarnation, kill_now = stop.kill_now,
          cause = std::make_shared<pb::Cause>(std::move(stop.cause))] {
           incarnation.Stop(*cause, kill_now);
         });
}

void FrontEnd::Do(const action::Detach& detach) {
  NodeIncarnation& incarnation = *clients_[detach.node].incarnation;
  const auto is_answered = std::make_shared<bool>(false);
  const auto answer = [this, is_answered](const Result<void>& result) {
    if (!std::exchange(*is_answered, true)) Carry(core_.OnDetached(result, Now()));
  };
  Notify(incarnation, incarnation.loop(), [this, &incarnation, answer] {
    incarnation.Detach();
    Answer(incarnation, [answer] { answer({}); });
  });
  world_.timeline.After(kCallTimeout.count(), &process_,
                        [answer] { answer(Broken("no answer in time")); });
}

// --- Connections ---

// Ends the front end's side of a connection. The supervisor reads end of file, after a goodbye as
// after an abort.
void FrontEnd::EndOurSide(Client& client, bool abort) {
  if (client.incarnation == nullptr || std::exchange(client.is_over, true)) return;
  NodeIncarnation& incarnation = *client.incarnation;
  if (world_.per_node && incarnation.node() > 0)
    return world_.per_node->EndStream(incarnation, abort);
  const int64_t arrival =
      world_.network.Send(incarnation.down(), world_.network.front_end(), incarnation.node());
  world_.timeline.At(arrival, &incarnation.supervisor(),
                     [&incarnation] { incarnation.OnFrontEndEof(); });
}

void FrontEnd::Do(const action::Abort& abort) {
  Client& client = clients_[abort.node];
  EndOurSide(client, /*abort=*/true);
  world_.timeline.After(1, &process_,
                        [this, &incarnation = *client.incarnation] { OnStreamEnd(incarnation); });
}

void FrontEnd::Do(const action::AwaitEnd& await) {
  Client& client = clients_[await.node];
  client.end_is_awaited = true;
  NodeIncarnation& incarnation = *client.incarnation;
  const int64_t limit = client.link_closed ? 0 : await.limit.count();
  world_.timeline.After(limit, &process_, [this, &incarnation] {
    if (const Client* newest = ClientOf(incarnation))
      OnLinkClosed(incarnation, newest->supervisor_ended);
  });
}

void FrontEnd::OnEvent(NodeIncarnation& incarnation, const pb::NodeEvent& event) {
  Client* const client = ClientOf(incarnation);
  if (client == nullptr || client->stream_ended) return;
  if (!client->runs)
    return client->unread.push_back([this, &incarnation, event] { OnEvent(incarnation, event); });
  OnAlive(incarnation);
  Log([&] {
    return "hears " + world_.NameOf(incarnation.node()) + ": " + event.ShortDebugString();
  });
  Carry(core_.OnEvent(incarnation.node(), event, Now()));
}

void FrontEnd::OnAlive(NodeIncarnation& incarnation) {
  const Client* const client = ClientOf(incarnation);
  if (client != nullptr && client->runs && !client->stream_ended)
    core_.contact().OnListening(incarnation.node(), Now());
}

void FrontEnd::OnStreamEnd(NodeIncarnation& incarnation) {
  Client* const client = ClientOf(incarnation);
  if (client == nullptr) return;
  if (client->is_preparing)
    return OnPrepared(incarnation, Broken("the connection to its agent broke"));
  if (!client->runs)
    return client->unread.push_back([this, &incarnation] { OnStreamEnd(incarnation); });
  if (std::exchange(client->stream_ended, true)) return;
  Log([&] { return "the stream of " + world_.NameOf(incarnation.node()) + " is over"; });
  Carry(core_.OnStreamEnd(incarnation.node(), Now()));
}

void FrontEnd::OnLinkClosed(NodeIncarnation& incarnation, bool supervisor_ended) {
  Client* const client = ClientOf(incarnation);
  if (client == nullptr) return;
  client->link_closed = true;
  client->supervisor_ended = supervisor_ended;
  if (!client->stream_ended) return OnStreamEnd(incarnation);
  if (!std::exchange(client->end_is_awaited, false)) return;
  Log([&] { return "the link to " + world_.NameOf(incarnation.node()) + " has ended"; });
  Carry(core_.OnLinkEnded(incarnation.node(), supervisor_ended, /*last_output=*/"", Now()));
}

// --- Time ---

void FrontEnd::Do(const action::SetTimer& set) {
  const uint64_t number = ++timer_numbers_[static_cast<size_t>(set.timer)];
  const milliseconds delay = std::chrono::duration_cast<milliseconds>(set.when - Now());
  world_.timeline.After(delay.count(), &process_, [this, number, timer = set.timer] {
    if (number != timer_numbers_[static_cast<size_t>(timer)]) return;
    Carry(core_.OnTimer(timer, /*reader_still_for=*/std::nullopt, Now()));
    if (timer == SessionTimer::kWatch && !process_.gone) EndSilentLinks();
  });
}

// Ends streams that have been silent for too long, as gRPC does when its pings are not answered
// (proto/wire/channel.cc).
void FrontEnd::EndSilentLinks() {
  for (size_t i = 0; i < clients_.size(); ++i) {
    const Client& client = clients_[i];
    if (client.runs && !client.stream_ended &&
        core_.contact().SilentFor(i, Now()) >= LinkSilentAfter(options_.job.timeouts()))
      OnStreamEnd(*client.incarnation);
  }
}

// --- The end ---

void FrontEnd::Finish() {
  const SessionEnd session_end = core_.End();
  if (session_end.kind == SessionEnd::Kind::kDetached) {
    Log([] { return "is left by its job"; });
    has_detached_ = true;
    exit_code_ = 0;
    return Crash();
  }
  const Goodput goodput = core_.goodput().At(Now());
  if (goodput.times.Sum() != goodput.wall_us * goodput.ranks)
    world_.invariants.Fail("the times of the ranks do not add up to the job's");
  const JobEnd& end = session_end.job;
  exit_code_ = end.exit_code;
  Log([&] { return "exits with " + std::to_string(end.exit_code) + ": " + CauseText(end.cause); });
  world_.invariants.OnExit(end);
  Crash();
}

// Ends the process for any reason: its descriptors are closed.
void FrontEnd::Crash() {
  if (world_.per_node) world_.per_node->OnFrontEndEnd(exit_code_);
  for (Client& client : clients_) EndOurSide(client);
  process_.gone = true;
}

void FrontEnd::LosePower() { process_.gone = true; }

void FrontEnd::Interrupt() { Carry(core_.OnSignal(SIGINT, Now())); }

}  // namespace dslaunch::sim
