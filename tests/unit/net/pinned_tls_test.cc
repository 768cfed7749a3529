#include "net/pinned_tls.h"

#include <gtest/gtest.h>

#include <asio/connect.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>

#include "net/certificate_authority.h"
#include "net/tls.h"

namespace dslaunch::pinned_tls_test {
namespace {

using asio::ip::tcp;

struct Outcome {
  std::error_code client = asio::error::would_block;
  std::error_code server = asio::error::would_block;
  std::string pin_at_server;
  std::string pin_at_client;
};

// Performs a handshake over loopback and returns the outcome on both ends.
Outcome Handshake(Result<asio::ssl::context> client_tls, Result<asio::ssl::context> server_tls) {
  asio::io_context loop;
  tcp::acceptor acceptor(loop, {asio::ip::address_v4::loopback(), 0});
  tcp::socket near(loop), far(loop);
  near.connect(acceptor.local_endpoint());
  acceptor.accept(far);
  if (!client_tls.ok() || !server_tls.ok()) return {};
  Outcome outcome;
  std::shared_ptr<TlsStream> one, other;
  one = BeginHandshake(std::move(near), *client_tls, asio::ssl::stream_base::client,
                       milliseconds(10'000), [&](std::error_code failed) {
                         outcome.client = failed;
                         if (failed) return one->socket().close();
                         outcome.pin_at_client = PeerPin(*one);
                       });
  other = BeginHandshake(std::move(far), *server_tls, asio::ssl::stream_base::server,
                         milliseconds(10'000), [&](std::error_code failed) {
                           outcome.server = failed;
                           if (!failed) outcome.pin_at_server = PeerPin(*other);
                         });
  loop.run();
  return outcome;
}

// Performs a handshake in which the client accepts only the key `expected`, and the server accepts
// any key.
Outcome Handshake(const PinnedKey& client, const std::string& expected, const PinnedKey& server) {
  return Handshake(MakePinnedContext(client, expected), MakePinnedContext(server, ""));
}

PinnedKey WithPinOf(const PinnedKey& other) {
  Result<PinnedKey> made = MakePinnedKey();
  return {std::move(made->key), other.pin};
}

TEST(PinnedTlsTest, ConnectsEndsThatKnowEachOthersPin) {
  const Result<PinnedKey> agent = MakePinnedKey(), front_end = MakePinnedKey();
  ASSERT_TRUE(agent.ok() && front_end.ok());
  EXPECT_TRUE(IsPin(agent->pin));
  EXPECT_NE(agent->pin, front_end->pin);
  const Outcome outcome = Handshake(*agent, front_end->pin, *front_end);
  EXPECT_FALSE(outcome.client) << outcome.client.message();
  EXPECT_FALSE(outcome.server) << outcome.server.message();
  EXPECT_EQ(outcome.pin_at_server, agent->pin);
  EXPECT_EQ(outcome.pin_at_client, front_end->pin);
}

TEST(PinnedTlsTest, RefusesAnotherKey) {
  const Result<PinnedKey> agent = MakePinnedKey(), front_end = MakePinnedKey(),
                          stranger = MakePinnedKey();
  ASSERT_TRUE(agent.ok() && front_end.ok() && stranger.ok());
  const Outcome outcome = Handshake(*agent, front_end->pin, *stranger);
  EXPECT_TRUE(outcome.client);
  EXPECT_NE(outcome.client, asio::error::would_block);
}

TEST(PinnedTlsTest, RefusesPeerWithPinButWithoutKey) {
  const Result<PinnedKey> agent = MakePinnedKey(), front_end = MakePinnedKey();
  ASSERT_TRUE(agent.ok() && front_end.ok());
  const Outcome as_agent = Handshake(WithPinOf(*agent), front_end->pin, *front_end);
  EXPECT_TRUE(as_agent.server);
  EXPECT_EQ(as_agent.pin_at_server, "");
  const Outcome as_front_end = Handshake(*agent, front_end->pin, WithPinOf(*front_end));
  EXPECT_TRUE(as_front_end.client);
  EXPECT_EQ(as_front_end.pin_at_client, "");
}

TEST(PinnedTlsTest, RefusesCertificateInsteadOfPinnedKey) {
  const Result<PinnedKey> key = MakePinnedKey(), other = MakePinnedKey();
  ASSERT_TRUE(key.ok() && other.ok());
  Result<CertificateAuthority> authority = CertificateAuthority::Create("job");
  ASSERT_TRUE(authority.ok());
  const pb::Credentials credentials = *authority->Issue(1);
  const Outcome at_server = Handshake(MakeTlsContext(credentials), MakePinnedContext(*key, ""));
  EXPECT_TRUE(at_server.server);
  EXPECT_EQ(at_server.pin_at_server, "");
  const Outcome at_client =
      Handshake(MakePinnedContext(*key, other->pin), MakeTlsContext(credentials));
  EXPECT_TRUE(at_client.client);
  EXPECT_EQ(at_client.pin_at_client, "");
}

TEST(PinnedTlsTest, RefusesPinOfSmallOrder) {
  const Result<PinnedKey> front_end = MakePinnedKey();
  ASSERT_TRUE(front_end.ok());
  const Outcome outcome =
      Handshake(WithPinOf({nullptr, std::string(64, '0')}), front_end->pin, *front_end);
  EXPECT_TRUE(outcome.server);
}

TEST(PinnedTlsTest, PinHas64LowerCaseHexDigits) {
  EXPECT_TRUE(IsPin(std::string(64, 'a')));
  for (const std::string& text : {std::string(), std::string(63, 'a'), std::string(64, 'A'),
                                  std::string(65, '0'), std::string(64, ' ')})
    EXPECT_FALSE(IsPin(text)) << text;
}

}  // namespace
}  // namespace dslaunch::pinned_tls_test
