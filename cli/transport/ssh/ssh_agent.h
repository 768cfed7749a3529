// Selects keys of the user's ssh-agent. libssh 0.10 would offer all keys in the agent's order. With
// more than MaxAuthTries keys, the server might close the connection before the key that ssh_config
// names is tried.
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
  std::string blob;     // public key in wire format
  std::string comment;  // name of the key in messages
};

// Returns `keys` in the order in which `ssh` offers them: first the keys of ssh_config's identity
// files, whose public key blobs are `listed`, then the other keys. Omits the other keys if
// `listed_only` (IdentitiesOnly) is set. Has no side effects.
std::vector<AgentKey> ChooseAgentKeys(std::vector<AgentKey> keys,
                                      const std::vector<std::string>& listed, bool listed_only);

// Parses the agent protocol's list of keys, without the length prefix. Returns an empty list if
// `answer` is malformed. Has no side effects.
std::vector<AgentKey> ParseAgentKeys(std::string_view answer);

// Connects to the ssh-agent at `socket_path`. Returns an invalid descriptor if no agent listens
// there.
UniqueFd ConnectAgent(const std::string& socket_path);

// Returns the keys that the agent holds. Returns kUnavailable, with a fragment of a sentence, if
// the agent does not answer by the deadline.
Result<std::vector<AgentKey>> ListAgentKeys(int agent_fd, Deadline deadline);

// Acts as an ssh-agent for libssh that offers only `keys` and forwards signing requests to the real
// agent. Serves on a separate thread, because libssh blocks on the answers, and ends at `deadline`
// at the latest.
class AgentRelay {
 public:
  AgentRelay(UniqueFd agent, std::vector<AgentKey> keys, Deadline deadline);
  AgentRelay(const AgentRelay&) = delete;
  AgentRelay& operator=(const AgentRelay&) = delete;
  ~AgentRelay();

  // Returns the end of the socket pair that libssh uses. Call it once.
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
