// Selects keys of the user's ssh-agent. libssh 0.10 would offer all keys in the agent's order, so
// with more than MaxAuthTries keys the one that ssh_config names might never be tried.
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
  std::string blob;     // the public key in wire format
  std::string comment;  // name of the key in messages
};

// Returns the keys in the order in which `ssh` offers them: first the keys of ssh_config's identity
// files, then the others unless `listed_only` (IdentitiesOnly) is set. `listed` are public key
// blobs. Pure.
std::vector<AgentKey> ChooseAgentKeys(std::vector<AgentKey> keys,
                                      const std::vector<std::string>& listed, bool listed_only);

// Parses the agent protocol's list of keys, without its length. Returns an empty list if it is
// malformed. Pure.
std::vector<AgentKey> ParseAgentKeys(std::string_view answer);

// Connects to an agent; returns an invalid descriptor if none listens.
UniqueFd ConnectAgent(const std::string& socket_path);

// Returns kUnavailable, with a fragment of a sentence, if the agent does not answer.
Result<std::vector<AgentKey>> ListAgentKeys(int agent_fd, Deadline deadline);

// An agent for libssh that offers only `keys` and forwards requests to sign to the real agent. A
// separate thread serves it, because libssh blocks on its answers. Ends at `deadline` at the
// latest.
class AgentRelay {
 public:
  AgentRelay(UniqueFd agent, std::vector<AgentKey> keys, Deadline deadline);
  AgentRelay(const AgentRelay&) = delete;
  AgentRelay& operator=(const AgentRelay&) = delete;
  ~AgentRelay();

  // Returns libssh's end. Call it once.
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
