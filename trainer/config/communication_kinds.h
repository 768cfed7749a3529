// The exchanges between ranks that profiles tell apart, as comms_logger.prof_ops names them.
#pragma once

namespace dslaunch {

inline constexpr const char* kCommunicationKinds[] = {
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce",
    "gather",     "scatter",    "send",           "recv",       "barrier"};

}  // namespace dslaunch
