// Asks NCCL's RAS subsystem, at which each process of a job that uses NCCL listens, for its status.
#pragma once

#include <asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/deadline.h"

namespace dslaunch {

inline constexpr int kRasPort = 28028;  // default of NCCL_RAS_ADDR

// On the loop's thread.
class RasClient {
 public:
  static constexpr milliseconds kLimit{3'000};

  // `status`: JSON, or text from NCCL before 2.28; empty if none was received, with `trouble`.
  using Done = std::function<void(std::string status, std::string trouble)>;

  // `port` of this machine.
  explicit RasClient(asio::io_context& loop, int port = kRasPort) : loop_(loop), port_(port) {}

  // Calls `done` once, never from inside this call.
  void Begin(Done done);

 private:
  struct Session;

  static void Ask(std::shared_ptr<Session> session);
  static void ReadStatus(std::shared_ptr<Session> session);

  asio::io_context& loop_;
  const int port_;
};

}  // namespace dslaunch
