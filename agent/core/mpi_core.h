// Checks how the ranks of a node use MPI in the current attempt. Once one rank of the job has
// called MPI_Init, every rank must call it, and must call MPI_Finalize before it ends, as mpirun
// requires: if a rank skips either call and exits with 0, other ranks would wait for it forever.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "agent/core/agent_outbox.h"
#include "agent/core/node_job.h"
#include "agent/core/workers_core.h"
#include "base/deadline.h"
#include "proto/pmix.pb.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

// Records the ranks' calls of MPI and reports violations as failures. See AgentCore for the rules
// of all parts.
class MpiCore {
 public:
  MpiCore(const NodeJob& job, const WorkersCore& workers, AgentOutbox& out)
      : job_(job), workers_(workers), out_(out) {}

  // Called when the ranks of another attempt are assigned.
  void OnAssignment() { attempt_ = {}; }
  // Called when ranks of another node use MPI.
  void OnBegun(Clock::time_point now);
  // Called when the ranks that use MPI have no server. `why` is a sentence.
  void OnFailed(const std::string& why);
  // Called when the MPI server reports what a rank did, unasked or as an answer.
  void OnRank(const pb::PmixRank& known, Clock::time_point now);
  // Called when a rank of this node has called MPI_Abort. The rank's exit code reports the failure
  // later, unless the code is 0 or the rank waits to be killed.
  void OnAbort(const pb::PmixAbort& aborted);
  // Holds the end of a rank that exited with 0 and asks the MPI server what the rank did last.
  // Returns false if there is nothing to ask, so that the end counts at once.
  bool Holds(const pb::WorkerExited& exited, Clock::time_point now);
  // Requests the end of all held ranks without waiting for the server's answers.
  void EndHeld();
  void OnTick(Clock::time_point now);

  // Adds to the report of a rank's end what the rank's use of MPI implies.
  void Amend(pb::WorkerExited& exited) const;
  void Amend(pb::WorkerEnded& ended) const;

 private:
  struct Held {
    pb::WorkerExited exited;
    Clock::time_point noticed;
  };
  struct Attempt {
    std::optional<Clock::time_point> begun_at;  // nullopt if no rank uses MPI
    bool late_is_reported = false;              // true once ranks without MPI_Init were reported
    std::set<uint32_t> joined;                  // local ranks that have called MPI_Init
    std::map<uint32_t, int> aborts;  // exit codes of ranks that are killed after MPI_Abort, by rank
    std::map<uint32_t, std::string> faults;  // evidence against ranks that exited with 0, by rank
    std::map<uint32_t, Held> held;  // ranks that wait for the server's answer, by local rank
  };

  void Begin(Clock::time_point now);
  void ReportLate();

  const NodeJob& job_;
  const WorkersCore& workers_;
  AgentOutbox& out_;
  Attempt attempt_;
};

}  // namespace dslaunch
