// Runs a node's server for MPI ranks (agent/pmix) as a separate process: dslaunch-pmix, or the
// agent's own program. The process starts when a rank looks for the server, so programs without MPI
// do not pay for it.
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
  // Content of the program dslaunch-pmix, which must outlive the helper. If empty, the agent's own
  // program serves ranks that use PMI-1.
  std::string_view program;
  // Error for ranks that use PMIx if `program` is empty. If this error is empty too, these ranks
  // get no server address.
  std::string no_pmix;
  pb::PmixJob job;          // result of MakePmixJob(), with `rank_socket` set
  Environment environment;  // environment of the node's programs
  std::string log_path;     // absolute path of the file for the server's output
};

// Owns a node's server process. The server ends, and its folder is removed, when this object is
// destroyed or the agent exits. Used on the loop's thread.
class PmixHelper {
 public:
  // Callbacks for the server's reports. They are not called from within Open(), Begin() or Ask().
  struct Handlers {
    // Called once if ranks look for a server and there is none. `why` is a sentence.
    std::function<void(const std::string& why)> on_failed;
    // Called when a rank has called MPI_Abort and is about to exit.
    std::function<void(const pb::PmixAbort& aborted)> on_aborted;
    // Called when a rank's state has changed, and with the answer to Ask().
    std::function<void(const pb::PmixRank& rank)> on_rank;
  };

  // The settings by which a rank finds the server.
  struct Client {
    std::vector<std::string> environment;  // variables of the rank, as NAME=VALUE
    // Absolute path of the socket to which the rank's PMI_FD is connected.
    std::string pmi_path;
  };

  // Opens the sockets at which ranks look for the server. Fails with kIo or kInternal.
  static Result<std::unique_ptr<PmixHelper>> Open(asio::io_context& loop, PmixHelperOptions options,
                                                  Handlers handlers);
  ~PmixHelper();

  // Returns the settings of each rank, indexed by local rank.
  const std::vector<Client>& clients() const;
  // Starts the server unless a rank has caused its start, because ranks of another node use MPI.
  void Begin();
  // Requests a rank's state, which is passed to on_rank. Precondition: the server was started.
  void Ask(uint32_t local_rank);

 private:
  class Process;
  explicit PmixHelper(std::shared_ptr<Process> process) : process_(std::move(process)) {}

  std::shared_ptr<Process> process_;
};

// Fails with kBadInput if a server cannot send `report` in its current state. `has_started` is
// whether the server has reported its start, and `ranks` the number of this node's ranks. Pure.
Result<void> CheckPmixReport(const pb::PmixReport& report, bool has_started, uint32_t ranks);

}  // namespace dslaunch
