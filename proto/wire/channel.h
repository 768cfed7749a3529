// What every gRPC channel and server of dslaunch has in common. None listens by itself: what
// crosses a network comes through SSH or our own TLS (acceptor.h).
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "base/deadline.h"
#include "base/unique_fd.h"

namespace dslaunch {

// Of what a node of a job says: its largest message is what one of many ranks wrote, or a list of
// ranks. A larger one ends the call.
inline constexpr int kMaxPeerMessageBytes = 2 << 20;

// No proxy from the environment, no shared connections, message and ping limits.
grpc::ChannelArguments CommonChannelArguments();
void SetCommonServerOptions(grpc::ServerBuilder& builder);

// For the other end of a channel to answer a ping, where no option of the job says it.
inline constexpr milliseconds kUsualSilence{30'000};

// gRPC over a connected stream socket, which both take. It needs no credentials: a process that
// holds the other end was authenticated before. The channel ends when nothing arrives on it for
// `silent_after`, and not before 20 s.
std::shared_ptr<grpc::Channel> ChannelFromFd(const std::string& name, UniqueFd fd,
                                             milliseconds silent_after = kUsualSilence);
void ServeFd(grpc::Server& server, UniqueFd fd);

}  // namespace dslaunch
