// Implements the front end's side of a relay (proto/relay.proto).
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "cli/transport/loop_thread.h"
#include "cli/transport/running_program.h"
#include "cli/transport/transport.h"
#include "proto/relay.grpc.pb.h"
#include "proto/wire/open_calls.h"

namespace dslaunch {

// Starts programs on the relay's node. The programs share the client; destroying the client ends
// the relay and the programs that it runs. Thread-safe.
class RelayClient : public ProgramStarter, public std::enable_shared_from_this<RelayClient> {
 public:
  // Prepares to start programs over `link`, which must lead to an agent in the role kRelay on the
  // node `node`.
  RelayClient(std::string node, std::unique_ptr<NodeLink> link, std::shared_ptr<LoopThread> loop);
  ~RelayClient() override;

  Result<std::unique_ptr<RunningProgram>> Start(const std::vector<std::string>& argv) override;
  Result<std::unique_ptr<RunningProgram>> StartReadingAgent(
      const std::vector<std::string>& argv) override;
  // Starts the agent itself on the relay's node. The agent is never killed; it ends when its stdin
  // ends.
  Result<std::unique_ptr<RunningProgram>> StartAgent(const std::vector<std::string>& arguments);

  std::string Where() const override { return " on " + node_; }
  const NodeLink& link() const { return *link_; }

  // Returns whether the relay can be used; false once a program was lost with the connection.
  bool is_alive() const { return !is_broken_->load(); }

  // Ends the relay unless it still runs programs, and waits for its end. Returns false if the
  // deadline passed first.
  bool EndIfIdle(Deadline deadline);

 private:
  class Call;
  class Program;

  Result<std::unique_ptr<RunningProgram>> Run(pb::ProgramStart start);

  const std::string node_;
  const std::unique_ptr<NodeLink> link_;
  const std::shared_ptr<LoopThread> loop_;
  UniqueFd stream_;  // duplicate of the link's stream, used to shut the stream down
  std::unique_ptr<pb::Relay::Stub> stub_;
  const std::shared_ptr<std::atomic<bool>> is_broken_ = std::make_shared<std::atomic<bool>>(false);
  const std::shared_ptr<std::atomic<int>> num_running_ = std::make_shared<std::atomic<int>>(0);
  OpenCalls calls_;
};

}  // namespace dslaunch
