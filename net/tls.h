// Mutual TLS 1.3 between the nodes of a job: each end presents a certificate of the job's own
// authority and accepts no other.
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

// Allows only TLS 1.3, however the ends authenticate. Prefers AES with 128 bits because it is
// faster.
void SetTlsRules(asio::ssl::context& context);

// Returns a context for either end. Fails with kInternal if the credentials are invalid.
// Consecutive calls with the same credentials share one context, which makes them cheap; do not
// change it.
Result<asio::ssl::context> MakeTlsContext(const pb::Credentials& credentials);

// Starts the handshake on a connected socket. Calls `on_done` once, later and on the socket's loop,
// with no error or with the handshake's, which is asio::error::timed_out after `limit`. Close the
// stream's socket to cancel.
std::shared_ptr<TlsStream> BeginHandshake(asio::ip::tcp::socket socket, asio::ssl::context& context,
                                          TlsStream::Role role, milliseconds limit,
                                          std::function<void(std::error_code)> on_done);

// Returns, after the handshake, the node of job `job_id` whose certificate the peer proved to hold,
// or nullopt.
std::optional<uint32_t> PeerNode(TlsStream& stream, const std::string& job_id);

// Returns, after a failed handshake, what was wrong with the peer, as in "it does not speak TLS".
std::string WhyNoHandshake(TlsStream& stream, const std::error_code& error);

}  // namespace dslaunch
