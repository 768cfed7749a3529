// Defines the destinations of a running job's metrics, as requested by the user.
#pragma once

#include <string>

namespace dslaunch {

// The destinations; a field is empty or 0 if not requested.
struct MetricsPlaces {
  std::string file;    // file written every 10 s, for node_exporter's textfile collector
  std::string socket;  // path of a Unix socket, for this user only
  int port = 0;        // port on 127.0.0.1; requests need `token`
  std::string token;

  bool any() const { return !file.empty() || !socket.empty() || port != 0; }
};

}  // namespace dslaunch
