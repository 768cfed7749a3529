#include "net/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "base/os/brief_run.h"
#include "base/os/proc_text.h"
#include "base/os/subprocess.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

using InterfaceList = std::unique_ptr<ifaddrs, void (*)(ifaddrs*)>;

InterfaceList ListInterfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) list = nullptr;
  return InterfaceList(list, freeifaddrs);
}

socklen_t SizeOf(const sockaddr* address) {
  return address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

bool IsInternet(const sockaddr* address) {
  return address != nullptr && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

bool IsLinkLocal(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

std::string ToText(const sockaddr* address) {
  char text[NI_MAXHOST] = "";
  getnameinfo(address, SizeOf(address), text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

}  // namespace

std::vector<std::string> ReachableAddresses(const std::string& network_interface) {
  std::vector<std::string> v4, v6;
  const InterfaceList list = ListInterfaces();
  for (const ifaddrs* it = list.get(); it != nullptr; it = it->ifa_next) {
    if (!IsInternet(it->ifa_addr) || !(it->ifa_flags & IFF_UP) || (it->ifa_flags & IFF_LOOPBACK))
      continue;
    if (IsLinkLocal(it->ifa_addr)) continue;
    if (!network_interface.empty() && network_interface != it->ifa_name) continue;
    (it->ifa_addr->sa_family == AF_INET ? v4 : v6).push_back(ToText(it->ifa_addr));
  }
  v4.insert(v4.end(), v6.begin(), v6.end());
  return v4;
}

std::vector<Interface> Interfaces() {
  std::vector<Interface> interfaces;
  const InterfaceList list = ListInterfaces();
  for (const ifaddrs* it = list.get(); it != nullptr; it = it->ifa_next) {
    if ((it->ifa_flags & IFF_LOOPBACK) != 0) continue;
    auto known = std::ranges::find(interfaces, it->ifa_name, &Interface::name);
    if (known == interfaces.end())
      known = interfaces.insert(known, {it->ifa_name, (it->ifa_flags & IFF_UP) != 0, {}});
    if (IsInternet(it->ifa_addr) && !IsLinkLocal(it->ifa_addr))
      known->addresses.push_back(ToText(it->ifa_addr));
  }
  return interfaces;
}

std::string JoinHostPort(const std::string& address, int port) {
  const bool is_v6 = address.find(':') != std::string::npos;
  return (is_v6 ? "[" + address + "]" : address) + ":" + std::to_string(port);
}

std::string HostOfEndpoint(const std::string& endpoint) {
  std::string host = endpoint.substr(0, endpoint.rfind(':'));
  if (host.size() >= 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  return host;
}

int PortOfEndpoint(const std::string& endpoint) {
  const size_t colon = endpoint.rfind(':');
  return colon == std::string::npos ? 0 : std::atoi(endpoint.c_str() + colon + 1);
}

std::vector<std::string> FindAddresses(const std::string& host, milliseconds timeout) {
  in6_addr ignored{};
  if (inet_pton(AF_INET, host.c_str(), &ignored) == 1 ||
      inet_pton(AF_INET6, host.c_str(), &ignored) == 1)
    return {host};
  const std::string getent = FindProgram("getent");
  if (getent.empty() || host.starts_with('-')) return {};
  const BriefRun run =
      RunBriefly({getent, "ahosts", host}, CurrentEnvironment(), Deadline::After(timeout));
  if (run.end != BriefRun::End::kExited || run.number != 0) return {};
  std::vector<std::string> addresses;
  for (std::string_view rest = run.output; !rest.empty();) {
    std::string_view line = TakeLine(rest);
    std::string address(TakeWord(line));
    if (!address.empty() && std::ranges::find(addresses, address) == addresses.end())
      addresses.push_back(std::move(address));
  }
  return addresses;
}

bool IsLoopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

std::string LocalAddressTowards(const std::string& address) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), "9", &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> holder(found, freeaddrinfo);
  const UniqueFd fd(socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage local{};
  socklen_t size = sizeof local;
  if (!fd || connect(fd.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &size) != 0) {
    return "";
  }
  return ToText(reinterpret_cast<sockaddr*>(&local));
}

std::optional<std::string> InterfaceTowards(const std::string& address) {
  const std::string local = LocalAddressTowards(address);
  const InterfaceList list = ListInterfaces();
  for (const ifaddrs* it = list.get(); it != nullptr; it = it->ifa_next) {
    if (IsInternet(it->ifa_addr) && !local.empty() && ToText(it->ifa_addr) == local)
      return it->ifa_name;
  }
  return std::nullopt;
}

}  // namespace dslaunch
