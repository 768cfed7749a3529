// TensorBoard's event files: records as TensorFlow writes them (length and data, each with a masked
// CRC-32C), of which each is an Event protobuf (tensorflow/core/util/event.proto). Only scalars.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dslaunch {

// CRC-32C (Castagnoli), as iSCSI has it (RFC 3720, appendix B.4).
uint32_t Crc32c(std::string_view bytes);

// One record of a file.
std::string EventRecord(std::string_view event);

// Serialized events: the first of a file, and a scalar. `wall_time_s` is since 1970.
std::string VersionEvent(double wall_time_s);
std::string ScalarEvent(double wall_time_s, int64_t step, std::string_view tag, float value);

}  // namespace dslaunch
