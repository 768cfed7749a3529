// Parses the states of GPUs in the output of nvidia-smi. All functions are pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/sample.pb.h"

namespace dslaunch {

// Number of queries for nvidia-smi, best first. A driver refuses a query with a field that it does
// not support, so each further query has other or fewer fields.
inline constexpr size_t kDeviceQueries = 3;

// Returns the value of --query-gpu for the query at index `query`, which must be below
// kDeviceQueries.
std::string DeviceQuery(size_t query);

// Returns the state in a line of `--format=csv,noheader,nounits` for DeviceQuery(query). Values
// that the device does not report, such as "[N/A]", and invalid numbers stay unset. Returns nullopt
// for a line that is not about a device, such as an error. Texts are sanitized.
std::optional<pb::DeviceSample> ParseDeviceLine(std::string_view line, size_t query);

// Returns whether nvidia-smi refused a query because of an unknown field.
bool IsUnknownField(std::string_view line);

// Returns the indices of the devices that match `name`, an element of CUDA_VISIBLE_DEVICES: an
// index, or the beginning of a UUID. Empty if no device matches.
std::vector<uint32_t> DevicesNamed(std::string_view name,
                                   const std::vector<pb::DeviceSample>& devices);

}  // namespace dslaunch
