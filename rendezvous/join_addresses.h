// Checks the addresses in a node's Join, which become MASTER_ADDR, against the node's connection.
#pragma once

#include <string>
#include <vector>

#include "net/acceptor.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

// Replaces the two addresses in `join` by the addresses of the node's connection: the node's own
// address, and the address at which the node reached this machine. Keeps the latter if it equals
// `advertised_address` (empty for none), which may differ from all addresses of this machine.
// Changes nothing for the agent of this process, which has no connection and is trusted. Returns a
// line for the log for each replaced address.
std::vector<std::string> CorrectAddresses(pb::Join& join, const AcceptedNode& node,
                                          const std::string& advertised_address);

}  // namespace dslaunch
