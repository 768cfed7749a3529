// Reaches nodes over SSH.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/transport/agent_binary.h"
#include "cli/transport/agent_role.h"
#include "cli/transport/login_gate.h"
#include "cli/transport/ssh_pump.h"
#include "cli/transport/ssh_session.h"
#include "cli/transport/ssh_stream.h"
#include "cli/transport/transport.h"

namespace dslaunch {

// A command on a node with a stream to its stdin and stdout. A thread of its own logs in, Open's
// caller starts it, and from then on SshLoop's carries its bytes.
class SshLink : public NodeLink {
 public:
  // What its stream is for: anybody, by TakeFd, or somebody on SshLoop, by TakeEnd.
  enum class Use { kSocket, kOnLoop };

  // Starts the command over a logged-in session, by the deadline.
  using StartFn = std::function<Result<std::unique_ptr<SshStream>>(
      SshSession&, TailBuffer& stderr_tail, Deadline)>;

  // Blocks until `deadline`, extended by what the attempt grants itself. `outer` is of the
  // connection that leads through this one; it must outlive the link, and its own deadline must
  // bound the wait.
  static Result<std::unique_ptr<SshLink>> Open(const NodeTarget& target, const SshOptions& options,
                                               const StartFn& start, Deadline deadline,
                                               SshControl* outer = nullptr, Use use = Use::kSocket);

  // Closes the connection at once; the node's supervisor sees end of file.
  ~SshLink() override;

  UniqueFd TakeFd() override;
  std::unique_ptr<StreamEnd> TakeEnd();
  void Abort(const std::string& why) override;
  bool WaitEnd(Deadline deadline) override;
  std::string StderrTail() const override;
  std::string Address() const override;

  // How the command ended; absent while it runs.
  std::optional<PumpEnd> End() const;

 private:
  struct State;
  explicit SshLink(std::shared_ptr<State> state);
  void Pump(std::unique_ptr<SshSession> session, std::unique_ptr<SshStream> stream);

  const std::shared_ptr<State> state_;
};

// The options with --ssh_command's program, found in PATH; without, where that is empty. kUsage
// when there is no such program.
Result<SshOptions> MakeSshOptions(const std::vector<std::string>& ssh_command);

// With options.command by CommandTransport; likewise by the system's ssh where a login fails that
// this may manage (SshOptions::unsupported), which the link notes. Links of jobs are
// ResumableLinks. Thread-safe.
class SshTransport : public Transport {
 public:
  explicit SshTransport(AgentBinary agent, SshOptions options = {}, AgentRole role = {})
      : agent_(std::move(agent)), options_(std::move(options)), role_(std::move(role)) {}

  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline deadline) override;
  size_t ConnectsAtOnce() const override { return LoginGate::kInTotal; }

 private:
  AgentRole Role() const;
  // By a program of this machine; `words` as SshNodeCommand's.
  Result<std::unique_ptr<NodeLink>> ConnectByProgram(std::vector<std::string> words,
                                                     const std::string& notice,
                                                     const NodeTarget& target,
                                                     Deadline deadline) const;

  const AgentBinary agent_;
  const SshOptions options_;
  const AgentRole role_;
};

}  // namespace dslaunch
