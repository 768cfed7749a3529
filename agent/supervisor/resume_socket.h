// Connects a new process on a node to a supervisor whose connection to the front end has broken.
#pragma once

#include <string>

#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

// Returns a Unix socket with a name in the kernel's abstract namespace, so that no file is left,
// however its process ends. The socket is non-blocking and bound, but accepts no connection before
// ListenForResume(). Fails with kInternal.
Result<UniqueFd> MakeResumeSocket(const std::string& name);
void ListenForResume(int socket);

// Returns the next connection from a process of this user; an invalid descriptor if there is none.
// Closes connections of other users.
UniqueFd AcceptResume(int listener);

// Returns a connection to the socket with that name; an invalid descriptor if no process of this
// user listens.
UniqueFd ConnectToResume(const std::string& name);

// Implements the agent's mode `resume`: writes the hello line, with which every stream of an agent
// begins. Then passes bytes between its stdin and stdout and the supervisor that listens at `name`,
// until either ends. Returns the exit code, which is 0 if the supervisor closed the connection. The
// supervisor closes it at its own end, or when it no longer needs the connection.
int RunResume(const std::string& nonce, const std::string& build_id, const std::string& name);

}  // namespace dslaunch
