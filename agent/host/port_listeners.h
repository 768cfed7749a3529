// The users of programs that listen at a TCP port of this machine or are connected to it.
#pragma once

#include <sys/types.h>

#include <istream>
#include <optional>
#include <set>

namespace dslaunch {

// Returns the users who listen at `port`, from /proc/net/tcp or /proc/net/tcp6. The table begins
// with the listening sockets; reading stops after them, however many connections there are. Skips
// malformed lines.
std::set<uid_t> ListenersIn(std::istream& table, int port);

// Returns a user who is neither `own` nor root and therefore not part of `own`'s job.
std::optional<uid_t> StrangerAmong(const std::set<uid_t>& users, uid_t own);

// Returns the users who listen now at a port of this machine (this network namespace); empty if
// unknown. Queries the kernel for this port only, through sock_diag, which takes 0.03 ms, and falls
// back to ListenersByTables().
std::set<uid_t> ListenersAt(int port);

// Returns the same from both tables in /proc. Takes milliseconds even without a listener, because
// after the listeners the kernel searches its whole connection table to fill the read.
std::set<uid_t> ListenersByTables(int port);

// Returns the users of programs of this network namespace that are connected to `port` over IPv4
// now; nullopt if the kernel does not report them.
std::optional<std::set<uid_t>> ConnectedTo(int port);

}  // namespace dslaunch
