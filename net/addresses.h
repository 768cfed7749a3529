// This machine's network addresses, for the rendezvous and for the workers' own networks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"

namespace dslaunch {

// Numeric addresses at which other machines may reach this one, IPv4 first; no loopback, no
// link-local. Of one network interface, unless its name is empty.
std::vector<std::string> ReachableAddresses(const std::string& network_interface = "");

// A network interface, loopback left out.
struct Interface {
  std::string name;
  bool up = false;
  std::vector<std::string> addresses;  // numeric; no link-local ones
};
std::vector<Interface> Interfaces();

// "10.0.0.1" -> "10.0.0.1:29500", "fe80::1" -> "[fe80::1]:29500".
std::string JoinHostPort(const std::string& address, int port);

// The parts of JoinHostPort's result; the port is 0 where there is none.
std::string HostOfEndpoint(const std::string& endpoint);
int PortOfEndpoint(const std::string& endpoint);

// Returns the numeric addresses of `host`: itself if it is one, else those that the system's
// `getent` knows, which a statically linked program can ask. Empty if there are none in time.
std::vector<std::string> FindAddresses(const std::string& host, milliseconds timeout);

bool IsLoopback(const std::string& address);

// This machine's numeric address that the kernel would send from to `address`; nothing is sent.
// Empty when there is no way there.
std::string LocalAddressTowards(const std::string& address);

// The network interface that leads to `address`: the one that has it, or the one that the kernel's
// route takes.
std::optional<std::string> InterfaceTowards(const std::string& address);

}  // namespace dslaunch
