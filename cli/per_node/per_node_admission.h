// Decides which place, an index among the job's nodes, each node that connects to node 0's command
// gets, and when the job starts. Uses no clock and no network.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "proto/per_node.pb.h"

namespace dslaunch {

inline constexpr char kPerNodeMagic[] = "dslaunch per-node 1";

// Identifies a connection to node 0's command. The caller chooses the number and never uses it
// twice.
using PeerId = uint64_t;

struct AdmissionOptions {
  pb::AdmissionRequest own;             // admission request that node 0 itself would send
  std::vector<std::string> names = {};  // names of all nodes that may have a place, node 0 first
  // Slots of each node in the hostfile; empty if each node reports its own number of slots.
  std::vector<int> slots = {};
  milliseconds join_timeout{600'000};
  milliseconds last_call{30'000};  // time for more nodes to join once the minimum has joined
  bool takes_late = false;         // whether a node may join, or rejoin, while the job runs
};

class Admission {
 public:
  Admission(AdmissionOptions options, Clock::time_point now);

  // Handles the request of a node's command to join, from `where` ("worker-1 (10.0.0.2)"). Returns
  // nullopt if the node has a place, or gets one when the job starts. Otherwise returns the reason,
  // for the users of both commands.
  std::optional<Error> Admit(PeerId peer, const pb::AdmissionRequest& request,
                             const std::string& where, Clock::time_point now);
  // Handles the end of a peer's connection, which frees the peer's place.
  void Leave(PeerId peer);

  struct Decision {
    enum class Verdict { kWait, kStart, kGiveUp };
    Verdict verdict = Verdict::kWait;
    std::string reason;  // text for the user about the verdict
    // For kWait: time at which to call Decide again if nothing happens before.
    Clock::time_point wake;
  };

  // Decides whether to wait for more nodes, start the job, or fail because too few nodes have
  // joined.
  Decision Decide(Clock::time_point now) const;

  // Numbers the places: nodes without a node rank get the free places, in the order in which they
  // joined. Call it once.
  void Start();

  // Returns the peer at a place from 1 to names().size() - 1; nullopt if the place is free. Node 0
  // itself has place 0.
  std::optional<PeerId> PeerAt(size_t place) const;
  // Returns the place of a peer; nullopt until the peer has a place.
  std::optional<size_t> PlaceOf(PeerId peer) const;
  // Returns the number of ranks that the node at a place starts. A free place has as many as node
  // 0.
  int SlotsOf(size_t place) const;

  // Returns the number of nodes that have joined, including node 0.
  size_t present() const { return 1 + peers_.size(); }
  const std::vector<std::string>& names() const { return options_.names; }

 private:
  struct Peer {
    std::optional<size_t> place;
    int slots = 0;
    std::string where;
  };

  std::optional<Error> WhyRejected(const pb::AdmissionRequest& request,
                                   const std::string& where) const;
  std::optional<size_t> FreePlaceFor(const pb::AdmissionRequest& request) const;
  std::vector<std::string> Missing() const;

  const AdmissionOptions options_;
  const Clock::time_point join_deadline_;
  std::map<PeerId, Peer> peers_;  // peers by id, which is the order in which they joined
  // End of the time for more nodes to join; set while at least the least number of nodes has
  // joined.
  std::optional<Clock::time_point> last_call_ends_;
  std::vector<int> slots_;  // slots by place; empty until the job has started
  bool started_ = false;
};

// Returns why a node with the request `other`, from `where`, cannot be part of node 0's job;
// nullopt if the node can.
std::optional<Error> WhyAnotherJob(const pb::AdmissionRequest& own,
                                   const pb::AdmissionRequest& other, const std::string& where);

}  // namespace dslaunch
