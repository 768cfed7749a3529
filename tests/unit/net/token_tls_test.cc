#include "net/token_tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <asio/buffer.hpp>
#include <asio/io_context.hpp>
#include <asio/ssl/stream.hpp>
#include <asio/write.hpp>
#include <future>

#include "net/certificate_authority.h"
#include "net/tls.h"

namespace dslaunch::token_tls_test {
namespace {

using asio::ip::tcp;

constexpr milliseconds kWait(10'000);
constexpr char kToken[] = "a token of some length";

// Returns both ends of a TCP connection over loopback.
std::pair<UniqueFd, UniqueFd> TcpPair() {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  return {std::move(client), UniqueFd(accept(listener.get(), nullptr, nullptr))};
}

std::future<Result<UniqueFd>> Wrap(TokenTls& tls, TokenTls::Role role, UniqueFd fd,
                                   milliseconds limit = kWait) {
  auto promise = std::make_shared<std::promise<Result<UniqueFd>>>();
  tls.Wrap(role, std::move(fd), limit,
           [promise](Result<UniqueFd> plain) { promise->set_value(std::move(plain)); });
  return promise->get_future();
}

Error ErrorOf(std::future<Result<UniqueFd>> future) {
  if (future.wait_for(kWait) != std::future_status::ready) return {ExitCode::kOk, "no answer"};
  const Result<UniqueFd> result = future.get();
  return result.ok() ? Error{ExitCode::kOk, "it was let in"} : result.error();
}

// Performs a TLS handshake without the token. Returns its error.
std::error_code ShakeHands(UniqueFd fd, asio::ssl::context& context,
                           asio::ssl::stream_base::handshake_type role) {
  asio::io_context loop;
  asio::ssl::stream<tcp::socket> stream(tcp::socket(loop, tcp::v4(), fd.Release()), context);
  std::error_code error;
  stream.handshake(role, error);
  return error;
}

TEST(TokenTlsTest, ConnectsEndsWithTheSameToken) {
  TokenTls one(kToken), other(kToken);
  auto [client, server] = TcpPair();
  auto at_client = Wrap(one, TokenTls::Role::kClient, std::move(client));
  auto at_server = Wrap(other, TokenTls::Role::kServer, std::move(server));
  Result<UniqueFd> left = at_client.get(), right = at_server.get();
  ASSERT_TRUE(left.ok()) << left.error().message;
  ASSERT_TRUE(right.ok()) << right.error().message;
  // Sends more bytes than all buffers hold, and then end of file.
  const std::string sent(3 << 20, 'x');
  auto reader = std::async(std::launch::async, [&] {
    std::string got(sent.size() + 1, '\0');
    size_t size = 0;
    for (ssize_t n; (n = recv(right->get(), got.data() + size, got.size() - size, 0)) > 0;)
      size += static_cast<size_t>(n);
    return size;
  });
  for (size_t at = 0; at < sent.size();) {
    const ssize_t n = send(left->get(), sent.data() + at, sent.size() - at, MSG_NOSIGNAL);
    ASSERT_GT(n, 0);
    at += static_cast<size_t>(n);
  }
  left->Reset();
  EXPECT_TRUE(one.Flush(Deadline::After(kWait)));
  EXPECT_EQ(reader.get(), sent.size());
}

TEST(TokenTlsTest, RefusesAnotherTokenAtBothEnds) {
  TokenTls one(kToken), other("another token of length");
  auto [client, server] = TcpPair();
  auto at_client = Wrap(one, TokenTls::Role::kClient, std::move(client));
  const Error at_server = ErrorOf(Wrap(other, TokenTls::Role::kServer, std::move(server)));
  EXPECT_EQ(at_server.code, ExitCode::kNoPermission);
  EXPECT_EQ(at_server.message, "it has another token");
  const Error heard = ErrorOf(std::move(at_client));
  EXPECT_EQ(heard.code, ExitCode::kNoPermission);
  EXPECT_EQ(heard.message, "it has another token");
}

TEST(TokenTlsTest, RefusesPlaintextClient) {
  TokenTls tls(kToken);
  auto [client, server] = TcpPair();
  auto at_server = Wrap(tls, TokenTls::Role::kServer, std::move(server));
  ASSERT_GT(send(client.get(), "\x20\0\0\0 this is a frame without TLS....", 36, MSG_NOSIGNAL), 0);
  const Error error = ErrorOf(std::move(at_server));
  EXPECT_EQ(error.code, ExitCode::kNoPermission);
  EXPECT_EQ(error.message, "it has no token");
}

// The server pretends to be node 0, with a certificate that plain TLS would accept.
TEST(TokenTlsTest, RefusesServerWithACertificateInstead) {
  TokenTls tls(kToken);
  auto [client, server] = TcpPair();
  auto at_client = Wrap(tls, TokenTls::Role::kClient, std::move(client));
  CertificateAuthority authority = *CertificateAuthority::Create("job");
  asio::ssl::context context = *MakeTlsContext(*authority.Issue(0));
  context.set_verify_mode(asio::ssl::verify_none);
  ShakeHands(std::move(server), context, asio::ssl::stream_base::server);
  const Error error = ErrorOf(std::move(at_client));
  EXPECT_EQ(error.code, ExitCode::kNoPermission);
  EXPECT_EQ(error.message, "it has no token");
}

TEST(TokenTlsTest, RefusesTlsClientWithoutToken) {
  TokenTls tls(kToken);
  auto [client, server] = TcpPair();
  auto at_server = Wrap(tls, TokenTls::Role::kServer, std::move(server));
  asio::ssl::context context(asio::ssl::context::tls);
  EXPECT_TRUE(ShakeHands(std::move(client), context, asio::ssl::stream_base::client));
  const Error error = ErrorOf(std::move(at_server));
  EXPECT_EQ(error.code, ExitCode::kNoPermission);
  EXPECT_EQ(error.message, "it has no token");
}

TEST(TokenTlsTest, LimitsHandshakeTimeAndAllowsCancelling) {
  TokenTls tls(kToken);
  auto [client, server] = TcpPair();
  EXPECT_EQ(
      ErrorOf(Wrap(tls, TokenTls::Role::kServer, std::move(server), milliseconds(50))).message,
      "it did not authenticate in time");

  std::promise<Error> said;
  auto [other_client, other_server] = TcpPair();
  const uint64_t number = tls.Wrap(TokenTls::Role::kServer, std::move(other_server), kWait,
                                   [&](Result<UniqueFd> plain) { said.set_value(plain.error()); });
  tls.Cancel(number);
  tls.Cancel(number);
  EXPECT_EQ(said.get_future().get().message, "it was not needed any longer");
}

}  // namespace
}  // namespace dslaunch::token_tls_test
