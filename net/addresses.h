// Finds the network addresses and interfaces of this machine and of other hosts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"

namespace dslaunch {

// Returns the numeric addresses at which other machines may reach this machine, IPv4 first.
// Excludes loopback and link-local addresses. If `network_interface` is not empty, returns only
// addresses of that interface.
std::vector<std::string> ReachableAddresses(const std::string& network_interface = "");

// A network interface other than loopback.
struct Interface {
  std::string name;
  bool up = false;
  std::vector<std::string> addresses;  // numeric addresses, excluding link-local addresses
};

// Returns the network interfaces of this machine except loopback, whether up or not; empty if the
// kernel does not list them.
std::vector<Interface> Interfaces();

// Returns the endpoint "address:port", such as "10.0.0.1:29500" for "10.0.0.1" or "[fe80::1]:29500"
// for "fe80::1".
std::string JoinHostPort(const std::string& address, int port);

// Returns the address of an endpoint that JoinHostPort() made, without brackets.
std::string HostOfEndpoint(const std::string& endpoint);

// Returns the port of an endpoint that JoinHostPort() made; 0 if the text has no port.
int PortOfEndpoint(const std::string& endpoint);

// Returns the numeric addresses of `host`: `host` itself if it is an address, otherwise the
// addresses that the system's `getent` reports. A statically linked program cannot resolve names
// itself. Empty if no address is found within `timeout`.
std::vector<std::string> FindAddresses(const std::string& host, milliseconds timeout);

// Returns whether the numeric `address` is a loopback address (127.0.0.0/8 or ::1).
bool IsLoopback(const std::string& address);

// Returns the numeric address of this machine from which the kernel would send to `address`; empty
// if there is no route. Sends nothing.
std::string LocalAddressTowards(const std::string& address);

// Returns the network interface that leads to `address`. If `address` belongs to this machine, this
// is the interface that has it; otherwise, the interface of the kernel's route. Returns nullopt if
// there is no route.
std::optional<std::string> InterfaceTowards(const std::string& address);

}  // namespace dslaunch
