// A node's server of MPI ranks (agent/pmix), a process of its own: dslaunch-pmix, or the agent's
// own program. It starts when a rank looks for it, so that programs without MPI do not pay for it.
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
  // dslaunch-pmix, the program itself; empty: the agent's own program serves ranks that speak
  // PMI-1. Lives as long as the helper.
  std::string_view program;
  // Without `program`: why ranks that speak PMIx fail; empty: they do not look for a server.
  std::string no_pmix;
  pb::PmixJob job;          // as MakePmixJob makes it, with `rank_socket`
  Environment environment;  // of the node's programs
  std::string log_path;     // for what the server prints; absolute
};

// On the loop's thread. The server ends, and its folder is removed, when this is destroyed, or with
// the agent.
class PmixHelper {
 public:
  // None is called from within Open, Begin or Ask.
  struct Handlers {
    // Once: there is no server for the ranks that look for it. `why`: a sentence.
    std::function<void(const std::string& why)> on_failed;
    // A rank has called MPI_Abort; it ends next.
    std::function<void(const pb::PmixAbort& aborted)> on_aborted;
    // What is known of a rank has changed, or was asked for.
    std::function<void(const pb::PmixRank& rank)> on_rank;
  };

  // What a rank needs to find the server.
  struct Client {
    std::vector<std::string> environment;  // NAME=VALUE
    std::string pmi_path;                  // absolute; a connection to it is the rank's PMI_FD
  };

  // Opens the sockets where ranks look for the server. kIo, kInternal.
  static Result<std::unique_ptr<PmixHelper>> Open(asio::io_context& loop, PmixHelperOptions options,
                                                  Handlers handlers);
  ~PmixHelper();

  const std::vector<Client>& clients() const;  // by local rank
  // Starts the server if no rank has: ranks of another node use MPI.
  void Begin();
  // Answer: on_rank. Precondition: the server was started.
  void Ask(uint32_t local_rank);

 private:
  class Process;
  explicit PmixHelper(std::shared_ptr<Process> process) : process_(std::move(process)) {}

  std::shared_ptr<Process> process_;
};

// Returns kBadInput if no server sends `report` now. `has_started`: it has reported that it has.
// `ranks`: number of this node's. Pure.
Result<void> CheckPmixReport(const pb::PmixReport& report, bool has_started, uint32_t ranks);

}  // namespace dslaunch
