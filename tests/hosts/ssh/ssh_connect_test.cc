// Tests connections to a node through a real sshd: successes, and the messages of all kinds of
// failures.
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "cli/transport/agent_binary.h"
#include "cli/transport/ssh/transport_ssh.h"
#include "tests/hosts/ssh/sshd_fixture.h"

namespace dslaunch {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr milliseconds kPlenty{20000};

AgentBinary FakeAgent() {
  Result<AgentBinary> agent = ReadAgentBinary(DSLAUNCH_FAKE_AGENT);
  EXPECT_TRUE(agent.ok()) << agent.error().message;
  return *agent;
}

// Sends `text` over a stream whose other end echoes; returns the reply.
std::string Echo(int fd, const std::string& text) {
  EXPECT_EQ(::send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  std::string reply(text.size(), '\0');
  const timeval limit{10, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const ssize_t n = ::recv(fd, reply.data(), reply.size(), MSG_WAITALL);
  reply.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return reply;
}

class SshConnectTest : public SshdTest {
 protected:
  void SetUp() override {
    SshdTest::SetUp();
    ::unsetenv("SSH_AUTH_SOCK");
  }

  Result<std::unique_ptr<NodeLink>> Connect(milliseconds limit = kPlenty) {
    return Connect(Target(), limit);
  }
  Result<std::unique_ptr<NodeLink>> Connect(const NodeTarget& target,
                                            milliseconds limit = kPlenty) {
    SshTransport transport(FakeAgent(), Options());
    return transport.Connect(target, Deadline::After(limit));
  }

  // Returns the error of a connection that must fail; fails the test if it succeeds.
  Error Failure(milliseconds limit = kPlenty) { return Failure(Target(), limit); }
  Error Failure(const NodeTarget& target, milliseconds limit = kPlenty) {
    Result<std::unique_ptr<NodeLink>> link = Connect(target, limit);
    if (link) {
      ADD_FAILURE() << "connected";
      return {};
    }
    EXPECT_THAT(link.error().message, HasSubstr("node '" + target.name + "'"));
    EXPECT_EQ(link.error().message.find('\n'), std::string::npos) << link.error().message;
    return link.error();
  }

  std::filesystem::path InstalledAgent() const {
    return home() / ".cache" / "dslaunch" / ("agent-" + FakeAgent().build_id);
  }
};

TEST_F(SshConnectTest, InstallsAgentOnceAndExchangesBytes) {
  StartSshd();
  ino_t installed = 0;
  for (int round = 0; round < 2; ++round) {
    Result<std::unique_ptr<NodeLink>> link = Connect();
    ASSERT_TRUE(link.ok()) << link.error().message;
    EXPECT_EQ((*link)->Address(), "127.0.0.1");
    UniqueFd stream = (*link)->TakeFd();
    EXPECT_EQ(Echo(stream.get(), "hello there"), "hello there");
    struct stat status {};
    ASSERT_EQ(::stat(InstalledAgent().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700u);
    EXPECT_EQ(ReadFile(InstalledAgent()), ReadFile(DSLAUNCH_FAKE_AGENT));
    if (round == 1) {
      EXPECT_EQ(status.st_ino, installed) << "installed again";
    }
    installed = status.st_ino;
    stream.Reset();
    EXPECT_TRUE((*link)->WaitEnd(Deadline::After(kPlenty)));
  }
  const auto folder = std::filesystem::directory_iterator(InstalledAgent().parent_path());
  EXPECT_EQ(std::distance(begin(folder), end(folder)), 1) << "something was left beside the agent";
}

TEST_F(SshConnectTest, ConcurrentFirstStartsShareOneHome) {
  StartSshd("MaxStartups 2:100:3");
  std::vector<std::thread> threads;
  std::array<std::string, 8> errors;
  for (std::string& error : errors) {
    threads.emplace_back([this, &error] {
      Result<std::unique_ptr<NodeLink>> link = Connect(milliseconds(40000));
      if (!link) {
        error = link.error().message;
        return;
      }
      const UniqueFd stream = (*link)->TakeFd();
      if (Echo(stream.get(), "x") != "x") error = "no echo";
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_F(SshConnectTest, IgnoresOutputOfLoginShell) {
  StartSshd();
  WriteFile(
      home() / ".bashrc",
      "printf 'Welcome to node1!'; echo 'quota: 3%' >&2; echo; printf 'no newline at the end'\n");
  Result<std::unique_ptr<SshLink>> plain = SshLink::Open(
      Target(), Options(),
      [](SshSession& session, TailBuffer& tail, Deadline deadline) {
        return session.Exec("true", tail, deadline);
      },
      Deadline::After(kPlenty));
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  std::array<char, 256> noise{};
  const UniqueFd stream = (*plain)->TakeFd();
  ASSERT_GT(::recv(stream.get(), noise.data(), noise.size() - 1, MSG_WAITALL), 0);
  ASSERT_THAT(noise.data(), HasSubstr("Welcome"))
      << "the login shell read no .bashrc: this test shows nothing";

  Result<std::unique_ptr<NodeLink>> link = Connect();
  ASSERT_TRUE(link.ok()) << link.error().message;
  EXPECT_EQ(Echo((*link)->TakeFd().get(), "clean"), "clean");
  EXPECT_THAT((*link)->StderrTail(), HasSubstr("quota: 3%"));
}

TEST_F(SshConnectTest, QuotesShellOutputBeyondLimit) {
  StartSshd();
  WriteFile(home() / ".bashrc",
            "echo 'This account is closed.'; head -c 100000 /dev/zero; exit 1\n");
  const Error error = Failure();
  EXPECT_EQ(error.code, ExitCode::kUnavailable);
  EXPECT_THAT(error.message, AllOf(HasSubstr("This account is closed."), HasSubstr("64 KiB")));
}

TEST_F(SshConnectTest, RefusesUnknownHostKeyDespiteConfiguration) {
  StartSshd();
  WriteFile(known_hosts(), "");
  WriteFile(folder_ / "ssh_config",
            ReadFile(folder_ / "ssh_config") + "  StrictHostKeyChecking no\n");
  const Error error = Failure();
  EXPECT_EQ(error.code, ExitCode::kNoPermission);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("SHA256:"), HasSubstr("is not in"), HasSubstr("ssh-keyscan")));
  EXPECT_EQ(ReadFile(known_hosts()), "") << "nothing may be added without the user";
}

TEST_F(SshConnectTest, ReportsFolderInPlaceOfKnownHosts) {
  StartSshd();
  std::filesystem::remove(known_hosts());
  std::filesystem::create_directory(known_hosts());
  const Error error = Failure();
  EXPECT_EQ(error.code, ExitCode::kNoPermission);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr(known_hosts().string() + " cannot be read: Is a directory"),
                    HasSubstr("UserKnownHostsFile")));
}

TEST_F(SshConnectTest, RefusesChangedHostKey) {
  StartSshd();
  ASSERT_EQ(RunProgram({"/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
                        folder_ / "old_key"}),
            0);
  std::string old_key = ReadFile(folder_ / "old_key.pub");
  WriteFile(known_hosts(), KnownHostsName() + " " + old_key);
  const Error error = Failure();
  EXPECT_EQ(error.code, ExitCode::kNoPermission);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("CHANGED"), HasSubstr("SHA256:"), HasSubstr("ssh-keygen -f"),
                    HasSubstr("-R '" + KnownHostsName() + "'")));
}

TEST_F(SshConnectTest, RefusesHostKeyOfAnotherType) {
  StartSshd();
  ASSERT_EQ(
      RunProgram({"/usr/bin/ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", folder_ / "old_key"}),
      0);
  WriteFile(known_hosts(), KnownHostsName() + " " + ReadFile(folder_ / "old_key.pub"));
  const Error error = Failure();
  EXPECT_EQ(error.code, ExitCode::kNoPermission);
  EXPECT_THAT(error.message, HasSubstr("another type"));
}

TEST_F(SshConnectTest, RefusesRevokedHostKeyThatIsListed) {
  StartSshd();
  const std::string listed = ReadFile(known_hosts());
  for (const std::string pattern : {"*", "127.0.0.1", "other,[127.0.0.*]:*"}) {
    WriteFile(known_hosts(), listed + "\n@revoked " + pattern + " " + HostKeyLine() + "\n");
    const Error error = Failure();
    EXPECT_EQ(error.code, ExitCode::kNoPermission);
    EXPECT_THAT(error.message, AllOf(HasSubstr("revoked"), HasSubstr("known_hosts:3")));
  }
  WriteFile(known_hosts(), listed);
  WriteFile(folder_ / "global_known_hosts", "@revoked * " + HostKeyLine() + "\n");
  EXPECT_THAT(Failure().message, AllOf(HasSubstr("revoked"), HasSubstr("global_known_hosts:1")));
  std::filesystem::remove(folder_ / "global_known_hosts");
  EXPECT_TRUE(Connect().ok()) << "the control must connect";
}

TEST_F(SshConnectTest, HonorsHashedRevocation) {
  StartSshd();
  const std::string listed = ReadFile(known_hosts());
  WriteFile(known_hosts(), KnownHostsName() + " " + HostKeyLine() + "\n");
  ASSERT_EQ(RunProgram({"/usr/bin/ssh-keygen", "-q", "-H", "-f", known_hosts()}), 0);
  const std::string hashed = ReadFile(known_hosts());
  ASSERT_TRUE(hashed.starts_with("|1|"));
  EXPECT_TRUE(Connect().ok()) << "a hashed entry is known";
  WriteFile(known_hosts(), listed + "@revoked " + hashed);
  EXPECT_THAT(Failure().message, HasSubstr("revoked"));
}

TEST_F(SshConnectTest, RefusedLoginNamesKeysAndMethods) {
  StartSshd();
  WriteFile(folder_ / "authorized_keys", "");
  const Error error = Failure();
  EXPECT_EQ(error.code, ExitCode::kNoPermission);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("login refused"), HasSubstr("offers publickey"),
                    HasSubstr((folder_ / "user_key").string()), HasSubstr("authorized_keys")));
}

