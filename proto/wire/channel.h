// What every gRPC channel and server of dslaunch has in common. None listens by itself: what
// crosses a network comes through SSH or our own TLS (acceptor.h).
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "base/unique_fd.h"

namespace dslaunch {

// No proxy from the environment, no shared connections, message and ping limits.
grpc::ChannelArguments CommonChannelArguments();
void SetCommonServerOptions(grpc::ServerBuilder& builder);

// gRPC over a connected stream socket, which both take. It needs no credentials: whoever holds the
// other end was authenticated before.
std::shared_ptr<grpc::Channel> ChannelFromFd(const std::string& name, UniqueFd fd);
void ServeFd(grpc::Server& server, UniqueFd fd);

}  // namespace dslaunch
