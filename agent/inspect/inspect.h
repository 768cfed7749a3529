// What `dslaunch-agent` does besides being a supervisor: a new connection to a node inspects a job
// there.
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch {

struct InspectOptions {
  std::string nonce;  // the front end's, repeated in the hello line
  std::string build_id;
};

// Both say hello on stdout, serve until stdin ends, and return the process's exit code. Nothing
// that they do ends or delays the job.

// Passes bytes between stdin and stdout and the socket of a running job's agent. Without a job that
// listens the stream ends right after the hello line.
int RunAttach(const InspectOptions& options, const std::string& job_id, uint32_t node_index);

// Serves proto/inspect.proto.
int RunRead(const InspectOptions& options);

}  // namespace dslaunch
