// Limits the connections at an open port that have not authenticated yet. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace dslaunch {

// Accepts every connection, but evicts one if the limit is exceeded: the oldest connection of the
// address with the most connections. A legitimate peer authenticates within milliseconds, so an
// address that floods the port evicts its own connections and not those of other peers.
class PendingConnections {
 public:
  explicit PendingConnections(size_t limit) : limit_(limit) {}

  // Adds a connection; `id` must exceed all earlier ones. Returns the id of the connection that was
  // evicted to keep the limit; nullopt if none was.
  std::optional<uint64_t> Add(uint64_t id, const std::string& address);
  // Returns the id of the connection that would be evicted next; nullopt if none is pending.
  std::optional<uint64_t> NextToEvict() const;
  // Removes a connection. Does nothing if it is not pending.
  void Remove(uint64_t id, const std::string& address);

  size_t size() const { return size_; }

 private:
  using Groups = std::map<std::string, std::set<uint64_t>>;
  // Returns the address with the most connections; among equals, the one with the oldest
  // connection.
  Groups::const_iterator Crowd() const;

  const size_t limit_;
  size_t size_ = 0;
  Groups by_address_;  // contains no empty sets
};

}  // namespace dslaunch
