// Parses the states of GPUs as nvidia-smi prints them. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/sample.pb.h"

namespace dslaunch {

// Number of queries for nvidia-smi, of which the first is the best. An older driver does not know
// all names of the first query, and then refuses the whole query.
inline constexpr size_t kDeviceQueries = 3;

// Returns the value of --query-gpu for the query at index `query`, below kDeviceQueries.
std::string DeviceQuery(size_t query);

// Parses a line of `--format=csv,noheader,nounits` for DeviceQuery(query). Values that the device
// does not report, such as "[N/A]", and invalid numbers are left unset. Returns nullopt for
// anything that is not a line about a device, such as an error. Texts are sanitized.
std::optional<pb::DeviceSample> ParseDeviceLine(std::string_view line, size_t query);

// Returns whether nvidia-smi refused a query because of an unknown name.
bool IsUnknownField(std::string_view line);

// Returns the indices of the devices that `name`, an element of CUDA_VISIBLE_DEVICES, stands for:
// an index, or the beginning of a UUID. Empty if no device matches.
std::vector<uint32_t> DevicesNamed(std::string_view name,
                                   const std::vector<pb::DeviceSample>& devices);

}  // namespace dslaunch
