// Sets the common options of all gRPC channels and servers of dslaunch. gRPC servers do not listen
// themselves: network traffic arrives through SSH or dslaunch's own TLS (acceptor.h).
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "base/deadline.h"
#include "base/unique_fd.h"

namespace dslaunch {

// The maximum bytes of a message from a node. The largest legitimate messages are one of many
// ranks' output and lists of ranks. A larger message ends the call.
inline constexpr int kMaxPeerMessageBytes = 2 << 20;

// Returns the common options of channels: no proxies from the environment, no shared connections,
// and limits on messages.
grpc::ChannelArguments CommonChannelArguments();
// Sets the common options of a server: limits on messages and pings.
void SetCommonServerOptions(grpc::ServerBuilder& builder);

// The default time limit for the answer to a ping on a channel.
inline constexpr milliseconds kUsualSilence{30'000};

// Returns a channel over a connected stream socket, and takes ownership of the socket. No
// credentials are needed, because the process at the other end has been authenticated before. The
// channel ends if nothing arrives on it for `silent_after`, but not before 20 s.
std::shared_ptr<grpc::Channel> ChannelFromFd(const std::string& name, UniqueFd fd,
                                             milliseconds silent_after = kUsualSilence);
// Serves the process at the other end of a connected stream socket, and takes ownership of the
// socket. The process must have been authenticated before.
void ServeFd(grpc::Server& server, UniqueFd fd);

}  // namespace dslaunch
