#include "net/pending_connections.h"

#include <algorithm>

namespace dslaunch {

std::optional<uint64_t> PendingConnections::Add(uint64_t id, const std::string& address) {
  by_address_[address].insert(id);
  if (++size_ <= limit_) return std::nullopt;
  const auto crowd = Crowd();
  const std::string from = crowd->first;
  const uint64_t oldest = *crowd->second.begin();
  Remove(oldest, from);
  return oldest;
}

std::optional<uint64_t> PendingConnections::NextToEvict() const {
  if (size_ == 0) return std::nullopt;
  return *Crowd()->second.begin();
}

PendingConnections::Groups::const_iterator PendingConnections::Crowd() const {
  return std::ranges::max_element(by_address_, [](const auto& a, const auto& b) {
    const size_t few = a.second.size(), many = b.second.size();
    return few != many ? few < many : *a.second.begin() > *b.second.begin();
  });
}

void PendingConnections::Remove(uint64_t id, const std::string& address) {
  const auto group = by_address_.find(address);
  if (group == by_address_.end() || group->second.erase(id) == 0) return;
  --size_;
  if (group->second.empty()) by_address_.erase(group);
}

}  // namespace dslaunch
