#include "agent/node/stack_requests.h"

#include <utility>

#include "base/text/sanitize.h"
#include "proto/wire/rank_stacks.h"

namespace dslaunch {

void StackRequests::Begin(std::vector<RankPlace> places, Kind kind, Done done) {
  if (places.empty()) return done({});
  const uint64_t id = ++last_request_;
  Request& request = requests_.try_emplace(id, loop_, std::move(done)).first->second;
  request.missing = places.size();
  for (const RankPlace& place : places) {
    pb::RankStacks& stacks = request.ranks.emplace_back();
    stacks.set_rank(place.rank);
    stacks.set_exchange(SanitizeForTerminal(place.exchange));
    stacks.set_exchange_ms(static_cast<uint64_t>(place.waits.count()));
    stacks.set_trouble("its supervisor did not answer");
    asked_[++last_number_] = {id, request.ranks.size() - 1};
    pb::SupervisorRequest message;
    message.mutable_look()->set_number(last_number_);
    message.mutable_look()->set_local_rank(place.local_rank);
    message.mutable_look()->set_full(kind != Kind::kSharedMemory);
    message.mutable_look()->set_native(kind == Kind::kNative);
    message.mutable_look()->set_shared_memory(kind == Kind::kSharedMemory);
    send_(message);
  }
  request.timer.expires_after(kLimit);
  request.timer.async_wait([this, id](std::error_code error) {
    if (!error) Finish(id);
  });
}

void StackRequests::OnLooked(pb::Looked& looked) {
  const auto found = asked_.find(looked.number());
  if (found == asked_.end()) return;
  const Asked asked = found->second;
  asked_.erase(found);
  Request& request = requests_.at(asked.request);
  pb::RankStacks& stacks = request.ranks[asked.index];
  pb::RankStacks& read = *looked.mutable_stacks();
  read.set_rank(stacks.rank());
  read.set_exchange(stacks.exchange());
  read.set_exchange_ms(stacks.exchange_ms());
  CutRankStacks(read);
  stacks = std::move(read);
  if (--request.missing == 0) Finish(asked.request);
}

void StackRequests::Finish(uint64_t id) {
  const auto request = requests_.find(id);
  if (request == requests_.end()) return;
  std::erase_if(asked_, [&](const auto& entry) { return entry.second.request == id; });
  const Done done = std::move(request->second.done);
  std::vector<pb::RankStacks> ranks = std::move(request->second.ranks);
  requests_.erase(request);
  done(std::move(ranks));
}

}  // namespace dslaunch
