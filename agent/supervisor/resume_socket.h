// Connects a new process on a node with a supervisor whose connection to the front end broke.
#pragma once

#include <string>

#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

// Creates a Unix socket with a name in the kernel's abstract namespace, so that no file is left
// however its process ends. It is non-blocking and bound, but accepts no connection before
// ListenForResume(). Fails with kInternal.
Result<UniqueFd> MakeResumeSocket(const std::string& name);
void ListenForResume(int socket);

// Returns the next connection from a process of this user, or a closed descriptor if there is none.
// Connections of other users are refused.
UniqueFd AcceptResume(int listener);

// Connects to that socket. Returns a closed descriptor if no process of this user listens.
UniqueFd ConnectToResume(const std::string& name);

// Runs the agent's role `resume`: writes the hello line, then passes bytes between its stdin and
// stdout and the supervisor that listens at `name`, until either ends. Returns the exit code: 0 if
// the supervisor closed the connection, which it does at its end or when it no longer needs the
// connection.
int RunResume(const std::string& nonce, const std::string& build_id, const std::string& name);

}  // namespace dslaunch
