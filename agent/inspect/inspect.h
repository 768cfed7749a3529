// Declares the modes of `dslaunch-agent` that inspect a job on a node over a new connection. They
// write the hello line, with which every stream of an agent begins (base/os/build_id.h), serve
// until stdin ends, and return the process's exit code. They never end or delay the job.
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch {

struct InspectOptions {
  std::string nonce;  // front end's nonce, repeated in the hello line
  std::string build_id;
};

// Passes bytes between stdin and stdout and the socket of a running job's agent. If no job listens,
// the stream ends right after the hello line.
int RunAttach(const InspectOptions& options, const std::string& job_id, uint32_t node_index);

// Serves the calls of proto/inspect.proto on stdin and stdout.
int RunRead(const InspectOptions& options);

}  // namespace dslaunch
