// Connects a new process on a node to a supervisor whose connection to the front end has broken.
#pragma once

#include <string>

#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

// Creates a Unix socket with a name in the kernel's abstract namespace, so that no file is left
// however its process ends. The socket is non-blocking and bound, but accepts no connection before
// ListenForResume(). Fails with kInternal.
Result<UniqueFd> MakeResumeSocket(const std::string& name);
void ListenForResume(int socket);

// Returns the next connection from a process of this user; an invalid descriptor if there is none.
// Connections of other users are closed.
UniqueFd AcceptResume(int listener);

// Connects to the socket with that name. Returns an invalid descriptor if no process of this user
// listens.
UniqueFd ConnectToResume(const std::string& name);

// Runs the agent's role `resume`: writes the hello line, then passes bytes between its stdin and
// stdout and the supervisor that listens at `name`, until either ends. Returns the exit code, which
// is 0 if the supervisor closed the connection. The supervisor does that at its end, or when it no
// longer needs the connection.
int RunResume(const std::string& nonce, const std::string& build_id, const std::string& name);

}  // namespace dslaunch
