#include "tests/sim/front_end.h"

#include <signal.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "base/backoff.h"
#include "cli/session/call_times.h"
#include "proto/wire/cause.h"
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
            world.bug == PlantedBug::kMovesTooEarly ? SessionCore::PlantedBug::kMovesTooEarly
                                                    : SessionCore::PlantedBug::kNone),
      clients_(world.job.size()) {}

SessionOptions FrontEnd::OptionsFor(const World& world) {
  SessionOptions options;
  options.job_id = "job";
  options.plan = world.job.plan;
  options.timeouts = world.job.timeouts();
  options.policy = world.job.policy();
  options.log_level = world.trace.on() ? LogLevel::kDebug : LogLevel::kError;
  return options;
}

Clock::time_point FrontEnd::Now() const {
  return world_.timeline.NowOn(world_.front_end_machine.clock);
}

FrontEnd::Client* FrontEnd::ClientOf(const NodeVisit& visit) {
  Client& client = clients_[visit.node()];
  return client.visit == &visit ? &client : nullptr;
}

void FrontEnd::Start() { Carry(core_.Start(Now())); }

void FrontEnd::Carry(SessionCore::Actions actions) {
  for (SessionAction& action : actions) {
    std::visit([this](auto& one) { Do(one); }, action);
  }
  if (finished_ && !process_.gone) Finish();
}

void FrontEnd::Do(const action::Say& say) {
  Say([&] { return say.text; });
}

// --- Reaching nodes ---

