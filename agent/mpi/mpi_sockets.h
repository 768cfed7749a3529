// Where the ranks of a node look for their MPI server before it is started: a port of loopback for
// PMIx (Open MPI), and a connection for each rank for PMI-1 (MPICH), which the supervisor makes
// before it starts the rank.
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

// How ranks that speak PMIx are served.
struct PmixPort {
  bool is_open = false;
  // What a client sends first has this in it, before it counts as one; empty: the server finds out
  // who connects.
  std::string word = {};
};

// On the loop's thread. A rank that ends without looking for a server is not noticed, nor is
// another user's program that connects to the port.
class MpiSockets : public std::enable_shared_from_this<MpiSockets> {
 public:
  // `folder`: of the sockets for PMI-1. `on_use`: called once, and not from within Open, when a
  // rank first looks for a server. kIo.
  static Result<std::shared_ptr<MpiSockets>> Open(asio::io_context& loop, const std::string& folder,
                                                  uint32_t ranks, PmixPort pmix,
                                                  std::function<void(MpiProtocol)> on_use);

  int pmix_port() const;  // 0 if there is none
  const std::string& pmi_path(uint32_t local_rank) const;

  struct PmiSocket {
    UniqueFd fd;                // invalid if the rank has closed its connection
    bool is_connected = false;  // else it listens for the rank's connection
  };
  struct Released {
    UniqueFd pmix_listener;  // invalid if there is none
    std::vector<PmiSocket> pmi;
  };
  // Hands the sockets to the server. on_use is not called any more.
  Released Release();

 private:
  struct Rank;
  MpiSockets(asio::io_context& loop, PmixPort pmix, std::function<void(MpiProtocol)> on_use);
  Result<void> OpenPmix();
  Result<void> OpenPmi(const std::string& folder);
  void AwaitPmix();
  void OnPmixConnection();
  struct PmixClient;
  void AwaitWord(const std::shared_ptr<PmixClient>& client);
  void AwaitConnection(const std::shared_ptr<Rank>& rank);
  void AwaitFirstByte(const std::shared_ptr<Rank>& rank);
  void OnUse(MpiProtocol protocol);

  asio::io_context& loop_;
  std::function<void(MpiProtocol)> on_use_;  // null once it was called
  const std::string word_;
  asio::ip::tcp::acceptor pmix_;
  std::vector<std::shared_ptr<Rank>> ranks_;  // by local rank
};

}  // namespace dslaunch
