// Reads the dump of PyTorch's Flight Recorder, which lists the exchanges that a rank has called and
// whether they are completed. The dump is a pickle that the rank's process wrote.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/error.h"
#include "proto/stacks.pb.h"

namespace dslaunch {

inline constexpr size_t kMaxFlightDumpBytes = size_t{64} << 20;

// Returns the content of a dump of format version 2.x (PyTorch 2.4 and later). Groups are in the
// order of their first operation; groups of which the dump has no operation of the rank are
// omitted. Texts are sanitized and cut to kMaxStackTextBytes. Fails with kBadInput if the dump is
// incomplete, has another format, or exceeds the limits of a pickle.
Result<pb::FlightRecord> ReadFlightRecord(std::string_view dump);

}  // namespace dslaunch
