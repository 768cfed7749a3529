// Asks NCCL's RAS subsystem, at which each process of a job that uses NCCL listens, for its status.
#pragma once

#include <sys/types.h>

#include <asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.h"

namespace dslaunch {

// Where the processes of a job listen for NCCL's RAS.
struct RasAddress {
  std::string host = "127.0.0.1";  // numeric
  int port = 28028;
};
// Returns the address in the value of NCCL_RAS_ADDR, "HOST:PORT" or "[HOST]:PORT"; empty: the
// default. nullopt if the host is neither "localhost" nor numeric, or the port is invalid. Pure.
std::optional<RasAddress> ParseRasAddress(std::string_view value);

// Returns ParseRasAddress of the variable in the environment with which a process was started.
std::optional<RasAddress> RasAddressOf(pid_t pid);

// On the loop's thread.
class RasClient {
 public:
  static constexpr milliseconds kLimit{3'000};

  // `status`: JSON, or text from NCCL before 2.28; empty if none was received, with `trouble`.
  using Done = std::function<void(std::string status, std::string trouble)>;

  explicit RasClient(asio::io_context& loop) : loop_(loop) {}

  // Calls `done` once, never from inside this call. `address`: nullopt if it is not known.
  void Begin(const std::optional<RasAddress>& address, Done done);

 private:
  struct Session;

  static void Ask(std::shared_ptr<Session> session);
  static void ReadStatus(std::shared_ptr<Session> session);

  asio::io_context& loop_;
};

}  // namespace dslaunch
