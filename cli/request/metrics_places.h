// Where the metrics of a running job go, as the user asked for.
#pragma once

#include <string>

namespace dslaunch {

// Empty and 0: not asked for.
struct MetricsPlaces {
  std::string file;    // written every 10 s, for node_exporter's textfile collector
  std::string socket;  // path of a Unix socket, for this user only
  int port = 0;        // on 127.0.0.1; requests need `token`
  std::string token;

  bool any() const { return !file.empty() || !socket.empty() || port != 0; }
};

}  // namespace dslaunch
