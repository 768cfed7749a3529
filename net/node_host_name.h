// Defines a node's name in its certificate, in a form that no real host has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch {

// Returns the node's name. It contains only a digest of the job ID, because every peer sees the
// certificate before the peer is authenticated.
std::string HostNameOfNode(uint32_t node_index, const std::string& job_id);

// Returns the node's index; nullopt if the name does not belong to this job.
std::optional<uint32_t> NodeOfHostName(std::string_view host_name, const std::string& job_id);

}  // namespace dslaunch
