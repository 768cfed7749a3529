// Sets up mutual TLS 1.3 between the nodes of a job. Each end presents a certificate from the job's
// own authority and accepts no other certificate.
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

// Restricts `context` to TLS 1.3, whichever method of authentication it uses. Prefers AES with
// 128-bit keys because it is faster.
void SetTlsRules(asio::ssl::context& context);

// Returns a TLS context for either end. Fails with kInternal if the credentials are invalid.
// Consecutive calls with the same credentials are cheap, because they share one context, so the
// caller must not change it.
Result<asio::ssl::context> MakeTlsContext(const pb::Credentials& credentials);

// Starts the handshake on a connected socket and returns its stream. Calls `on_done` once, later
// and on the socket's loop, without an error or with the handshake's error, which is
// asio::error::timed_out after `limit`. To cancel the handshake, close the stream's socket.
std::shared_ptr<TlsStream> BeginHandshake(asio::ip::tcp::socket socket, asio::ssl::context& context,
                                          TlsStream::Role role, milliseconds limit,
                                          std::function<void(std::error_code)> on_done);

// Returns the index of the node of job `job_id` whose certificate the peer has proved to hold;
// nullopt if the peer does not belong to the job. Precondition: the handshake is complete.
std::optional<uint32_t> PeerNode(TlsStream& stream, const std::string& job_id);

// Returns the peer's fault that made the handshake fail, such as "it does not speak TLS".
// Precondition: the handshake has failed with `error`.
std::string WhyNoHandshake(TlsStream& stream, const std::error_code& error);

}  // namespace dslaunch
