// A node's name in its certificate; no real host has one like it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch {

// Has the job's id only as a digest: every peer sees the certificate before anything is
// known of him.
std::string HostNameOfNode(uint32_t node_index, const std::string& job_id);

// nullopt: it is none of that job.
std::optional<uint32_t> NodeOfHostName(std::string_view host_name, const std::string& job_id);

}  // namespace dslaunch
