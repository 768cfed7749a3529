// Requests the status of NCCL's RAS subsystem, which reports on all ranks of a job. Each process
// that uses NCCL listens for such requests.
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

// The address at which the processes of a job listen for requests to NCCL's RAS.
struct RasAddress {
  std::string host = "127.0.0.1";  // numeric address of the RAS server
  int port = 28028;
};
// Returns the address in a value of NCCL_RAS_ADDR, "HOST:PORT" or "[HOST]:PORT"; the default
// address if `value` is empty. Returns nullopt if the host is neither "localhost" nor numeric, or
// if the port is invalid.
std::optional<RasAddress> ParseRasAddress(std::string_view value);

// Returns the address in NCCL_RAS_ADDR of the environment with which the process was started, as
// ParseRasAddress() does.
std::optional<RasAddress> RasAddressOf(pid_t pid);

// Requests the status of NCCL's RAS. Used on the loop's thread.
class RasClient {
 public:
  static constexpr milliseconds kLimit{3'000};

  // Receives the status: JSON, or text from NCCL before 2.28. If no status arrived, `status` is
  // empty and `trouble` is the reason.
  using Done = std::function<void(std::string status, std::string trouble)>;

  explicit RasClient(asio::io_context& loop) : loop_(loop) {}

  // Requests the status from the process that listens at `address`, and calls `done` once, never
  // from inside this call. `address` is nullopt if NCCL_RAS_ADDR is invalid; the request then
  // fails.
  void Begin(const std::optional<RasAddress>& address, Done done);

 private:
  struct Session;

  static void Ask(std::shared_ptr<Session> session);
  static void ReadStatus(std::shared_ptr<Session> session);

  asio::io_context& loop_;
};

}  // namespace dslaunch
