// A node's name in its certificate; no real host has one like it.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch {

inline constexpr std::string_view kNodeHostPrefix = "node-";

inline std::string HostNameOfNode(uint32_t node_index, const std::string& job_id) {
  return std::string(kNodeHostPrefix) + std::to_string(node_index) + "." + job_id +
         ".dslaunch.invalid";
}

// nullopt: it is none of that job.
inline std::optional<uint32_t> NodeOfHostName(std::string_view host_name,
                                              const std::string& job_id) {
  if (!host_name.starts_with(kNodeHostPrefix)) return std::nullopt;
  uint32_t node_index = 0;
  std::from_chars(host_name.data() + kNodeHostPrefix.size(), host_name.data() + host_name.size(),
                  node_index);
  if (host_name != HostNameOfNode(node_index, job_id)) return std::nullopt;
  return node_index;
}

}  // namespace dslaunch
