// Decides the actions of a node's agent for each call of the front end, each message of the
// rendezvous or the supervisor, and each tick. Uses no clock, threads, processes, sockets or files;
// NodeAgent, tests and simulators drive it.
//
//   idle -> working -> draining -> idle ...       when another attempt follows
//     \________|__________|
//              v
//           stopping -> torn down                when the job ends, or this node's part of it
//
// Any event that ends this node's part of the job requests agent_request::Stop; the cause of the
// first request counts. A node is empty only once its supervisor has reported that all ranks'
// processes have ended, or has exited itself and the processes that it left have been ended.
//
// A detached job of three or more nodes that may restart needs a majority of them. Its nodes run
// ranks under leases that the rendezvous gives while a majority answers it (rendezvous/majority.h),
// and elect another rendezvous when it is lost (election_core.h).
//
// The state is divided among components such as WorkersCore. A component changes only its own
// fields. It reads other components through const references, and changes them only by requests in
// the outbox, which AgentCore carries out.
#pragma once

#include <cstdint>

#include "agent/core/agent_outbox.h"
#include "agent/core/front_end_core.h"
#include "agent/core/goodput_core.h"
#include "agent/core/majority_core.h"
#include "agent/core/membership_core.h"
#include "agent/core/mpi_core.h"
#include "agent/core/node_job.h"
#include "agent/core/teardown_core.h"
#include "agent/core/workers_core.h"
#include "base/deadline.h"
#include "base/error.h"

namespace dslaunch {

struct AgentCoreOptions {
  // Enables bugs, so that tests can check that the simulator finds them. With
  // `plant_early_drained`, a node reports that it has drained before its supervisor has reaped the
  // ranks.
  bool plant_early_drained = false;
  MajorityCore::PlantedBugs plant_majority = {};
};

// The state of a node's agent. For each event, the caller calls one OnX function of this class or
// of a component, and then Take(). Used by one thread, except for functions that are marked
// thread-safe.
class AgentCore {
 public:
  // Begins the first lease at `now`; its holder is a front end that has not prepared a job yet.
  AgentCore(const AgentCoreOptions& options, BootClock::time_point now);

  NodeJob& job() { return job_; }
  FrontEndCore& front_end() { return front_end_; }
  WorkersCore& workers() { return workers_; }
  MpiCore& mpi() { return mpi_; }
  MajorityCore& majority() { return majority_; }
  MembershipCore& membership() { return membership_; }
  TeardownCore& teardown() { return teardown_; }
  GoodputCore& goodput() { return goodput_; }
  const NodeJob& job() const { return job_; }
  const WorkersCore& workers() const { return workers_; }

  // Removes and returns the actions that follow from the last event, in order.
  AgentActions Take(Clock::time_point now);

  // --- Events of the front end ---

  // Starts this node's part of the job, because this node is ready for the job. Precondition:
  // job().OnPrepare has succeeded, the machine has everything that the job needs, and the
  // rendezvous is open if this node hosts it.
  void OnPrepared();
  void OnStop(pb::Cause cause, bool kill_now);
  // Continues the job without its front end. Viewers attach at `socket_path`.
  void OnDetach(const std::string& socket_path, Clock::time_point now,
                BootClock::time_point boot_now);
  // Returns the content of a heartbeat to the supervisor. Thread-safe.
  pb::AgentAlive Alive(BootClock::time_point now);

  // --- Events of the rendezvous, the supervisor and this machine ---

  void OnRendezvousMessage(const pb::RendezvousMessage& message, Clock::time_point now,
                           BootClock::time_point boot_now);
  void OnSupervisorEvent(const pb::SupervisorEvent& event, Clock::time_point now);
  // Handles the exit of the supervisor, which has closed its end of the socket.
  void OnSupervisorGone(Clock::time_point now);
  // Handles the evidence about a worker that has ended (WorkersCore::OnDescribed).
  void OnWorkerDescribed(const agent_action::DescribeWorker& asked, WorkerEnd end,
                         uint64_t round_trip_us, Clock::time_point now);
  // Handles the reserved port, or the error if no port could be reserved. `unfit` is the problem
  // that the node's check has found; empty if it found none.
  void OnPortReserved(const Result<uint32_t>& port, const std::string& unfit,
                      Clock::time_point now);
  // Records that all processes of the ranks have ended except `left`.
  void OnAllReaped(const TeardownCore::Left& left, Clock::time_point now);

  // --- Ticks ---

  // Checks leases, timeouts and due reports. `late` is the delay of this call. Precondition: called
  // every tick_interval().
  void OnTick(Clock::time_point now, BootClock::time_point boot_now, Clock::duration late);
  milliseconds tick_interval() const;

 private:
  // Moves actions from the outbox to actions_ and carries out the requests among them.
  void Settle(Clock::time_point now);
  void CarryOut(AgentRequest request, Clock::time_point now);
  void OnAssignment(const pb::RendezvousMessage& message, BootClock::time_point boot_now);
  void OnDrain(uint64_t attempt, const pb::Drain& drain);
  void DrainRanks();
  void Stop(const pb::Cause& cause, bool kill_now);

  const bool plant_early_drained_;
  AgentOutbox out_;
  AgentActions actions_;  // actions that Take() returns next
  NodeJob job_;
  FrontEndCore front_end_;
  WorkersCore workers_;
  MpiCore mpi_;
  MajorityCore majority_;
  MembershipCore membership_;
  TeardownCore teardown_;
  GoodputCore goodput_;
};

}  // namespace dslaunch
