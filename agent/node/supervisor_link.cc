#include "agent/node/supervisor_link.h"

#include <algorithm>
#include <asio/steady_timer.hpp>
#include <memory>
#include <utility>

#include "agent/flight/ras_report.h"
#include "base/text/sanitize.h"
#include "proto/wire/rank_stacks.h"

namespace dslaunch {
namespace {

constexpr milliseconds kBetweenLooks(1'000);
constexpr size_t kMaxThreadLines = 8;  // limit of the lines shown for each rank that hangs

}  // namespace

SupervisorLink::SupervisorLink(asio::io_context& loop, int control_fd, NodeOutput& out)
    : loop_(loop),
      out_(out),
      socket_(
          loop, UniqueFd(control_fd), [this](std::string_view bytes) { OnMessage(bytes); },
          [this](const std::string&) { OnGone(); }),
      stacks_(loop, [this](const pb::SupervisorRequest& request) { Send(request); }),
      flights_(loop),
      ras_(loop) {}

void SupervisorLink::OnMessage(std::string_view bytes) {
  pb::SupervisorEvent event;
  if (!event.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return OnGone();
  if (event.has_looked()) return stacks_.OnLooked(*event.mutable_looked());
  out_.Feed([&](Clock::time_point now) { out_.core().OnSupervisorEvent(event, now); });
}

void SupervisorLink::OnGone() {
  out_.Feed([this](Clock::time_point now) { out_.core().OnSupervisorGone(now); });
}

void SupervisorLink::GetStacks(const pb::StacksRequest& request,
                               std::function<void(pb::StacksReply)> done) {
  std::vector<RankPlace> places = out_.core().workers().ranks().RunningRanks(Clock::now());
  std::erase_if(places, [&](const RankPlace& place) {
    return !request.all() && std::ranges::count(request.ranks(), place.rank) == 0;
  });
  stacks_.Begin(std::move(places), StackRequests::Kind::kNative,
                [done](std::vector<pb::RankStacks> ranks) {
                  pb::StacksReply reply;
                  for (pb::RankStacks& stacks : ranks) *reply.add_ranks() = std::move(stacks);
                  done(std::move(reply));
                });
}

void SupervisorLink::Do(agent_action::InspectWorker& action) {
  if (action.flight) return ReadFlight(action);
  Inspect(std::move(action), {});
}

void SupervisorLink::ReadFlight(const agent_action::InspectWorker& action) {
  const bool is_first = action.place.local_rank == 0;
  flights_.Begin(action.place.rank, action.place.folder,
                 [this, is_first, look = action.look](pb::FlightRecord record) {
                   pb::Inspected inspected;
                   inspected.set_look(look);
                   inspected.mutable_stacks()->set_rank(record.rank());
                   *inspected.mutable_flight() = std::move(record);
                   is_first ? ReadRas(std::move(inspected)) : SendInspected(std::move(inspected));
                 });
}

void SupervisorLink::ReadRas(pb::Inspected inspected) {
  const AttemptWorker* const first = out_.core().workers().ranks().Find(0);
  ras_.Begin(RasAddressOf(first == nullptr ? 0 : first->pid),
             [this, inspected = std::move(inspected)](const std::string& status,
                                                      std::string trouble) mutable {
               const uint32_t world_size = out_.core().workers().ranks().assignment().world_size();
               const Result<pb::RasReport> report =
                   trouble.empty() ? ReadRasReport(status, world_size)
                                   : Error{ExitCode::kUnavailable, std::move(trouble)};
               if (report.ok())
                 *inspected.mutable_ras() = *report;
               else
                 inspected.mutable_ras()->set_trouble(SanitizeForTerminal(report.error().message));
               SendInspected(std::move(inspected));
             });
}

void SupervisorLink::SendInspected(pb::Inspected inspected) {
  out_.Feed([&](Clock::time_point) { out_.core().workers().OnInspected(std::move(inspected)); });
}

void SupervisorLink::Inspect(agent_action::InspectWorker action, std::vector<pb::RankStacks> seen) {
  const RankPlace place = action.place;
  stacks_.Begin({place}, StackRequests::Kind::kNative,
                [this, action = std::move(action),
                 seen = std::move(seen)](std::vector<pb::RankStacks> ranks) mutable {
                  seen.push_back(std::move(ranks.front()));
                  if (seen.size() < action.looks) {
                    const auto timer = std::make_shared<asio::steady_timer>(loop_, kBetweenLooks);
                    timer->async_wait([this, timer, action = std::move(action),
                                       seen = std::move(seen)](std::error_code error) mutable {
                      if (!error) Inspect(std::move(action), std::move(seen));
                    });
                    return;
                  }
                  if (!action.text.empty()) {
                    out_.Notify(action.text +
                                (seen.size() > 1 ? DescribeLooks(seen)
                                                 : DescribeStacks(seen.front(), kMaxThreadLines)));
                  }
                  if (action.look == 0) return;
                  pb::Inspected inspected;
                  inspected.set_look(action.look);
                  *inspected.mutable_stacks() = std::move(seen.back());
                  SendInspected(std::move(inspected));
                });
}

}  // namespace dslaunch
