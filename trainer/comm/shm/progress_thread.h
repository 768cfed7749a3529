// The thread that moves a rank's tensors through the memory that the ranks of its host share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "trainer/comm/shm/chunk_flow.h"
#include "trainer/comm/shm/collective.h"
#include "trainer/comm/shm/message_flow.h"
#include "trainer/comm/shm/segment.h"

namespace dslaunch {

// Operations run while the caller computes. Collectives run one after the other in the order in
// which they are begun, which is the same on all ranks; messages run beside them.
//
// An operation fails, with an error that names the rank, if a rank has ended or left without doing
// its part (a killed process is noticed within kLook), if its deadline has passed, or if the ranks
// call different operations. After a failed collective all later ones fail in the same way.
class ProgressThread {
 public:
  static constexpr std::chrono::milliseconds kLook{50};

  // Called once, in the engine's thread; null for success.
  using Done = std::function<void(std::exception_ptr error)>;

  // `processes`: a pidfd of each other rank's process, -1 for this one; `names`: the ranks' names
  // in error texts; both by rank.
  ProgressThread(SharedSegment segment, size_t rank, std::vector<UniqueFd> processes,
                 std::vector<size_t> names);
  // Leaves: pending operations fail, here and on ranks that wait for this one.
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  RankOfHost own() const { return {rank_, layout_.ranks()}; }

  // Each begins an operation and returns its id. May be called on any thread. The memory must stay
  // until `done` is called.
  uint64_t Begin(Collective collective, Deadline deadline, Done done);
  uint64_t Send(size_t to, uint64_t tag, const std::byte* data, size_t bytes, Deadline deadline,
                Done done);
  uint64_t Receive(size_t from, uint64_t tag, std::byte* data, size_t bytes, Deadline deadline,
                   Done done);
  // Fails a message or collective that is not done yet.
  void GiveUp(uint64_t id);

 private:
  struct Operation {
    Done done;
    Deadline deadline;
    std::optional<size_t> peer;  // set for a message
    std::optional<Collective> collective;
  };
  struct Peer {
    std::optional<MessageSender> sender;
    std::optional<MessageReceiver> receiver;
    UniqueFd process;
    std::string lost;  // why the peer is lost; empty: it is not
  };

  uint64_t Submit(std::function<void(uint64_t id)> begin);
  void Run();
  bool TakeSubmitted();
  bool Advance();
  bool AdvanceCollectives();
  bool AdvanceMessages(size_t peer);
  void LookAtPeers(bool processes_too);
  void FailLate();
  void FailLost();
  void FailPeer(size_t peer, const std::string& why);
  void FailCollectives(const std::string& why);
  void End(uint64_t id, const std::string& error);  // empty: success
  std::string NameOf(size_t rank) const { return "rank " + std::to_string(names_[rank]); }
  RankWords& Own() const { return layout_.words(rank_); }

  SharedSegment segment_;
  SharedLayout layout_;
  size_t rank_;
  std::vector<size_t> names_;

  // Used by the thread only.
  std::vector<Peer> peers_;
  ChunkFlow flow_;
  std::map<uint64_t, Operation> operations_;
  std::deque<uint64_t> collectives_;  // the first one is in `flow_`
  std::string collectives_failed_;    // error of a failed collective, or empty

  Mutex mutex_;
  std::vector<std::function<void()>> submitted_ DSL_GUARDED_BY(mutex_);
  uint64_t next_id_ DSL_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;  // last: uses the rest
};

}  // namespace dslaunch
