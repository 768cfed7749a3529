// Checks how the ranks of a node use MPI in the current attempt. Once one rank of the job has
// called MPI_Init, every rank must call it, and must call MPI_Finalize before it ends, as mpirun
// requires. If a rank skips either call and exits with 0, other ranks would wait for it forever.
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

// Records the ranks' calls of MPI and reports violations as failures. A component of AgentCore.
class MpiCore {
 public:
  MpiCore(const NodeJob& job, const WorkersCore& workers, AgentOutbox& out)
      : job_(job), workers_(workers), out_(out) {}

  // Resets the records, because the ranks of another attempt are assigned.
  void OnAssignment() { attempt_ = {}; }
  // Records that ranks of another node use MPI.
  void OnBegun(Clock::time_point now);
  // Handles the failure of the MPI server that the ranks need. `why` is a sentence.
  void OnFailed(const std::string& why);
  // Handles a report of the MPI server about a rank, unasked or as an answer.
  void OnRank(const pb::PmixRank& known, Clock::time_point now);
  // Handles a call of MPI_Abort by a rank of this node. Kills the rank if it waits to be killed,
  // and stops the job if the code is 0. Otherwise the rank's exit code reports the failure later.
  void OnAbort(const pb::PmixAbort& aborted);
  // Delays the end of a rank that exited with 0 and asks the MPI server for the rank's last MPI
  // call. Returns false, so that the end counts at once, if the job does not use MPI, the rank
  // failed or was being stopped, or it called MPI_Abort.
  bool Holds(const pb::WorkerExited& exited, Clock::time_point now);
  // Requests the end of all delayed ranks without waiting for the server's answers.
  void EndHeld();
  void OnTick(Clock::time_point now);

  // Adds the consequences of the rank's use of MPI to the report of its end.
  void Amend(pb::WorkerExited& exited) const;
  void Amend(pb::WorkerEnded& ended) const;

 private:
  struct Held {
    pb::WorkerExited exited;
    Clock::time_point noticed;
  };
  struct Attempt {
    // Time of the first MPI_Init; nullopt if no rank uses MPI.
    std::optional<Clock::time_point> begun_at;
    // Whether ranks that did not call MPI_Init in time were reported.
    bool late_is_reported = false;
    std::set<uint32_t> joined;               // local ranks that have called MPI_Init
    std::map<uint32_t, int> aborts;          // exit codes of ranks to kill after MPI_Abort, by rank
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