void FrontEnd::Do(const action::Connect& connect) {
  const auto index = static_cast<uint32_t>(connect.node);
  if (connect.attempt == 0) {
    const bool absent = std::ranges::count(world_.job.absent, index) > 0;
    return world_.timeline.After(
        world_.random.Between(100, 2'000), &process_,
        [this, index, absent] { OnConnected(index, !absent && Reach(index)); });
  }
  const double part = static_cast<double>(world_.random.Between(0, 999)) / 1'000;
  const milliseconds pause =
      PauseAfter(connect.attempt - 1, options_.retry_wait, kMaxRetryWait, part);
  world_.timeline.After(pause.count(), &process_, [this, index] {
    if (connecting_stopped_ || visits_again_ == kMostVisits) return;
    world_.timeline.After(kConnectMs, &process_, [this, index] {
      if (visits_again_ == kMostVisits) return;
      const bool reached = Reach(index);
      if (reached) ++visits_again_;
      OnConnected(index, reached);
    });
  });
}

void FrontEnd::OnConnected(uint32_t index, bool reached) {
  Say([&] { return (reached ? "reaches " : "does not reach ") + world_.NameOf(index); });
  if (reached)
    Carry(core_.OnConnected(index, NodeAddresses(), Now()));
  else
    Carry(core_.OnConnected(index, Broken("no route to host"), Now()));
}

bool FrontEnd::Reach(uint32_t index) {
  const Place self = world_.network.front_end();
  if (world_.machines[index].off || world_.network.IsCut(self, index) ||
      world_.network.IsCut(index, self))
    return false;
  world_.visits.push_back(std::make_unique<NodeVisit>(world_, world_.visits.size(), index));
  clients_[index] = Client();
  clients_[index].visit = world_.visits.back().get();
  return true;
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
  NodeVisit& visit = *client.visit;
  if (client.link_closed) {
    return world_.timeline.After(0, &process_,
                                 [this, &visit] { OnPrepared(visit, Broken("its link ended")); });
  }
  auto request = std::make_shared<pb::PrepareRequest>(std::move(prepare.request));
  Tell(visit, visit.loop(), [this, &visit, request] {
    const bool ok = visit.Prepare(*request);
    Answer(visit, [this, &visit, ok, server = visit.server()] {
      if (!ok) return OnPrepared(visit, Broken("the disk is full"));
      pb::NodeFacts facts;
      if (server != nullptr) facts.add_rendezvous_endpoints(EndpointOf(*server));
      OnPrepared(visit, std::move(facts));
    });
  });
  world_.timeline.After(kPrepareTimeout.count(), &process_,
                        [this, &visit] { OnPrepared(visit, Broken("no answer in time")); });
}

void FrontEnd::OnPrepared(NodeVisit& visit, Result<pb::NodeFacts> facts) {
  Client* const client = ClientOf(visit);
  if (client != nullptr && std::exchange(client->is_preparing, false))
    Carry(core_.OnPrepared(visit.node(), std::move(facts), Now()));
}

void FrontEnd::Do(action::Run& run) {
  Client& client = clients_[run.node];
  client.runs = true;
  core_.OnListening(run.node, Now());
  NodeVisit& visit = *client.visit;
  if (client.link_closed)
    return world_.timeline.After(0, &process_, [this, &visit] { OnStreamEnd(visit); });
  Tell(visit, visit.loop(),
       [&visit, rendezvous = RendezvousAt(run.request.rendezvous_endpoints(0))] {
         visit.Run(rendezvous);
       });
}

void FrontEnd::Do(const action::Renew& renew) {
  Client& client = clients_[renew.node];
  NodeVisit& visit = *client.visit;
  const uint64_t number = ++client.renewals;
  Tell(visit, visit.threads(),
       [this, &visit, number, heard_us = renew.heard_us, sent = world_.timeline.now()] {
         const uint64_t clock_us = visit.Renew(heard_us, sent);
         Answer(visit, [this, &visit, number, clock_us] {
           Client* const newest = ClientOf(visit);
           if (newest == nullptr) return;
           newest->answered = number;
           Carry(core_.OnRenewed(visit.node(), clock_us));
         });
       });
  if (!client.is_preparing) return;  // then nothing comes of it
  world_.timeline.After(renew.timeout.count(), &process_, [this, &visit, number] {
    const Client* const newest = ClientOf(visit);
    if (newest != nullptr && newest->answered < number)
      Carry(core_.OnRenewed(visit.node(), std::nullopt));
  });
}

void FrontEnd::Do(action::Move& move) {
  NodeVisit& visit = *clients_[move.node].visit;
  const uint32_t host = move.request.rendezvous_node();
  Say([&] {
    return "tells " + world_.NameOf(visit.node()) +
           " who decides: " + move.request.ShortDebugString();
  });
  Rendezvous* const rendezvous =
      host == visit.node() ? nullptr : RendezvousAt(move.request.rendezvous_endpoints(0));
  const uint64_t number = moves_sent_++;
  moves_answered_.push_back(false);
  auto request = std::make_shared<pb::MoveRequest>(std::move(move.request));
  Tell(visit, visit.loop(), [this, &visit, number, host, rendezvous, request] {
    const bool ok = visit.Move(*request, rendezvous);
    Answer(visit, [this, &visit, number, host, ok, server = visit.server()] {
      if (!ok) return OnMoveAnswered(visit, number, host, Broken("it does not wait for another"));
      pb::RendezvousOpened opened;
      if (server != nullptr) opened.add_rendezvous_endpoints(EndpointOf(*server));
      OnMoveAnswered(visit, number, host, opened);
    });
  });
  world_.timeline.After(kCallTimeout.count(), &process_, [this, &visit, number, host] {
    OnMoveAnswered(visit, number, host, Broken("no answer in time"));
  });
}

void FrontEnd::OnMoveAnswered(NodeVisit& visit, uint64_t number, uint32_t host,
                              const Result<pb::RendezvousOpened>& opened) {
  if (moves_answered_[number]) return;
  moves_answered_[number] = true;
  const bool decides = host == visit.node() && opened.ok();
  if (decides) ++moves_;
  Say([&] { return world_.NameOf(visit.node()) + (opened.ok() ? " agrees" : " does not agree"); });
  Carry(core_.OnMoveAnswered(visit.node(), host, opened));
}

void FrontEnd::Do(action::Stop& stop) {
  const Client& client = clients_[stop.node];
  if (client.is_over) return;
  NodeVisit& visit = *client.visit;
  Tell(visit, visit.loop(),
       [&visit, kill_now = stop.kill_now,
        cause = std::make_shared<pb::Cause>(std::move(stop.cause))] {
         visit.Stop(*cause, kill_now);
       });
}

// --- Connections ---

// For the keeper a goodbye and an abort are end of file.
void FrontEnd::EndOurSide(Client& client) {
  if (client.visit == nullptr || std::exchange(client.is_over, true)) return;
  NodeVisit& visit = *client.visit;
  const int64_t arrival =
      world_.network.Send(visit.down(), world_.network.front_end(), visit.node());
  world_.timeline.At(arrival, &visit.keeper(), [&visit] { visit.OnFrontEndEof(); });
}

void FrontEnd::Do(const action::Abort& abort) {
  Client& client = clients_[abort.node];
  EndOurSide(client);
  world_.timeline.After(1, &process_, [this, &visit = *client.visit] { OnStreamEnd(visit); });
}

void FrontEnd::Do(const action::AwaitEnd& await) {
  Client& client = clients_[await.node];
  client.end_is_awaited = true;
  NodeVisit& visit = *client.visit;
  const int64_t limit = client.link_closed ? 0 : await.limit.count();
  world_.timeline.After(limit, &process_, [this, &visit] {
    if (const Client* newest = ClientOf(visit)) OnLinkClosed(visit, newest->keeper_ended);
  });
}

void FrontEnd::OnEvent(NodeVisit& visit, const pb::NodeEvent& event) {
  const Client* const client = ClientOf(visit);
  if (client == nullptr || client->stream_ended) return;
  OnAlive(visit);
  Say([&] { return "hears " + world_.NameOf(visit.node()) + ": " + event.ShortDebugString(); });
  Carry(core_.OnEvent(visit.node(), event, Now()));
}

void FrontEnd::OnAlive(NodeVisit& visit) {
  const Client* const client = ClientOf(visit);
  if (client != nullptr && client->runs && !client->stream_ended)
    core_.OnListening(visit.node(), Now());
}

void FrontEnd::OnStreamEnd(NodeVisit& visit) {
  Client* const client = ClientOf(visit);
  if (client == nullptr) return;
  if (client->is_preparing) return OnPrepared(visit, Broken("its agent broke off"));
  if (!client->runs || std::exchange(client->stream_ended, true)) return;
  Say([&] { return "the stream of " + world_.NameOf(visit.node()) + " is over"; });
  Carry(core_.OnStreamEnd(visit.node(), Now()));
}

void FrontEnd::OnLinkClosed(NodeVisit& visit, bool keeper_ended) {
  Client* const client = ClientOf(visit);
  if (client == nullptr) return;
  client->link_closed = true;
  client->keeper_ended = keeper_ended;
  if (!client->stream_ended) return OnStreamEnd(visit);
  if (!std::exchange(client->end_is_awaited, false)) return;
  Say([&] { return "the link to " + world_.NameOf(visit.node()) + " has ended"; });
  Carry(core_.OnLinkEnded(visit.node(), keeper_ended, /*last_words=*/"", Now()));
}

// --- Time ---

void FrontEnd::Do(const action::SetTimer& set) {
  const uint64_t number = ++timer_numbers_[static_cast<size_t>(set.timer)];
  const milliseconds delay = std::chrono::duration_cast<milliseconds>(set.when - Now());
  world_.timeline.After(delay.count(), &process_, [this, number, timer = set.timer] {
    if (number != timer_numbers_[static_cast<size_t>(timer)]) return;
    Carry(OnTimer(timer));
    if (timer == SessionTimer::kWatch && !process_.gone) EndSilentLinks();
  });
}

SessionCore::Actions FrontEnd::OnTimer(SessionTimer timer) {
  switch (timer) {
    case SessionTimer::kConnect:
      return core_.OnConnectTimer();
    case SessionTimer::kRenew:
      return core_.OnRenewTimer(Now());
    case SessionTimer::kWatch:
      return core_.OnWatchTimer(Now());
    case SessionTimer::kTeardown:
      return core_.OnTeardownTimer(/*terminal_is_slow=*/false, Now());
  }
  return {};
}

// gRPC's pings are not answered (proto/wire/channel.cc).
void FrontEnd::EndSilentLinks() {
  for (size_t i = 0; i < clients_.size(); ++i) {
    const Client& client = clients_[i];
    if (client.runs && !client.stream_ended && core_.SilenceOf(i, Now()) >= world_.job.link_silent)
      OnStreamEnd(*client.visit);
  }
}

// --- The end ---

void FrontEnd::Finish() {
  const JobEnd end = core_.End().job;
  exit_code_ = end.exit_code;
  Say([&] { return "exits with " + std::to_string(end.exit_code) + ": " + CauseText(end.cause); });
  world_.invariants.OnExit(end);
  Crash();
}

// Its descriptors are closed, whatever ends it.
void FrontEnd::Crash() {
  for (Client& client : clients_) EndOurSide(client);
  process_.gone = true;
}

void FrontEnd::LosePower() { process_.gone = true; }

void FrontEnd::Interrupt() { Carry(core_.OnSignal(SIGINT, Now())); }

}  // namespace dslaunch::sim
