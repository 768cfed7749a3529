#include "rendezvous/majority.h"

#include <algorithm>
#include <functional>

namespace dslaunch {

Majority::Majority(const std::vector<uint32_t>& voters, size_t num_nodes, size_t needed)
    : voters_(voters), needed_(needed), heard_(num_nodes) {}

void Majority::OnReceived(uint32_t node, Time sent_at, Time now) {
  if (node >= heard_.size() || sent_at > now) return;
  heard_[node] = std::max(heard_[node], std::optional(sent_at));
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
