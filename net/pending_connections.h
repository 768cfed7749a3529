// Who may wait at an open port to prove itself. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace dslaunch {

// Nobody is turned away at the door, but once it is full a newcomer pushes another out: the oldest
// of the address that most come from. One who belongs here proves it within milliseconds, so a
// crowd that only waits pushes out itself, and an address that floods the others does not push out
// theirs.
class PendingConnections {
 public:
  explicit PendingConnections(size_t limit) : limit_(limit) {}

  // `id`: larger than all before. Who has to go, if somebody has; it has left then.
  std::optional<uint64_t> Enter(uint64_t id, const std::string& address);
  // The id of the connection that is closed for the next one when it is full; nullopt: none is
  // pending.
  std::optional<uint64_t> NextToLeave() const;
  // Void if it is not there.
  void Leave(uint64_t id, const std::string& address);

  size_t size() const { return size_; }

 private:
  using Groups = std::map<std::string, std::set<uint64_t>>;
  // The address that most wait from; of several the one whose oldest has waited longest.
  Groups::const_iterator Crowd() const;

  const size_t limit_;
  size_t size_ = 0;
  Groups by_address_;  // no empty sets
};

}  // namespace dslaunch
