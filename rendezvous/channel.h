// What every gRPC channel and server of dslaunch has in common.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "proto/contract/unique_fd.h"
#include "proto/job.pb.h"

namespace dslaunch {

// No proxy from the environment, no shared connections, message and ping limits.
grpc::ChannelArguments CommonChannelArguments();
void SetCommonServerOptions(grpc::ServerBuilder& builder);

// gRPC over a connected stream socket, which both take. It needs no credentials: whoever holds the
// other end was authenticated before.
std::shared_ptr<grpc::Channel> ChannelFromFd(const std::string& name, UniqueFd fd);
void ServeFd(grpc::Server& server, UniqueFd fd);

// Mutual TLS with this job's certificates: each side proves that it belongs to the job.
std::shared_ptr<grpc::ServerCredentials> RendezvousServerCredentials(
    const pb::Credentials& credentials);
std::shared_ptr<grpc::Channel> RendezvousChannel(const std::string& endpoint,
                                                 const std::string& job_id,
                                                 const pb::Credentials& credentials);

}  // namespace dslaunch
