// Tests attacks on a job's only open port, over loopback.
#include "net/acceptor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <asio/buffer.hpp>
#include <asio/io_context.hpp>
#include <asio/read.hpp>
#include <asio/ssl/stream.hpp>
#include <asio/write.hpp>
#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

#include "net/certificate_authority.h"
#include "net/openssl_ptr.h"
#include "net/tls.h"
#include "tests/support/own_process.h"

namespace dslaunch::acceptor_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr milliseconds kWait(10'000);
constexpr size_t kMaxUnproven = 64;

// Opens a plain TCP connection to a loopback port.
UniqueFd Connect(int port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fd.Reset();
  return fd;
}

// Returns whether the other end closes the connection by the deadline. Discards any bytes that it
// sends before.
bool IsClosed(const UniqueFd& fd, Deadline deadline = Deadline::After(kWait)) {
  char bytes[4096];
  for (pollfd poll_fd{fd.get(), POLLIN, 0}; !deadline.Expired();) {
    if (poll(&poll_fd, 1, deadline.PollMs()) > 0 && read(fd.get(), bytes, sizeof bytes) <= 0)
      return true;
  }
  return false;
}

class AcceptorTest : public ::testing::Test {
 protected:
  AcceptorTest() : authority_(*CertificateAuthority::Create("job")) {
    options_.job_id = "job";
    options_.num_nodes = 2;
    options_.loopback_only = true;
    options_.max_unproven = kMaxUnproven;
  }

  void Start() {
    acceptor_ = *Acceptor::Start(
        options_, *authority_.Issue(0),
        [this](const AcceptedNode& node, UniqueFd plain) {
          const std::lock_guard lock(mutex_);
          EXPECT_EQ(node.address, "127.0.0.1");
          EXPECT_EQ(node.own_address, "127.0.0.1");
          nodes_[node.index].push_back(std::move(plain));
          changed_.notify_all();
        },
        [this](const std::string& line) {
          const std::lock_guard lock(mutex_);
          reported_.push_back(line);
          changed_.notify_all();
        });
  }

  // Waits for `at_least` reports of refused connections. Returns all reports so far.
  std::vector<std::string> Record(size_t at_least = 1) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kWait, [&] { return reported_.size() >= at_least; });
    return reported_;
  }
  // Returns the descriptor of the node's accepted connection `number`, or -1 if it does not arrive
  // in time.
  int Admitted(uint32_t node_index, size_t number = 0) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kWait, [&] { return nodes_[node_index].size() > number; });
    return nodes_[node_index].size() > number ? nodes_[node_index][number].get() : -1;
  }

  // A TLS client with the given credentials that has completed its handshake, or has failed with
  // `error`.
  struct Client {
    explicit Client(asio::ssl::context made) : tls(std::move(made)), stream(loop, tls) {}
    asio::ssl::context tls;
    asio::io_context loop;
    asio::ssl::stream<asio::ip::tcp::socket> stream;
    std::error_code error;
  };
  std::unique_ptr<Client> ConnectWith(asio::ssl::context tls) {
    auto client = std::make_unique<Client>(std::move(tls));
    client->stream.lowest_layer().connect(
        {asio::ip::address_v4::loopback(), static_cast<uint16_t>(acceptor_->port())},
        client->error);
    if (!client->error) client->stream.handshake(asio::ssl::stream_base::client, client->error);
    return client;
  }
  std::unique_ptr<Client> ConnectAs(const pb::Credentials& credentials) {
    return ConnectWith(*MakeTlsContext(credentials));
  }
  // Returns whether the acceptor has refused the client. Reads a byte, because the client's own
  // handshake may have succeeded before the refusal.
  static bool IsRefused(Client& client) {
    char byte;
    if (!client.error) asio::read(client.stream, asio::buffer(&byte, 1), client.error);
    return static_cast<bool>(client.error);
  }
  // Checks that the acceptor still accepts nodes of the job.
  void ExpectNodeIsAccepted() {
    const size_t before = nodes_[1].size();
    const std::unique_ptr<Client> node = ConnectAs(*authority_.Issue(1));
    ASSERT_FALSE(node->error) << node->error.message();
    const int fd = Admitted(1, before);
    ASSERT_GE(fd, 0);
    asio::write(node->stream, asio::buffer("hello", 5));
    char text[5];
    ASSERT_EQ(recv(fd, text, sizeof text, MSG_WAITALL), 5);
    EXPECT_EQ(std::string(text, 5), "hello");
    ASSERT_EQ(send(fd, "world", 5, MSG_NOSIGNAL), 5);
    asio::read(node->stream, asio::buffer(text, 5));
    EXPECT_EQ(std::string(text, 5), "world");
  }

  CertificateAuthority authority_;
  AcceptorOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint32_t, std::vector<UniqueFd>> nodes_;
  std::vector<std::string> reported_;
  std::unique_ptr<Acceptor> acceptor_;
};

