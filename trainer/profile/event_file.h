// Writes TensorBoard's event files. They are records in TensorFlow's format (length and data, each
// with a masked CRC-32C) that contain Event protobufs (tensorflow/core/util/event.proto). Only
// scalars are supported.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dslaunch {

// Returns the CRC-32C (Castagnoli) of `bytes`, as in iSCSI (RFC 3720, appendix B.4).
uint32_t Crc32c(std::string_view bytes);

// Returns the record of a file that contains `event`, a serialized event.
std::string EventRecord(std::string_view event);

// Returns the first event of a file, serialized. `wall_time_s` is Unix time in seconds.
std::string VersionEvent(double wall_time_s);
// Returns the serialized event of a scalar at `step`. `wall_time_s` is Unix time in seconds.
std::string ScalarEvent(double wall_time_s, int64_t step, std::string_view tag, float value);

}  // namespace dslaunch
