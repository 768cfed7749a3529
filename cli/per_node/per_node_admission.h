// Decides which node that connects to node 0's command gets which place, and when the job
// starts. Pure: no clock, no network.
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

// One connection to node 0's command; chosen by the caller, never used twice.
using PeerId = uint64_t;

struct AdmissionOptions {
  pb::AdmissionRequest own;             // request that node 0 itself would send
  std::vector<std::string> names = {};  // names of all nodes that may have a place, node 0 first
  // Slots of each node in the hostfile; empty if each node reports its own.
  std::vector<int> slots = {};
  milliseconds join_timeout{600'000};
  milliseconds last_call{30'000};  // wait for more nodes, once the least number has joined
  bool takes_late = false;         // a node may join, or rejoin, while the job runs
};

class Admission {
 public:
  Admission(AdmissionOptions options, Clock::time_point now);

  // A node's command asks to join, from `where` ("worker-1 (10.0.0.2)"). nullopt: it has a place,
  // or gets one when the job starts. Else the reason, for the users of both commands.
  std::optional<Error> Admit(PeerId peer, const pb::AdmissionRequest& request,
                             const std::string& where, Clock::time_point now);
  // It has disconnected. Its place is free again.
  void Leave(PeerId peer);

  struct Decision {
    enum class Verdict { kWait, kStart, kGiveUp };
    Verdict verdict = Verdict::kWait;
    std::string reason;      // text for the user
    Clock::time_point wake;  // when kWait: decide again then, if nothing happens before
  };
  Decision Decide(Clock::time_point now) const;

  // Numbers the places: nodes without a node rank take those that are free, in the order in which
  // they joined. Once.
  void Start();

  // Returns the peer that has a place: 1 to names().size() - 1, because node 0 has place 0.
  std::optional<PeerId> PeerAt(size_t place) const;
  // Returns the place of a peer, once it has a number.
  std::optional<size_t> PlaceOf(PeerId peer) const;
  // How many ranks it starts. A place that is still free has as many as node 0.
  int SlotsOf(size_t place) const;

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
  std::map<PeerId, Peer> peers_;                     // in the order in which they joined
  std::optional<Clock::time_point> last_call_ends_;  // set while the least number has joined
  std::vector<int> slots_;                           // slots by place, once the job has started
  bool started_ = false;
};

// Why a node with the request `other`, from `where`, cannot be part of node 0's job; nullopt: it
// can.
std::optional<Error> WhyAnotherJob(const pb::AdmissionRequest& own,
                                   const pb::AdmissionRequest& other, const std::string& where);

}  // namespace dslaunch
