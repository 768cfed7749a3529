// For roles of the agent that serve gRPC over their own stdin and stdout to what started them.
#pragma once

#include <grpcpp/grpcpp.h>

#include <asio/io_context.hpp>
#include <functional>

namespace dslaunch {

// Serves `service`, on whose loop this runs, until stdin has ended or stdout takes no more
// (StdioPump); then calls `at_end`, if any, and ends the process. Returns only an exit code, where
// serving could not begin. The hello line (SayHello) is out already.
int ServeStdio(asio::io_context& loop, grpc::Service& service,
               const std::function<void()>& at_end = {});

}  // namespace dslaunch
