// Defines the name of a node in its certificate, in a form that no real host has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch {

// Returns the node's name. Every peer sees the certificate before it is authenticated, so the name
// contains only a digest of the job ID.
std::string HostNameOfNode(uint32_t node_index, const std::string& job_id);

// Returns the index of the node that has this name; nullopt if the name does not belong to this
// job.
std::optional<uint32_t> NodeOfHostName(std::string_view host_name, const std::string& job_id);

}  // namespace dslaunch
