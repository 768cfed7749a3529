// Moves a rank's tensors through the memory that the ranks of a host share.
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

// Runs operations on a separate thread while the caller computes. Collectives run one after the
// other in the order in which they are begun, which must be the same on all ranks. Messages run
// concurrently with collectives.
//
// An operation fails if a rank has exited or left without doing its part (a killed process is
// detected within kLook), if the operation's deadline has passed, or if the ranks call different
// operations. The error names the rank. After a failed collective all later collectives fail with
// the same error.
class ProgressThread {
 public:
  static constexpr std::chrono::milliseconds kLook{50};  // interval between checks of the processes

  // Called once per operation, on this object's thread. `error` is null on success.
  using Done = std::function<void(std::exception_ptr error)>;

  // Starts the thread. `processes` has, by rank, the pidfd of each other rank's process, and -1 for
  // this rank. `names` has, by rank, the number of each rank in error texts.
  ProgressThread(SharedSegment segment, size_t rank, std::vector<UniqueFd> processes,
                 std::vector<size_t> names);
  // Leaves the group. Pending operations fail on this rank and on ranks that wait for this rank.
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  RankOfHost own() const { return {rank_, layout_.ranks()}; }

  // Begins a collective and returns the id of the operation. Thread-safe. The memory must stay
  // valid until `done` is called.
  uint64_t Begin(Collective collective, Deadline deadline, Done done);
  // Begins to send a message of `bytes` bytes, under the conditions of Begin.
  uint64_t Send(size_t to, uint64_t tag, const std::byte* data, size_t bytes, Deadline deadline,
                Done done);
  // Begins to receive a message of `bytes` bytes, under the conditions of Begin.
  uint64_t Receive(size_t from, uint64_t tag, std::byte* data, size_t bytes, Deadline deadline,
                   Done done);
  // Fails the operation `id` unless it is already done.
  void GiveUp(uint64_t id);

 private:
  struct Operation {
    Done done;
    Deadline deadline;
    std::optional<size_t> peer;  // peer of a message; nullopt for a collective
    std::optional<Collective> collective;
  };
  struct Peer {
    std::optional<MessageSender> sender;
    std::optional<MessageReceiver> receiver;
    UniqueFd process;
    std::string lost;  // reason why the peer is lost; empty if it is not lost
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
  // Ends an operation; `error` is empty on success.
  void End(uint64_t id, const std::string& error);
  std::string NameOf(size_t rank) const { return "rank " + std::to_string(names_[rank]); }
  RankWords& Own() const { return layout_.words(rank_); }

  SharedSegment segment_;
  SharedLayout layout_;
  size_t rank_;
  std::vector<size_t> names_;

  // The members up to collectives_failed_ are used only by the thread.
  std::vector<Peer> peers_;
  ChunkFlow flow_;
  std::map<uint64_t, Operation> operations_;
  std::deque<uint64_t> collectives_;  // ids of pending collectives; `flow_` runs the first one
  // Error of a failed collective; empty if no collective has failed.
  std::string collectives_failed_;

  Mutex mutex_;
  std::vector<std::function<void()>> submitted_ DSL_GUARDED_BY(mutex_);
  uint64_t next_id_ DSL_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;  // declared last because it uses the other members
};

}  // namespace dslaunch
