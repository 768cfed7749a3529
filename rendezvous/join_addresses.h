// MASTER_ADDR is made from the addresses in a node's Join. What a node claims there is checked by
// the connection that it came by.
#pragma once

#include <string>
#include <vector>

#include "net/acceptor.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

// Puts the connection's own addresses in place of those that the node claims, but for
// `advertised_address` (may be empty), which it may have reached instead of one of this machine's.
// The agent of this process came by no connection, and is believed. Returns a line for the log for
// each address that was not so. Pure.
std::vector<std::string> CorrectAddresses(pb::Join& join, const AcceptedNode& node,
                                          const std::string& advertised_address);

}  // namespace dslaunch