TEST_F(SshConnectTest, IgnoresBadPublicKeyFileAndWritesNone) {
  StartSshd();
  WriteFile(folder_ / "user_key.pub", "");
  EXPECT_TRUE(Connect().ok());
  std::filesystem::remove(folder_ / "user_key.pub");
  EXPECT_TRUE(Connect().ok());
  EXPECT_FALSE(std::filesystem::exists(folder_ / "user_key.pub"));
}

TEST_F(SshConnectTest, NamesUnreadableKey) {
  StartSshd();
  WriteFile(folder_ / "user_key.pub", "");
  WriteFile(folder_ / "user_key", "no key\n");
  const Error error = Failure();
  EXPECT_EQ(error.code, ExitCode::kNoPermission);
  EXPECT_THAT(error.message, AllOf(HasSubstr("offers publickey"), HasSubstr("user_key")));
}

TEST_F(SshConnectTest, UsesKeysOfSshAgent) {
  StartSshd();
  const std::string socket = (folder_ / "agent.sock").string();
  ASSERT_EQ(RunProgram({"/bin/sh", "-c",
                        "ssh-agent -a " + socket + " > " + (folder_ / "agent.env").string()}),
            0);
  ::setenv("SSH_AUTH_SOCK", socket.c_str(), 1);
  ASSERT_EQ(RunProgram({"/usr/bin/ssh-add", "-q", folder_ / "user_key"}), 0);
  WriteFile(folder_ / "ssh_config", ReadFile(folder_ / "ssh_config") + "\n");
  std::filesystem::rename(folder_ / "user_key", folder_ / "moved");
  std::filesystem::remove(folder_ / "user_key.pub");
  Result<std::unique_ptr<NodeLink>> link = Connect();
  EXPECT_TRUE(link.ok()) << link.error().message;
  EXPECT_EQ(RunProgram({"/bin/sh", "-c",
                        ". " + (folder_ / "agent.env").string() +
                            " > /dev/null; ssh-agent -k > /dev/null"}),
            0);
}

