// Tests the two ends of a TLS connection on one loop.
#include "net/tls_stream.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/ssl/stream_base.hpp>
#include <memory>
#include <random>
#include <string>

#include "net/certificate_authority.h"
#include "net/tls.h"

namespace dslaunch::tls_stream_test {
namespace {

using asio::ip::tcp;

constexpr std::chrono::seconds kLimit(20);

class TlsStreamTest : public testing::Test {
 protected:
  TlsStreamTest() {
    tcp::acceptor acceptor(loop_, {asio::ip::address_v4::loopback(), 0});
    tcp::socket client(loop_), server(loop_);
    client.connect(acceptor.local_endpoint());
    acceptor.accept(server);
    client_ = std::make_unique<TlsStream>(std::move(client), client_tls_);
    server_ = std::make_unique<TlsStream>(std::move(server), server_tls_);
  }

  void Handshake() {
    int num_done = 0;
    const auto on_done = [&](std::error_code error) {
      EXPECT_FALSE(error) << error.message();
      ++num_done;
    };
    client_->Handshake(asio::ssl::stream_base::client, on_done);
    server_->Handshake(asio::ssl::stream_base::server, on_done);
    EXPECT_EQ(num_done, 0) << "later, not at once";
    loop_.run_for(kLimit);
    loop_.restart();
    ASSERT_EQ(num_done, 2);
  }

  // Receives the client's last bytes at the server. The client then closes its socket without a TLS
  // shutdown.
  void ReceiveLastBytes() {
    ASSERT_FALSE(client_->Write("last"));
    ASSERT_FALSE(client_->Flush());
    client_->socket().close();
    std::string buffer(64, '\0');
    std::error_code error = asio::error::would_block;
    size_t bytes = 0;
    while (error == asio::error::would_block) bytes = server_->Read(buffer, error);
    EXPECT_EQ(buffer.substr(0, bytes), "last");
    EXPECT_FALSE(error);
  }
  std::error_code NextError() {
    std::string buffer(64, '\0');
    std::error_code error;
    EXPECT_EQ(server_->Read(buffer, error), 0u);
    return error;
  }

  CertificateAuthority authority_ = *CertificateAuthority::Create("job");
  asio::ssl::context client_tls_ = *MakeTlsContext(*authority_.Issue(0));
  asio::ssl::context server_tls_ = *MakeTlsContext(*authority_.Issue(1));
  asio::io_context loop_;
  std::unique_ptr<TlsStream> client_, server_;
};

TEST_F(TlsStreamTest, TransfersAllBytesThroughSmallBuffers) {
  client_->socket().set_option(asio::socket_base::send_buffer_size(16 << 10));
  Handshake();
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::string sent(3 << 20, '\0'), received;
  for (char& byte : sent) byte = static_cast<char>(random());
  std::string buffer(128 << 10, '\0');
  size_t written = 0, full = 0;
  while (received.size() < sent.size()) {
    std::error_code flushed = client_->Flush();
    while (!flushed && written < sent.size()) {
      const size_t size = std::min<size_t>(1 + random() % buffer.size(), sent.size() - written);
      ASSERT_FALSE(client_->Write(std::string_view(sent).substr(written, size)));
      written += size;
      flushed = client_->Flush();
    }
    if (flushed) {
      ASSERT_EQ(flushed, asio::error::would_block) << flushed.message();
      ++full;
    }
    std::error_code error;
    const size_t bytes = server_->Read({buffer.data(), 1 + random() % buffer.size()}, error);
    if (error) {
      ASSERT_EQ(error, asio::error::would_block) << error.message();
    }
    received.append(buffer, 0, bytes);
  }
  EXPECT_EQ(received, sent);
  EXPECT_GT(full, 0u) << "the socket was never full";
}

// Only the own certificate is sent. Both ends have the authority's certificate already, and a
// received copy would be parsed and verified again.
TEST_F(TlsStreamTest, SendsOnlyTheOwnCertificate) {
  Handshake();
  EXPECT_EQ(sk_X509_num(SSL_get_peer_cert_chain(client_->ssl())),
            1);  // the list at the client includes the peer's certificate
  // The list at the server omits the peer's certificate.
  EXPECT_LE(sk_X509_num(SSL_get_peer_cert_chain(server_->ssl())), 0);
}

TEST_F(TlsStreamTest, ReportsMissingShutdownAfterTheLastByte) {
  Handshake();
  ReceiveLastBytes();
  for (int again = 0; again < 2; ++again) {
    const std::error_code error = NextError();
    EXPECT_TRUE(error);
    EXPECT_NE(error, asio::error::would_block);
  }
}

// A reset must be reported differently from the end of the stream, because the peer may reconnect
// after a reset.
TEST_F(TlsStreamTest, ReportsResetAfterTheLastByte) {
  client_->socket().set_option(tcp::no_delay(true));  // so that the reset discards no unsent bytes
  client_->socket().set_option(asio::socket_base::linger(true, 0));
  Handshake();
  ReceiveLastBytes();
  for (int again = 0; again < 2; ++again) {
    const std::error_code error = NextError();
    EXPECT_EQ(error, asio::error::connection_reset) << error.message();
  }
}

TEST_F(TlsStreamTest, NamesBytesThatAreNotTls) {
  std::error_code at_server;
  server_->Handshake(asio::ssl::stream_base::server,
                     [&](std::error_code error) { at_server = error; });
  ASSERT_GT(::send(client_->socket().native_handle(), "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL),
            0);
  loop_.run_for(kLimit);
  EXPECT_EQ(WhyNoHandshake(*server_, at_server), "it does not speak TLS");
}

TEST_F(TlsStreamTest, CloseCancelsTheHandshake) {
  std::error_code at_client;
  client_->Handshake(asio::ssl::stream_base::client,
                     [&](std::error_code error) { at_client = error; });
  loop_.run_for(std::chrono::milliseconds(50));  // the server does not answer
  EXPECT_FALSE(at_client);
  client_->socket().close();
  loop_.run_for(kLimit);
  EXPECT_EQ(at_client, asio::error::operation_aborted);
}

}  // namespace
}  // namespace dslaunch::tls_stream_test
