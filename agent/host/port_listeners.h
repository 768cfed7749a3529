// Finds the users whose programs listen at a TCP port of this machine, or are connected to the
// port.
#pragma once

#include <sys/types.h>

#include <istream>
#include <optional>
#include <set>

namespace dslaunch {

// Returns the users who listen at `port`, from the text of /proc/net/tcp or /proc/net/tcp6. The
// table begins with the listening sockets and reading stops after them, so many connections cost no
// time. Skips malformed lines.
std::set<uid_t> ListenersIn(std::istream& table, int port);

// Returns a user who is neither `own` nor root, and is therefore not part of the job of `own`;
// nullopt if there is no such user.
std::optional<uid_t> StrangerAmong(const std::set<uid_t>& users, uid_t own);

// Returns the users who now listen at a port of this machine (this network namespace); empty if
// unknown. Queries the kernel for this port only, through sock_diag, which takes 0.03 ms. Calls
// ListenersByTables() if that fails.
std::set<uid_t> ListenersAt(int port);

// Returns the users who now listen at a port, from both tables in /proc. Takes milliseconds even
// without a listener, because after the listeners the kernel searches its whole connection table to
// fill the read.
std::set<uid_t> ListenersByTables(int port);

// Returns the users of programs in this network namespace that are now connected to `port` over
// IPv4; nullopt if the kernel does not report them.
std::optional<std::set<uid_t>> ConnectedTo(int port);

}  // namespace dslaunch
