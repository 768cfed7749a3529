// How a new process on a node reaches the supervisor whose connection broke.
#pragma once

#include <string>

#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

// A Unix socket without a file (its name is in the kernel's abstract namespace), so that nothing is
// left of it, however its process ends. It does not block, and has its name, but takes no
// connection before ListenForResume. kInternal when it cannot be had.
Result<UniqueFd> MakeResumeSocket(const std::string& name);
void ListenForResume(int socket);

// The next connection of this user's process; closed when there is none. Other users' are refused.
UniqueFd AcceptResume(int listener);

// Connects to that socket. Closed when no process of this user listens.
UniqueFd ConnectToResume(const std::string& name);

// The agent's role `resume`: says hello, then passes bytes between its stdin and stdout and the
// supervisor that listens at `name`, until either ends. Its exit code: 0 when the supervisor has
// closed its end, which it does when it ends or lost interest.
int RunResume(const std::string& nonce, const std::string& build_id, const std::string& name);

}  // namespace dslaunch
