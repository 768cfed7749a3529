// Opens the sockets at which a node's ranks look for their MPI server, before that server is
// started. Ranks with PMIx (Open MPI) use a loopback port. Each rank with PMI-1 (MPICH) uses a
// connection of its own, which the supervisor makes before it starts the rank.
#pragma once

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

enum class MpiProtocol { kPmi, kPmix };

// The settings of the loopback port for PMIx.
struct PmixPort {
  bool is_open = false;
  // Text that the first bytes of a client must contain, otherwise it does not count as a rank. If
  // empty, the server checks clients itself.
  std::string word = {};
};

// Waits for the first rank that looks for a server. Does not detect a rank that exits without
// looking for a server, or another user's program that connects to the port. Used on the loop's
// thread.
class MpiSockets : public std::enable_shared_from_this<MpiSockets> {
 public:
  // Opens the sockets; the sockets of PMI-1 are files in `folder`. Calls `on_use` once, not from
  // within Open(), when a rank first looks for a server. Fails with kIo.
  static Result<std::shared_ptr<MpiSockets>> Open(asio::io_context& loop, const std::string& folder,
                                                  uint32_t ranks, PmixPort pmix,
                                                  std::function<void(MpiProtocol)> on_use);

  // Returns the port for PMIx; 0 if it is not open.
  int pmix_port() const;
  const std::string& pmi_path(uint32_t local_rank) const;

  struct PmiSocket {
    UniqueFd fd;                // invalid if the rank has closed its connection
    bool is_connected = false;  // false if `fd` listens for the rank's connection
  };
  struct Released {
    UniqueFd pmix_listener;  // invalid if the port for PMIx is not open
    std::vector<PmiSocket> pmi;
  };
  // Returns the sockets, for use by the server. on_use is not called afterwards.
  Released Release();

 private:
  struct Rank;
  MpiSockets(asio::io_context& loop, PmixPort pmix, std::function<void(MpiProtocol)> on_use);
  Result<void> OpenPmix();
  Result<void> OpenPmi(const std::string& folder);
  void AwaitPmix();
  void OnPmixConnection();
  struct PmixClient;
  void AwaitRequest(const std::shared_ptr<PmixClient>& client);
  void AwaitConnection(const std::shared_ptr<Rank>& rank);
  void AwaitFirstByte(const std::shared_ptr<Rank>& rank);
  void OnUse(MpiProtocol protocol);

  asio::io_context& loop_;
  std::function<void(MpiProtocol)> on_use_;  // callback of Open(); nullptr once it was called
  const std::string word_;
  asio::ip::tcp::acceptor pmix_;
  std::vector<std::shared_ptr<Rank>> ranks_;  // sockets of each rank, indexed by local rank
};

}  // namespace dslaunch
