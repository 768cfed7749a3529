// Mutual TLS 1.3 between the nodes of a job: each end shows a certificate of the job's own
// authority and takes no other.
#pragma once

#include <asio/ip/tcp.hpp>
#include <asio/ssl/context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "base/deadline.h"
#include "base/error.h"
#include "net/tls_stream.h"
#include "proto/job.pb.h"

namespace dslaunch {

// TLS 1.3 alone, whatever both ends prove to each other; AES with 128 bits first, as it is faster.
void SetTlsRules(asio::ssl::context& context);

// For either end. kInternal when the credentials are none. Contexts of the same credentials, one
// after the other, are handles of one: not to be changed, and cheap.
Result<asio::ssl::context> MakeTlsContext(const pb::Credentials& credentials);

// Takes TLS up on a connected socket. Calls `on_done` once, later and on the socket's loop: with no
// error, or with that of the handshake, which is asio::error::timed_out after `limit`. To close the
// stream's socket before ends it.
std::shared_ptr<TlsStream> BeginHandshake(asio::ip::tcp::socket socket, asio::ssl::context& context,
                                          TlsStream::Role role, milliseconds limit,
                                          std::function<void(std::error_code)> on_done);

// After the handshake: the node of job `job_id` whose certificate the other end has proved to hold.
std::optional<uint32_t> PeerNode(TlsStream& stream, const std::string& job_id);

// After a handshake that failed: what was wrong with the other end, as "it does not speak TLS".
std::string WhyNoHandshake(TlsStream& stream, const std::error_code& error);

}  // namespace dslaunch
