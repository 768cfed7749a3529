// Limits the number of connections at an open port that have not authenticated yet. Performs no
// I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace dslaunch {

// Accepts every connection. If the limit is exceeded, evicts the oldest connection of the address
// with the most connections. A legitimate peer authenticates within milliseconds, so an address
// that floods the port evicts its own connections and not the connections of other peers.
class PendingConnections {
 public:
  explicit PendingConnections(size_t limit) : limit_(limit) {}

  // Adds a connection; `id` must exceed all earlier ids. Returns the id of the connection that was
  // evicted to keep the limit; nullopt if none was evicted.
  std::optional<uint64_t> Add(uint64_t id, const std::string& address);
  // Returns the id of the connection that would be evicted next; nullopt if none is pending.
  std::optional<uint64_t> NextToEvict() const;
  // Removes the connection `id` of `address`. Does nothing if it is not pending.
  void Remove(uint64_t id, const std::string& address);

  size_t size() const { return size_; }

 private:
  using Groups = std::map<std::string, std::set<uint64_t>>;
  // Returns the address with the most connections; among addresses with equally many, the address
  // with the oldest connection.
  Groups::const_iterator Crowd() const;

  const size_t limit_;
  size_t size_ = 0;
  Groups by_address_;  // ids of the pending connections by address; contains no empty sets
};

}  // namespace dslaunch
