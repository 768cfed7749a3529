#include "net/node_host_name.h"

#include <charconv>

#include "base/digest/sha256.h"
#include "base/text/hex.h"

namespace dslaunch {
namespace {

constexpr std::string_view kPrefix = "node-";
constexpr size_t kShownBytes = 8;  // number of the digest's bytes that the name contains

std::string DigestOf(const std::string& job_id) {
  return ToHex(Sha256Of(job_id).substr(0, kShownBytes));
}

}  // namespace

std::string HostNameOfNode(uint32_t node_index, const std::string& job_id) {
  return std::string(kPrefix) + std::to_string(node_index) + "." + DigestOf(job_id) +
         ".dslaunch.invalid";
}

std::optional<uint32_t> NodeOfHostName(std::string_view host_name, const std::string& job_id) {
  if (!host_name.starts_with(kPrefix)) return std::nullopt;
  uint32_t node_index = 0;
  std::from_chars(host_name.data() + kPrefix.size(), host_name.data() + host_name.size(),
                  node_index);
  if (host_name != HostNameOfNode(node_index, job_id)) return std::nullopt;
  return node_index;
}

}  // namespace dslaunch
