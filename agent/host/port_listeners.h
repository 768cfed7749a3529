// Which users' programs listen at a TCP port of this machine, or are connected to it.
#pragma once

#include <sys/types.h>

#include <istream>
#include <optional>
#include <set>

namespace dslaunch {

// By a table of the kernel's, /proc/net/tcp or /proc/net/tcp6. It has the sockets that listen
// first; nothing behind them is read, however many connections there are. Lines that are none of
// such a table are passed over.
std::set<uid_t> ListenersIn(std::istream& table, int port);

// Who of them is neither `own` nor root, and so no part of `own`'s job.
std::optional<uid_t> StrangerAmong(const std::set<uid_t>& users, uid_t own);

// Of this machine (this network namespace), now; empty where nothing tells. The kernel is asked for
// this port alone by sock_diag, which takes 0.03 ms. Where it has none: ListenersByTables.
std::set<uid_t> ListenersAt(int port);

// The same from both tables in /proc. Takes milliseconds even without a listener: after the
// listeners the kernel searches its whole table of connections for lines to fill the read.
std::set<uid_t> ListenersByTables(int port);

// Returns the users of the programs of this network namespace that are connected to `port` by IPv4,
// now. nullopt: the kernel cannot tell.
std::optional<std::set<uid_t>> ConnectedTo(int port);

}  // namespace dslaunch
