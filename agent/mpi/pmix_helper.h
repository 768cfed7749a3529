// Runs a node's server of MPI ranks (agent/pmix) as a separate process: dslaunch-pmix, or the
// agent's own program. It starts when a rank looks for it, so programs without MPI do not pay for
// it.
#pragma once

#include <asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/host/program.h"
#include "base/error.h"
#include "proto/pmix.pb.h"

namespace dslaunch {

struct PmixHelperOptions {
  // The content of the program dslaunch-pmix; empty: the agent's own program serves ranks that use
  // PMI-1. Must outlive the helper.
  std::string_view program;
  // Without `program`: the error for ranks that use PMIx; empty: they get no server address.
  std::string no_pmix;
  pb::PmixJob job;          // result of MakePmixJob(), with `rank_socket`
  Environment environment;  // environment of the node's programs
  std::string log_path;     // absolute path of the file for the server's output
};

// Used on the loop's thread. The server ends, and its folder is removed, when this object is
// destroyed or the agent exits.
class PmixHelper {
 public:
  // None is called from within Open(), Begin() or Ask().
  struct Handlers {
    // Called once if there is no server for ranks that look for one. `why` is a sentence.
    std::function<void(const std::string& why)> on_failed;
    // A rank has called MPI_Abort and will exit next.
    std::function<void(const pb::PmixAbort& aborted)> on_aborted;
    // A rank's state has changed, or is the answer to Ask().
    std::function<void(const pb::PmixRank& rank)> on_rank;
  };

  // The values by which a rank finds the server.
  struct Client {
    std::vector<std::string> environment;  // NAME=VALUE
    std::string pmi_path;                  // absolute path; the rank's PMI_FD is a connection to it
  };

  // Opens the sockets at which ranks look for the server. Fails with kIo or kInternal.
  static Result<std::unique_ptr<PmixHelper>> Open(asio::io_context& loop, PmixHelperOptions options,
                                                  Handlers handlers);
  ~PmixHelper();

  const std::vector<Client>& clients() const;  // indexed by local rank
  // Starts the server if no rank has done so, because ranks of another node use MPI.
  void Begin();
  // Requests a rank's state, which on_rank receives. Precondition: the server was started.
  void Ask(uint32_t local_rank);

 private:
  class Process;
  explicit PmixHelper(std::shared_ptr<Process> process) : process_(std::move(process)) {}

  std::shared_ptr<Process> process_;
};

// Returns kBadInput if a server cannot send `report` in its current state. `has_started`: it has
// reported its start. `ranks` is the number of this node's ranks. Pure.
Result<void> CheckPmixReport(const pb::PmixReport& report, bool has_started, uint32_t ranks);

}  // namespace dslaunch
