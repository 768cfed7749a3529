// The keys of the user's ssh-agent, of which libssh 0.10 would offer all, in the agent's order:
// with more than MaxAuthTries of them the one that ssh_config names is never reached.
#pragma once

#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

struct AgentKey {
  std::string blob;     // the public key as it travels
  std::string comment;  // for messages
};

// As `ssh` offers them: first those that ssh_config's identity files name, in their order, then the
// others, unless `listed_only` (IdentitiesOnly). `listed` are public key blobs. Pure.
std::vector<AgentKey> ChooseAgentKeys(std::vector<AgentKey> keys,
                                      const std::vector<std::string>& listed, bool listed_only);

// The agent protocol's list of keys, without its length. Pure. Empty, also when it is malformed.
std::vector<AgentKey> ParseAgentKeys(std::string_view answer);

// A connection to an agent; invalid when nothing listens there.
UniqueFd ConnectAgent(const std::string& socket_path);

// kUnavailable, a fragment of a sentence, when the agent does not answer.
Result<std::vector<AgentKey>> ListAgentKeys(int agent_fd, Deadline deadline);

// An agent for libssh that has `keys` only and lets the real one sign with them. A thread of its
// own serves it, since libssh asks and waits. Ends with `deadline` at the latest.
class AgentRelay {
 public:
  AgentRelay(UniqueFd agent, std::vector<AgentKey> keys, Deadline deadline);
  AgentRelay(const AgentRelay&) = delete;
  AgentRelay& operator=(const AgentRelay&) = delete;
  ~AgentRelay();

  // libssh's end. Once.
  UniqueFd TakeFd() { return std::move(theirs_); }

 private:
  void Serve();

  const UniqueFd agent_;
  const std::vector<AgentKey> keys_;
  const Deadline deadline_;
  UniqueFd ours_;
  UniqueFd theirs_;
  std::thread thread_;
};

}  // namespace dslaunch
