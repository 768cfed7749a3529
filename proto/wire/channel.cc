#include "proto/wire/channel.h"

#include <fcntl.h>
#include <grpc/grpc.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/server_posix.h>

#include <algorithm>
#include <climits>

namespace dslaunch {
namespace {

constexpr int kMaxMessageBytes = 16 << 20;

// Interval of pings to an idle node on its control connection, because TCP alone does not detect a
// silent node. A silent front end is detected by its lease (NodeAgent::Renew).
constexpr int kPingEveryMs = 10'000;

// Flow-control windows of a call, towards a front end and towards a node. With default windows,
// gRPC would estimate the bandwidth by a ping for each burst of data, which doubles the messages at
// the start and end of a job.
constexpr int kFrontEndWindowBytes = 256 << 10;
constexpr int kNodeWindowBytes = 4 << 20;

// Makes the descriptor non-blocking. gRPC hangs on a blocking descriptor.
void SetNonBlocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

// Keeps gRPC initialized until the process exits. Otherwise gRPC shuts down with its last channel,
// and sometimes waits ten seconds for one of its threads.
void KeepGrpc() { [[maybe_unused]] static const bool kept = (grpc_init(), true); }

}  // namespace

grpc::ChannelArguments CommonChannelArguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kFrontEndWindowBytes);
  // These features are not used but take memory for each channel and call, so they are disabled.
  arguments.SetInt(GRPC_ARG_ENABLE_CHANNELZ, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  arguments.SetInt(GRPC_ARG_TCP_TX_ZEROCOPY_MAX_SIMULT_SENDS, 1);
  arguments.SetMaxReceiveMessageSize(kMaxPeerMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  return arguments;
}

void SetCommonServerOptions(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kNodeWindowBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kPingEveryMs / 2);
}

std::shared_ptr<grpc::Channel> ChannelFromFd(const std::string& name, UniqueFd fd,
                                             milliseconds silent_after) {
  KeepGrpc();
  SetNonBlocking(fd.get());
  grpc::ChannelArguments arguments = CommonChannelArguments();
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingEveryMs);
  const auto longest = std::min<milliseconds::rep>(silent_after.count(), INT_MAX);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   std::max(kPingEveryMs, static_cast<int>(longest) - kPingEveryMs));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return grpc::CreateCustomInsecureChannelFromFd(name, fd.Release(), arguments);
}

void ServeFd(grpc::Server& server, UniqueFd fd) {
  SetNonBlocking(fd.get());
  grpc::AddInsecureChannelFromFd(&server, fd.Release());
}

}  // namespace dslaunch
