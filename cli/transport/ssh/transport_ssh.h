// Implements the transport that reaches nodes over SSH.
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
#include "cli/transport/ssh/ssh_pump.h"
#include "cli/transport/ssh/ssh_session.h"
#include "cli/transport/ssh/ssh_stream.h"
#include "cli/transport/transport.h"

namespace dslaunch {

// A link to a command on a node, with a stream to its stdin and stdout. A separate thread logs in,
// the caller of Open starts the command, and SshLoop's thread transfers its bytes from then on.
class SshLink : public NodeLink {
 public:
  // Selects the user of the stream: any caller, through TakeFd, or code on SshLoop, through
  // TakeEnd.
  enum class Use { kSocket, kOnLoop };

  // Starts the command over a logged-in session before the deadline.
  using StartFn = std::function<Result<std::unique_ptr<SshStream>>(
      SshSession&, TailBuffer& stderr_tail, Deadline)>;

  // Logs in and starts the command. Blocks until `deadline` at most, extended by the attempt's
  // grants. `outer` belongs to the connection that leads through this link; it must outlive the
  // link, and its deadline must bound the wait.
  static Result<std::unique_ptr<SshLink>> Open(const NodeTarget& target, const SshOptions& options,
                                               const StartFn& start, Deadline deadline,
                                               SshControl* outer = nullptr, Use use = Use::kSocket);

  // Closes the connection at once; the node's supervisor then reads end of file.
  ~SshLink() override;

  UniqueFd TakeFd() override;

  // Returns the end of the command's stream for code on SshLoop's thread. Call it once.
  // Precondition: the link was opened with Use::kOnLoop.
  std::unique_ptr<StreamEnd> TakeEnd();
  void Abort(const std::string& why) override;
  bool WaitEnd(Deadline deadline) override;
  std::string StderrTail() const override;
  std::string Address() const override;

  // Returns how the command ended; nullopt while the command runs.
  std::optional<PumpEnd> End() const;

 private:
  struct State;
  explicit SshLink(std::shared_ptr<State> state);
  void Pump(std::unique_ptr<SshSession> session, std::unique_ptr<SshStream> stream);

  const std::shared_ptr<State> state_;
};

// Returns options with the program of --ssh_command, looked up in PATH; default options if
// `ssh_command` is empty. Returns kUsage if the program does not exist.
Result<SshOptions> MakeSshOptions(const std::vector<std::string>& ssh_command);

// Reaches nodes with SshSession, or with CommandTransport if options.command is set. If a login
// fails that the system's ssh may support (SshOptions::unsupported), retries with that program and
// puts a notice in the link. Links of jobs are ResumableLinks. Thread-safe.
class SshTransport : public Transport {
 public:
  explicit SshTransport(AgentBinary agent, SshOptions options = {}, AgentRole role = {})
      : agent_(std::move(agent)), options_(std::move(options)), role_(std::move(role)) {}

  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target, Deadline deadline) override;
  size_t ConnectsAtOnce() const override { return LoginGate::kInTotal; }

 private:
  AgentRole Role() const;

  // Connects with a program on this machine. `words` are the absolute path of ssh, or of a program
  // with the same command line, and its options.
  Result<std::unique_ptr<NodeLink>> ConnectByProgram(std::vector<std::string> words,
                                                     const std::string& notice,
                                                     const NodeTarget& target,
                                                     Deadline deadline) const;

  const AgentBinary agent_;
  const SshOptions options_;
  const AgentRole role_;
};

}  // namespace dslaunch
