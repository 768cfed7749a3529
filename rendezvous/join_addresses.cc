#include "rendezvous/join_addresses.h"

#include "base/text/sanitize.h"

namespace dslaunch {

std::vector<std::string> CorrectAddresses(pb::Join& join, const AcceptedNode& node,
                                          const std::string& advertised_address) {
  // A node without an address joined from this process, so it is trusted.
  if (node.address.empty()) return {};
  std::vector<std::string> lines;
  const auto report = [&](const std::string& claim, const std::string& used, const char* whose) {
    lines.push_back("node " + std::to_string(node.index) + " claims " + Quoted(claim) + " as " +
                    whose + " address; " + used + " is used");
  };
  if (join.address() != node.address) {
    report(join.address(), node.address, "its");
    join.set_address(node.address);
  }
  const bool is_advertised = !advertised_address.empty() && join.reached_at() == advertised_address;
  if (join.reached_at() != node.own_address && !is_advertised) {
    report(join.reached_at(), node.own_address, "this machine's");
    join.set_reached_at(node.own_address);
  }
  return lines;
}

}  // namespace dslaunch
