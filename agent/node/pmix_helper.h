// A node's server of MPI ranks (agent/pmix), a process of its own: dslaunch-pmix, or the agent's
// own program.
#pragma once

#include <asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/host/program.h"
#include "base/error.h"
#include "proto/pmix.pb.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

struct PmixHelperOptions {
  bool is_own_program = false;  // the agent's own, for MPICH's ranks alone; else dslaunch-pmix:
  std::string server;           // its bytes; or empty:
  std::string server_path;      // where it is, absolute
  pb::PmixJob job;              // but for `folder`
  Environment environment;      // of the node's programs
  std::string log_path;         // for what it prints; absolute
};

// On the loop's thread. Its process ends, and its folder is removed, when this is
// destroyed, or with the agent.
class PmixHelper {
 public:
  // None is called from within Start.
  struct Handlers {
    // Once: what each rank needs in its environment, or a sentence about why there is no server.
    std::function<void(Result<pb::PmixClients>)> on_started;
    // Once, if the process ends after it has started.
    std::function<void(const std::string& why)> on_lost;
    // A rank has called MPI_Abort; it ends next.
    std::function<void(const pb::PmixAbort& aborted)> on_aborted;
  };

  static Result<std::unique_ptr<PmixHelper>> Start(asio::io_context& loop,
                                                   PmixHelperOptions options, Handlers handlers);
  ~PmixHelper();

 private:
  class Process;
  explicit PmixHelper(std::shared_ptr<Process> process) : process_(std::move(process)) {}

  std::shared_ptr<Process> process_;
};

// What its server may send now. `has_started`: it has sent how ranks start. `ranks`: of this node.
// kBadInput: no server sends this. Pure.
Result<void> CheckPmixReport(const pb::PmixReport& report, bool has_started, uint32_t ranks);

// The job as the server of one member takes it. Names of nodes that PMIx cannot take, or that are
// not different, are replaced. Error kInternal: the assignment does not fit the nodes. Pure.
Result<pb::PmixJob> MakePmixJob(const std::string& job_id, uint64_t attempt,
                                const pb::Assignment& assignment,
                                const std::vector<pb::Node>& members);

}  // namespace dslaunch
