#include "agent/node/supervisor_link.h"

#include <algorithm>
#include <asio/steady_timer.hpp>
#include <memory>
#include <utility>

#include "proto/wire/rank_stacks.h"

namespace dslaunch {
namespace {

constexpr milliseconds kBetweenLooks(1'000);
constexpr size_t kMaxThreadLines = 8;  // limit of lines for each rank that hangs

}  // namespace

SupervisorLink::SupervisorLink(asio::io_context& loop, int control_fd, NodeOutput& out)
    : loop_(loop),
      out_(out),
      socket_(
          loop, UniqueFd(control_fd), [this](std::string_view bytes) { OnMessage(bytes); },
          [this](const std::string&) { OnGone(); }),
      stacks_(loop, [this](const pb::SupervisorRequest& request) { Send(request); }) {}

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
  stacks_.Begin(std::move(places), [done](std::vector<pb::RankStacks> ranks) {
    pb::StacksReply reply;
    for (pb::RankStacks& stacks : ranks) *reply.add_ranks() = std::move(stacks);
    done(std::move(reply));
  });
}

void SupervisorLink::Inspect(agent_action::InspectWorker action, std::vector<pb::RankStacks> seen) {
  const RankPlace place = action.place;
  stacks_.Begin({place}, [this, action = std::move(action),
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
      out_.Notify(action.text + (seen.size() > 1 ? DescribeLooks(seen)
                                                 : DescribeStacks(seen.front(), kMaxThreadLines)));
    }
    if (action.look == 0) return;
    out_.Feed([&](Clock::time_point) {
      out_.core().workers().OnInspected(action.look, std::move(seen.back()));
    });
  });
}

}  // namespace dslaunch
