#include "rendezvous/majority.h"

#include <algorithm>
#include <functional>

namespace dslaunch {

void Majority::OnHeartbeat(uint32_t node, const pb::Heartbeat& heartbeat, pb::Heartbeat& reply) {
  if (const uint64_t heard_us = heartbeat.rendezvous_clock_us(); heard_us != 0)
    OnReceived(node, Time(ReportedMicroseconds(heard_us)), now_);
  reply.set_rendezvous_clock_us(static_cast<uint64_t>(now_.time_since_epoch().count()));
  if (since_) reply.set_majority_age_us(static_cast<uint64_t>((now_ - *since_).count()));
}

void Majority::OnTick() {
  times_.clear();
  for (const uint32_t voter : voters_) {
    if (heard_[voter]) times_.push_back(*heard_[voter]);
  }
  if (times_.size() < needed_) return;
  const auto last = times_.begin() + static_cast<std::ptrdiff_t>(needed_ - 1);
  std::ranges::nth_element(times_, last, std::greater<>());
  since_ = std::max(since_, std::optional(*last));
}

}  // namespace dslaunch