TEST_F(SshConnectTest, TimesOutIfSshAgentDoesNotAnswer) {
  StartSshd();
  const std::string path = (folder_ / "agent.sock").string();
  // Never closed, because the thread that waits for this socket ends only with the process.
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener, 4), 0);
  ::setenv("SSH_AUTH_SOCK", path.c_str(), 1);
  const auto start = Clock::now();
  const Error error = Failure(milliseconds(1500));
  EXPECT_LT(Clock::now() - start, milliseconds(2500));
  EXPECT_EQ(error.code, ExitCode::kUnavailable);
  EXPECT_THAT(error.message, HasSubstr("ssh-add -l"));
}

TEST_F(SshConnectTest, ReportsRefusedPort) {
  StartSshd();
  const int port = FreePort();
  const auto start = Clock::now();
  const Error error = Failure({"node7", "127.0.0.1", port, ""});
  EXPECT_LT(Clock::now() - start, milliseconds(1000));
  EXPECT_EQ(error.code, ExitCode::kUnavailable);
  EXPECT_THAT(error.message, AllOf(HasSubstr("127.0.0.1 port " + std::to_string(port)),
                                   HasSubstr("refused"), HasSubstr("sshd")));
}

TEST_F(SshConnectTest, ReportsNameThatDoesNotResolve) {
  StartSshd();
  const auto start = Clock::now();
  const Error error = Failure({"typo", "no-such-host.invalid", 0, ""}, milliseconds(5000));
  EXPECT_LT(Clock::now() - start, milliseconds(6000));
  EXPECT_EQ(error.code, ExitCode::kUnavailable);
  EXPECT_THAT(error.message, AllOf(HasSubstr("resolve"), HasSubstr("DNS")));
}

