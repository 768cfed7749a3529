#include "rendezvous/channel.h"

#include <grpc/grpc_security_constants.h>

#include "rendezvous/certificate_authority.h"

namespace dslaunch {
namespace {

constexpr int kMaxMessageBytes = 16 << 20;
constexpr int kFirstReconnectMs = 50;
constexpr int kMaxReconnectMs = 500;

}  // namespace

grpc::ChannelArguments CommonChannelArguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxReconnectMs);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  return arguments;
}

void SetCommonServerOptions(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

std::shared_ptr<grpc::ServerCredentials> RendezvousServerCredentials(
    const pb::Credentials& credentials) {
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = credentials.ca_cert();
  options.pem_key_cert_pairs.push_back({credentials.private_key(), credentials.cert()});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::Channel> RendezvousChannel(const std::string& endpoint,
                                                 const std::string& job_id,
                                                 const pb::Credentials& credentials) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = credentials.ca_cert();
  options.pem_cert_chain = credentials.cert();
  options.pem_private_key = credentials.private_key();
  grpc::ChannelArguments arguments = CommonChannelArguments();
  arguments.SetSslTargetNameOverride(RendezvousHostName(job_id));
  return grpc::CreateCustomChannel(endpoint, grpc::SslCredentials(options), arguments);
}

}  // namespace dslaunch
