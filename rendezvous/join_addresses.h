// Checks the addresses in a node's Join, which become MASTER_ADDR, against the node's connection.
#pragma once

#include <string>
#include <vector>

#include "net/acceptor.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

// Replaces the addresses that the node claims in `join` by the addresses of its connection. Keeps a
// claimed address that equals `advertised_address` (may be empty), through which the node may have
// connected instead of an address of this machine. The agent of this process has no connection and
// is trusted. Returns a line for the log for each wrong address.
std::vector<std::string> CorrectAddresses(pb::Join& join, const AcceptedNode& node,
                                          const std::string& advertised_address);

}  // namespace dslaunch
