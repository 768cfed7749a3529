// A node's ranks that use MPI in the current attempt. Every rank of the job has to call MPI_Init
// once one has, and MPI_Finalize before it ends, as mpirun demands: other ranks would wait without
// end for a rank that skips either and ends with 0.
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

// See AgentCore for what all parts have in common.
class MpiCore {
 public:
  MpiCore(const NodeJob& job, const WorkersCore& workers, AgentOutbox& out)
      : job_(job), workers_(workers), out_(out) {}

  // The ranks of another attempt are assigned.
  void OnAssignment() { attempt_ = {}; }
  // Ranks of another node use MPI.
  void OnBegun(Clock::time_point now);
  // The ranks that use MPI have no server. `why`: a sentence.
  void OnFailed(const std::string& why);
  // The MPI server reports what a rank did, by itself or as an answer.
  void OnRank(const pb::PmixRank& known, Clock::time_point now);
  // A rank of this node has called MPI_Abort. Its exit code reports the rest, unless that is 0 or
  // the rank waits to be killed.
  void OnAbort(const pb::PmixAbort& aborted);
  // Asks the server about a rank that ended well, if what it did last may be known to the server
  // alone. Returns false if there is nothing to ask.
  bool Holds(const pb::WorkerExited& exited, Clock::time_point now);
  // Asks to end the ranks that are held, without an answer of the server.
  void EndHeld();
  void OnTick(Clock::time_point now);

  // Replaces the end of a rank by what MPI makes of it.
  void Amend(pb::WorkerExited& exited) const;
  void Amend(pb::WorkerEnded& ended) const;

 private:
  struct Held {
    pb::WorkerExited exited;
    Clock::time_point noticed;
  };
  struct Attempt {
    std::optional<Clock::time_point> begun_at;  // nullopt: no rank uses MPI
    bool late_is_reported = false;              // ranks that have not called MPI_Init
    std::set<uint32_t> joined;                  // local ranks that have called MPI_Init
    std::map<uint32_t, int> aborts;  // exit codes of ranks that are killed after MPI_Abort, by rank
    std::map<uint32_t, std::string> faults;  // evidence against ranks that ended with 0, by rank
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