TEST_F(AcceptorTest, NodeConnectsAndBytesCrossBothWays) {
  Start();
  ExpectNodeIsAccepted();
  EXPECT_THAT(reported_, IsEmpty());
}

TEST_F(AcceptorTest, EitherSideCanEndAConnection) {
  Start();
  std::unique_ptr<Client> node = ConnectAs(*authority_.Issue(1));
  const int fd = Admitted(1);
  node.reset();
  char byte;
  EXPECT_EQ(recv(fd, &byte, 1, 0), 0);

  node = ConnectAs(*authority_.Issue(1));
  ASSERT_GE(Admitted(1, 1), 0);
  nodes_[1].clear();
  EXPECT_TRUE(IsRefused(*node));
}

TEST_F(AcceptorTest, RefusesPlaintext) {
  Start();
  const UniqueFd fd = Connect(acceptor_->port());
  // These are the first bytes that gRPC sends without TLS.
  ASSERT_GT(send(fd.get(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24, MSG_NOSIGNAL), 0);
  EXPECT_TRUE(IsClosed(fd));
  EXPECT_THAT(Record(), ElementsAre("refused a connection from 127.0.0.1: it does not speak TLS"));
  ExpectNodeIsAccepted();
}

TEST_F(AcceptorTest, ReportsRepeatedHttpRequestsOnce) {
  Start();
  for (int i = 0; i < 20; ++i) {
    const UniqueFd fd = Connect(acceptor_->port());
    ASSERT_GT(send(fd.get(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27, MSG_NOSIGNAL), 0);
    EXPECT_TRUE(IsClosed(fd));
  }
  EXPECT_THAT(Record(), ElementsAre("refused a connection from 127.0.0.1: it does not speak TLS"));
  ExpectNodeIsAccepted();
}

TEST_F(AcceptorTest, RefusesClientWithoutCertificate) {
  Start();
  asio::ssl::context tls(asio::ssl::context::tls);
  const auto client = ConnectWith(std::move(tls));
  EXPECT_TRUE(IsRefused(*client));
  EXPECT_THAT(Record(), ElementsAre("refused a connection from 127.0.0.1: it has no certificate"));
  ExpectNodeIsAccepted();
}

// The certificate must contain no names, because TLS sends it to every peer before the peer is
// authenticated.
TEST_F(AcceptorTest, CertificateRevealsNoNames) {
  CertificateAuthority authority = *CertificateAuthority::Create("20260314-job-of-alice");
  options_.job_id = "20260314-job-of-alice";
  const auto acceptor = *Acceptor::Start(
      options_, *authority.Issue(0), [](const AcceptedNode&, UniqueFd) {},
      [](const std::string&) {});
  asio::ssl::context tls(asio::ssl::context::tls);
  Client client(std::move(tls));
  client.stream.lowest_layer().connect(
      {asio::ip::address_v4::loopback(), static_cast<uint16_t>(acceptor->port())}, client.error);
  client.stream.handshake(asio::ssl::stream_base::client, client.error);
  ASSERT_FALSE(client.error) << client.error.message();
  // Only the readable text of the chain is searched, because the bytes of keys and signatures may
  // contain any short name.
  std::string seen;
  const STACK_OF(X509)* const chain = SSL_get_peer_cert_chain(client.stream.native_handle());
  for (int i = 0; i < sk_X509_num(chain); ++i) {
    BIO* const text = BIO_new(BIO_s_mem());
    X509_print_ex(text, sk_X509_value(chain, i), XN_FLAG_ONELINE,
                  X509_FLAG_NO_PUBKEY | X509_FLAG_NO_SIGDUMP | X509_FLAG_NO_SERIAL);
    char* data = nullptr;
    const long size = BIO_get_mem_data(text, &data);
    seen.append(data, static_cast<size_t>(size));
    BIO_free(text);
  }
  EXPECT_THAT(seen, HasSubstr("node-0."));
  for (const char* name : {"alice", "20260314"})
    EXPECT_EQ(seen.find(name), std::string::npos) << seen;
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  for (size_t at = 0; at < seen.size();) {
    const size_t end = std::min(seen.find_first_of(" \n,=:", at), seen.size());
    EXPECT_NE(seen.substr(at, end - at), host) << seen;
    at = end + 1;
  }
}

TEST_F(AcceptorTest, AcceptsNodeWithItsOwnKey) {
  Start();
  const NodeKey key = *MakeNodeKey();
  ASSERT_TRUE(IsPublicKey(key.public_key));
  pb::Credentials credentials = *authority_.IssueFor(1, key.public_key);
  EXPECT_EQ(credentials.private_key(), "");
  EXPECT_FALSE(MakeTlsContext(credentials).ok());
  credentials.set_private_key(key.private_key);
  const auto client = ConnectAs(credentials);
  EXPECT_FALSE(client->error) << client->error.message();
  EXPECT_GE(Admitted(1), 0);
}

TEST_F(AcceptorTest, IssuesNoCertificateForInvalidPublicKey) {
  const NodeKey key = *MakeNodeKey();
  for (const std::string& bad : {std::string(), std::string("x"), key.private_key,
                                 key.public_key + "x", key.public_key.substr(1)}) {
    EXPECT_FALSE(IsPublicKey(bad));
    EXPECT_FALSE(authority_.IssueFor(1, bad).ok());
  }
}

TEST_F(AcceptorTest, RefusesCertificateOfAnotherJob) {
  Start();
  // The other authority has the same name, but other keys.
  CertificateAuthority other = *CertificateAuthority::Create("job");
  pb::Credentials foreign = *other.Issue(1);
  foreign.set_ca_cert(
      authority_.Issue(1)->ca_cert());  // so that the client itself would accept this acceptor
  const auto client = ConnectAs(foreign);
  EXPECT_TRUE(IsRefused(*client));
  EXPECT_THAT(Record(),
              ElementsAre(StartsWith(
                  "refused a connection from 127.0.0.1: its certificate is not from this job (")));
  ExpectNodeIsAccepted();
}

TEST_F(AcceptorTest, RefusesExpiredCertificate) {
  Start();
  const auto client = ConnectAs(*authority_.Issue(1, std::chrono::seconds(-1)));
  EXPECT_TRUE(IsRefused(*client));
  EXPECT_THAT(Record(),
              ElementsAre("refused a connection from 127.0.0.1: by this machine's clock its "
                          "certificate has expired; set the clocks of the nodes"));
  ExpectNodeIsAccepted();
}

// The certificates must be valid even for a clock that begins in 1970 because its battery is empty.
TEST_F(AcceptorTest, CertificatesAreValidForClockThatIsBehind) {
  const pb::Credentials credentials = *authority_.Issue(1);
  for (const std::string& pem : {credentials.ca_cert(), credentials.cert()}) {
    const OpenSslPtr<BIO, BIO_free> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
    const OpenSslPtr<X509, X509_free> certificate(
        PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    ASSERT_TRUE(certificate);
    time_t clock = 86'400;
    EXPECT_EQ(X509_cmp_time(X509_get0_notBefore(certificate.get()), &clock), -1);
  }
}

// The port must be reusable although the connection, which this end closed first, is in TIME_WAIT
// for a minute.
TEST_F(AcceptorTest, ReusesFixedPortAtOnce) {
  Start();
  const int port = acceptor_->port();
  auto client = ConnectAs(*authority_.Issue(1));
  ASSERT_GE(Admitted(1), 0);
  acceptor_.reset();
  EXPECT_TRUE(IsRefused(*client));
  client.reset();
  options_.port = port;
  Start();
  EXPECT_EQ(acceptor_->port(), port);
}

TEST_F(AcceptorTest, RefusesNodeIndexBeyondTheJob) {
  Start();
  const auto client = ConnectAs(*authority_.Issue(2));
  EXPECT_TRUE(IsRefused(*client));
  EXPECT_THAT(
      Record(),
      ElementsAre(
          "refused a connection from 127.0.0.1: its certificate does not name a node of this job"));
  ExpectNodeIsAccepted();
}

TEST_F(AcceptorTest, RefusesOlderTls) {
  Start();
  asio::ssl::context tls = *MakeTlsContext(*authority_.Issue(1));
  SSL_CTX_set_min_proto_version(tls.native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_max_proto_version(tls.native_handle(), TLS1_2_VERSION);
  const auto client = ConnectWith(std::move(tls));
  EXPECT_TRUE(IsRefused(*client));
  EXPECT_THAT(Record(),
              ElementsAre("refused a connection from 127.0.0.1: it does not speak TLS 1.3"));
  ExpectNodeIsAccepted();
}

TEST_F(AcceptorTest, CutsOffSlowHandshake) {
  options_.handshake_timeout = milliseconds(200);
  Start();
  const UniqueFd silent = Connect(acceptor_->port());
  const UniqueFd slow = Connect(acceptor_->port());
  // The bytes are an incomplete ClientHello.
  ASSERT_GT(send(slow.get(), "\x16\x03\x01\x02", 4, MSG_NOSIGNAL), 0);
  EXPECT_TRUE(IsClosed(silent));
  EXPECT_TRUE(IsClosed(slow));
  EXPECT_THAT(Record(),
              ElementsAre("refused a connection from 127.0.0.1: it did not authenticate in time"));
  ExpectNodeIsAccepted();
}

// Half of the counted descriptors are the test's own ends of connections.
TEST_F(AcceptorTest, IdleConnectionsUseBoundedDescriptors) {
  constexpr int kConnections = 10'000;
  constexpr size_t kHeld = 200;
  // With this timeout, connections close only because of newer connections.
  options_.handshake_timeout = milliseconds(60'000);
  Start();
  const size_t before = OpenDescriptors();
  std::vector<UniqueFd> idle(kHeld);
  size_t most = 0;
  for (int i = 0; i < kConnections; ++i) {
    UniqueFd& place = idle[static_cast<size_t>(i) % kHeld];
    place = Connect(acceptor_->port());
    ASSERT_TRUE(place) << "connection " << i;
    if (i % 500 == 0) most = std::max(most, OpenDescriptors());
  }
  EXPECT_LE(most, before + kHeld + kMaxUnproven + 4);
  ExpectNodeIsAccepted();
  EXPECT_THAT(
      Record(),
      Contains(
          "refused a connection from 127.0.0.1: too many unauthenticated connections are pending"));
  idle.clear();
}

TEST_F(AcceptorTest, LimitsConnectionsOfANode) {
  Start();
  std::vector<std::unique_ptr<Client>> clients;
  for (size_t i = 0; i < 4; ++i) {
    clients.push_back(ConnectAs(*authority_.Issue(1)));
    ASSERT_GE(Admitted(1, i), 0);
  }
  const auto one_more = ConnectAs(*authority_.Issue(1));
  EXPECT_TRUE(IsRefused(*one_more));
  EXPECT_THAT(Record(), ElementsAre("refused a connection from 127.0.0.1: node 1 has enough "
                                    "connections already"));
  clients.clear();
  for (size_t i = 0; i < 4; ++i) {
    char byte;
    EXPECT_EQ(recv(Admitted(1, i), &byte, 1, 0), 0);
  }
  nodes_[1].clear();
  ExpectNodeIsAccepted();
}

// Uses up the descriptors of this process as long as the object lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &limit_);
    rlimit low = limit_;
    low.rlim_cur = OpenDescriptors() + 16;
    setrlimit(RLIMIT_NOFILE, &low);
    while (UniqueFd one{dup(0)}) all_.push_back(std::move(one));
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &limit_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit limit_{};
  std::vector<UniqueFd> all_;
};

void ConnectTo(int port, const UniqueFd& client) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
}

TEST_F(AcceptorTest, AcceptsAgainAfterRunningOutOfDescriptors) {
  Start();
  const UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  {
    const NoDescriptors none_left;
    ConnectTo(acceptor_->port(), client);
    EXPECT_THAT(Record(),
                ElementsAre(StartsWith("cannot accept connections: Too many open files (limit ")));
  }
  ExpectNodeIsAccepted();
}

TEST_F(AcceptorTest, ClosesOldestSilentConnectionWithoutDescriptors) {
  options_.handshake_timeout = milliseconds(60'000);
  Start();
  const UniqueFd silent = Connect(acceptor_->port());
  const UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::this_thread::sleep_for(milliseconds(600));
  {
    const NoDescriptors none_left;
    ConnectTo(acceptor_->port(), client);
    EXPECT_TRUE(IsClosed(silent));
  }
  EXPECT_THAT(Record(2), Contains("refused a connection from 127.0.0.1: no descriptor is left for "
                                  "another connection"));
  ExpectNodeIsAccepted();
}

TEST_F(AcceptorTest, NamesPortThatIsInUse) {
  Start();
  options_.port = acceptor_->port();
  const auto second = Acceptor::Start(options_, *authority_.Issue(0), nullptr, nullptr);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ExitCode::kUnavailable);
  EXPECT_EQ(second.error().message, "cannot open TCP port " + std::to_string(options_.port) +
                                        " for the rendezvous: Address already in use");
}

TEST(TlsContextTest, CachesContextOfTheLatestCredentials) {
  CertificateAuthority authority = *CertificateAuthority::Create("job");
  const pb::Credentials own = *authority.Issue(1), others = *authority.Issue(2);
  auto first = MakeTlsContext(own), again = MakeTlsContext(own), other = MakeTlsContext(others),
       back = MakeTlsContext(own);
  ASSERT_TRUE(first.ok() && again.ok() && other.ok() && back.ok());
  EXPECT_EQ(first->native_handle(), again->native_handle());
  EXPECT_NE(first->native_handle(), other->native_handle());
  EXPECT_NE(back->native_handle(), other->native_handle());
}

TEST_F(AcceptorTest, RejectsInvalidCredentials) {
  pb::Credentials none;
  none.set_ca_cert("-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n");
  const auto acceptor = Acceptor::Start(options_, none, nullptr, nullptr);
  ASSERT_FALSE(acceptor.ok());
  EXPECT_EQ(acceptor.error().code, ExitCode::kInternal);
  EXPECT_THAT(acceptor.error().message, HasSubstr("cannot be used"));
}

}  // namespace
}  // namespace dslaunch::acceptor_test