TEST_F(SshConnectTest, TimesOutIfPortNeverSpeaksSsh) {
  StartSshd();
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::listen(listener.get(), 4), 0);  // binds a free port on every interface
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &size);
  const int port = ntohs(reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
  const auto start = Clock::now();
  const Error error = Failure({"mute", "127.0.0.1", port, ""}, milliseconds(1500));
  EXPECT_LT(Clock::now() - start, milliseconds(2000));
  EXPECT_EQ(error.code, ExitCode::kUnavailable);
  EXPECT_THAT(error.message, AllOf(HasSubstr("SSH handshake"), HasSubstr("in time")));
}

TEST_F(SshConnectTest, ConnectsThroughProxyCommand) {
  StartSshd();
  std::filesystem::copy_file(folder_ / "ssh_config", folder_ / "jump_config");
  const std::string direct = ReadFile(folder_ / "ssh_config");
  WriteFile(folder_ / "ssh_config", direct + "  ProxyCommand ssh -F " +
                                        (folder_ / "jump_config").string() +
                                        " -W [%h]:%p node1-alias\n");
  Result<std::unique_ptr<NodeLink>> link = Connect();
  ASSERT_TRUE(link.ok()) << link.error().message;
  EXPECT_EQ(Echo((*link)->TakeFd().get(), "through"), "through");
  EXPECT_TRUE((*link)->WaitEnd(Deadline::After(kPlenty)));

  WriteFile(folder_ / "ssh_config", direct + "  ProxyCommand echo no way through >&2; exit 1\n");
  const Error error = Failure();
  EXPECT_EQ(error.code, ExitCode::kUnavailable);
  EXPECT_THAT(error.message, AllOf(HasSubstr("ProxyCommand"), HasSubstr("no way through")));
}

// Each case puts a line first, because ssh_config uses the first value of an option, and states the
// expected effect.
TEST_F(SshConnectTest, FollowsSshConfig) {
  StartSshd();
  const std::string dir = folder_.string();
  const std::string base = ReadFile(folder_ / "ssh_config");
  const std::string hosts = ReadFile(known_hosts());
  WriteFile(folder_ / "other_hosts", hosts);
  WriteFile(folder_ / "alias_hosts", "the-alias " + HostKeyLine() + "\n");
  WriteFile(folder_ / "empty", "");
  WriteFile(folder_ / "included", "  Port " + std::to_string(FreePort()) + "\n");
  const std::string port = std::to_string(port_);
  const struct {
    std::string line;
    std::string refusal;  // empty if the connection succeeds
  } cases[] = {
      {"HostName no-such-host.invalid", "cannot resolve the host name 'no-such-host.invalid'"},
      {"Port " + std::to_string(FreePort()), "refused"},
      {"Include " + dir + "/included", "refused"},
      {"User no-such-user", "(no-such-user@127.0.0.1 port " + port + "): login refused"},
      {"UserKnownHostsFile " + dir + "/empty", "is not in " + dir + "/empty"},
      {"UserKnownHostsFile " + dir + "/empty " + dir + "/other_hosts", ""},
      {"UserKnownHostsFile " + dir + "/empty\n  StrictHostKeyChecking no", "write accept-new"},
      {"HostKeyAlias the-alias", "is not in"},
      {"HostKeyAlias the-alias\n  UserKnownHostsFile " + dir + "/alias_hosts", ""},
      {"AddressFamily inet6", "cannot resolve"},
      {"PubkeyAuthentication no", "keys tried: none"},
      {"Ciphers aes256-ctr\n  MACs hmac-sha2-512\n  KexAlgorithms ecdh-sha2-nistp256", ""},
      {"KexAlgorithms sntrup761x25519-sha512@openssh.com",
       "dslaunch supports none of ssh_config's KexAlgorithms"},
      {"Compression yes", ""},
      {"RekeyLimit 1M 1h", ""},
      {"ProxyCommand echo no way >&2; exit 1", "no way"},
      {"ProxyJump none", ""},
      {"NoSuchOption yes", "Bad configuration option"},
      {"LogLevel DEBUG3", ""},
      {"Match exec false\n  Port 1\nHost node1-alias", ""},
  };
  for (const auto& [line, refusal] : cases) {
    WriteFile(folder_ / "ssh_config", "Host node1-alias\n  " + line + "\n" + base);
    Result<std::unique_ptr<NodeLink>> link = Connect();
    if (refusal.empty()) {
      EXPECT_TRUE(link.ok()) << line << ": " << link.error().message;
    } else if (link.ok()) {
      ADD_FAILURE() << line << " was not followed";
    } else {
      EXPECT_THAT(link.error().message, HasSubstr(refusal)) << line;
    }
  }
}

