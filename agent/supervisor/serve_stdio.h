// Serves gRPC over stdin and stdout, for several modes of the agent.
#pragma once

#include <grpcpp/grpcpp.h>

#include <asio/io_context.hpp>
#include <functional>

namespace dslaunch {

// Runs `loop` and serves `service` until stdin has ended or stdout fails (StdioPump). Then calls
// `at_end`, if given, and exits the process. Returns an exit code only if serving could not begin.
// Precondition: WriteHello() has succeeded.
int ServeStdio(asio::io_context& loop, grpc::Service& service,
               const std::function<void()>& at_end = {});

}  // namespace dslaunch