TEST_F(SshConnectTest, FollowsConnectTimeoutOfSshConfig) {
  StartSshd();
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::listen(listener.get(), 4), 0);
  sockaddr_in bound{};
  socklen_t size = sizeof bound;
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &size);
  WriteFile(folder_ / "ssh_config", "Host mute\n  HostName 127.0.0.1\n  ConnectTimeout 1\n");
  const auto start = Clock::now();
  const Error error = Failure({"mute", "mute", ntohs(bound.sin_port), ""});
  EXPECT_LT(Clock::now() - start, milliseconds(2500));
  EXPECT_THAT(error.message, HasSubstr("handshake in time"));
}

TEST_F(SshConnectTest, AcceptsNewHostKeyIfSshConfigAllows) {
  StartSshd();
  const std::string strict = ReadFile(folder_ / "ssh_config");
  WriteFile(folder_ / "ssh_config", strict + "  StrictHostKeyChecking accept-new\n");
  WriteFile(known_hosts(), "");
  EXPECT_TRUE(Connect().ok());
  EXPECT_THAT(ReadFile(known_hosts()), HasSubstr(KnownHostsName() + " " + HostKeyLine()));
  WriteFile(folder_ / "ssh_config", strict);
  EXPECT_TRUE(Connect().ok()) << "it is known from now on";

  ASSERT_EQ(RunProgram({"/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
                        folder_ / "old_key"}),
            0);
  WriteFile(known_hosts(), KnownHostsName() + " " + ReadFile(folder_ / "old_key.pub"));
  WriteFile(folder_ / "ssh_config", strict + "  StrictHostKeyChecking accept-new\n");
  EXPECT_THAT(Failure().message, HasSubstr("CHANGED"));
}

// All hops are the same sshd, but they still form a chain.
TEST_F(SshConnectTest, ConnectsThroughHopsAndNamesFailingHop) {
  StartSshd();
  const std::string direct = ReadFile(folder_ / "ssh_config");
  const std::string body = direct.substr(direct.find('\n') + 1);
  const auto configure = [&](const std::string& jumps, const std::string& first) {
    WriteFile(folder_ / "ssh_config", "Host node1-alias\n  ProxyJump " + jumps + "\n" +
                                          "Host first\n" + first +
                                          "Host first second node1-alias\n" + body);
  };
  configure("first,second", "");
  Result<std::unique_ptr<NodeLink>> link = Connect();
  ASSERT_TRUE(link.ok()) << link.error().message;
  EXPECT_EQ(Echo((*link)->TakeFd().get(), "through both"), "through both");
  EXPECT_TRUE((*link)->WaitEnd(Deadline::After(kPlenty)));

  configure("first,second", "  Port " + std::to_string(FreePort()) + "\n");
  EXPECT_THAT(Failure().message, AllOf(HasSubstr("host 'second' on the way"),
                                       HasSubstr("host 'first' on the way"), HasSubstr("refused")));
  configure("first,second", "  UserKnownHostsFile /dev/null\n");
  const Error unknown_key = Failure();
  EXPECT_EQ(unknown_key.code, ExitCode::kNoPermission);
  EXPECT_THAT(unknown_key.message,
              AllOf(HasSubstr("host 'first' on the way"), HasSubstr("host key")));
  configure("first", "  ProxyJump second\n");
  EXPECT_TRUE(Connect().ok()) << "the first one's own ProxyJump";
  configure("first", "  ProxyJump node1-alias\n");
  EXPECT_THAT(Failure().message, HasSubstr("leads to 'node1-alias' twice"));
}

TEST_F(SshConnectTest, UsesAnotherSshProgram) {
  StartSshd();
  const std::string config = folder_ / "ssh_config";
  SshOptions options;
  options.command = {"/usr/bin/ssh", "-F", config};
  SshTransport transport(FakeAgent(), options);
  const auto connect = [&] { return transport.Connect(Target(), Deadline::After(kPlenty)); };
  for (int round = 0; round < 2; ++round) {  // the first round copies the agent
    Result<std::unique_ptr<NodeLink>> link = connect();
    ASSERT_TRUE(link.ok()) << link.error().message;
    UniqueFd stream = (*link)->TakeFd();
    EXPECT_EQ(Echo(stream.get(), "by the other"), "by the other");
    stream.Reset();
    EXPECT_TRUE((*link)->WaitEnd(Deadline::After(kPlenty)));
  }
  const std::string listed = ReadFile(known_hosts());
  WriteFile(known_hosts(), "");
  Result<std::unique_ptr<NodeLink>> link = connect();
  ASSERT_FALSE(link.ok());
  EXPECT_EQ(link.error().code, ExitCode::kNoPermission);
  EXPECT_THAT(link.error().message, AllOf(HasSubstr("node 'node1' (node1-alias by ssh)"),
                                          HasSubstr("verification failed")));
  WriteFile(known_hosts(), listed);
  WriteFile(home() / ".bashrc", "echo 'This account is closed.' >&2; exit 3\n");
  link = connect();
  ASSERT_FALSE(link.ok());
  EXPECT_THAT(link.error().message,
              AllOf(HasSubstr("exit status 3"), HasSubstr("This account is closed.")));
}

TEST_F(SshConnectTest, ExplainsWhyAgentCannotRun) {
  StartSshd("", "FAKE_AGENT=cannot-run");
  const Error error = Failure();
  EXPECT_EQ(error.code, ExitCode::kUnavailable);
  EXPECT_THAT(error.message, AllOf(HasSubstr("cannot run there"), HasSubstr("GLIBC_9.99")));
  EXPECT_FALSE(std::filesystem::exists(InstalledAgent()));
}

TEST_F(SshConnectTest, TimesOutIfAgentIsSilent) {
  StartSshd("", "FAKE_AGENT=silent");
  const auto start = Clock::now();
  const Error error = Failure(milliseconds(3000));
  EXPECT_LT(Clock::now() - start, milliseconds(3500));
  EXPECT_EQ(error.code, ExitCode::kUnavailable);
  EXPECT_THAT(error.message, HasSubstr("did not start in time"));
}

TEST_F(SshConnectTest, QuotesStderrOfAgentThatDies) {
  StartSshd("", "FAKE_AGENT=dies");
  const Error error = Failure();
  EXPECT_EQ(error.code, ExitCode::kUnavailable);
  EXPECT_THAT(error.message, AllOf(HasSubstr("exit status 3"), HasSubstr("the fake agent died")));
}

TEST_F(SshConnectTest, RefusesFoldersThatOthersMayChange) {
  StartSshd();
  std::filesystem::create_directories(home() / ".cache");
  std::filesystem::permissions(home() / ".cache", std::filesystem::perms::all);
  Error error = Failure();
  EXPECT_EQ(error.code, ExitCode::kUnavailable);
  EXPECT_THAT(error.message, AllOf(HasSubstr("others may change"), HasSubstr("chmod go-w")));

  std::filesystem::remove_all(home() / ".cache");
  std::filesystem::create_directories(home() / ".cache");
  std::filesystem::create_directory(folder_ / "elsewhere");
  std::filesystem::create_directory_symlink(folder_ / "elsewhere", home() / ".cache" / "dslaunch");
  error = Failure();
  EXPECT_THAT(error.message, HasSubstr("no link"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "elsewhere"));
}

TEST_F(SshConnectTest, NeverOverwritesFileAtAgentPath) {
  StartSshd();
  std::filesystem::create_directories(InstalledAgent().parent_path());
  WriteFile(InstalledAgent(), "not an agent");
  const Error error = Failure();
  EXPECT_EQ(error.code, ExitCode::kUnavailable);
  EXPECT_THAT(error.message, HasSubstr("is not the agent"));
  EXPECT_EQ(ReadFile(InstalledAgent()), "not an agent");
}

}  // namespace
}  // namespace dslaunch
