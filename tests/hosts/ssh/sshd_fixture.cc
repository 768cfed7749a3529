#include "tests/hosts/ssh/sshd_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <random>
#include <thread>

#include "base/deadline.h"
#include "base/os/subprocess.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

pid_t Start(const std::vector<std::string>& argv) {
  SpawnSpec spec;
  spec.executable = argv[0];
  spec.argv = argv;
  spec.env = CurrentEnvironment();
  spec.stderr_fd = 2;
  spec.parent_death_signal = SIGTERM;  // so that a crashed test leaves no sshd
  return Spawn(spec).pid;
}

bool Listens(int port) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Loopback(port);
  return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace

int RunProgram(const std::vector<std::string>& argv) {
  const pid_t pid = Start(argv);
  int status = 0;
  if (pid < 0 || ::waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void WriteFile(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Chooses a port outside the kernel's range for connections, so that no other process takes the
// port before sshd listens there.
int FreePort() {
  std::random_device random;
  for (int tries = 0; tries < 100; ++tries) {
    const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address =
        Loopback(std::uniform_int_distribution<uint16_t>(12000, 30000)(random));
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
      return ntohs(address.sin_port);
  }
  return -1;
}

void SshdTest::SetUp() {
  // SIGPIPE is ignored as in dslaunch's main, because a test may end while bytes arrive.
  std::signal(SIGPIPE, SIG_IGN);
  std::string name = (std::filesystem::temp_directory_path() / "dslaunch-sshd-XXXXXX").string();
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  folder_ = name;
  std::filesystem::create_directory(home());
  for (const char* key : {"host_key", "user_key"}) {
    ASSERT_EQ(
        RunProgram({"/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder_ / key}),
        0);
  }
  std::filesystem::copy_file(folder_ / "user_key.pub", folder_ / "authorized_keys");
}

void SshdTest::TearDown() {
  StopSshd();
  if (HasFailure()) GTEST_LOG_(INFO) << "sshd said: " << ReadFile(folder_ / "sshd.log");
  // sshd's children may still write to its log, so the removal is repeated.
  std::error_code busy;
  for (int i = 0; i < 50 && std::filesystem::exists(folder_); ++i) {
    std::filesystem::remove_all(folder_, busy);
    if (busy) std::this_thread::sleep_for(milliseconds(20));
  }
}

void SshdTest::StartSshd(const std::string& extra_config, const std::string& environment) {
  if (::getuid() == 0) std::filesystem::create_directories("/run/sshd");
  port_ = FreePort();
  const std::string dir = folder_.string();
  WriteFile(folder_ / "sshd_config",
            extra_config + "\nListenAddress 127.0.0.1\nPort " + std::to_string(port_) +
                "\nHostKey " + dir + "/host_key\nAuthorizedKeysFile " + dir +
                "/authorized_keys\nPidFile none\nUsePAM no\nStrictModes no\n"
                "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
                "PermitRootLogin yes\nSetEnv HOME=" +
                home().string() + " " + environment + "\n");
  WriteFile(folder_ / "ssh_config",
            "Host node1-alias\n  HostName 127.0.0.1\n  Port " + std::to_string(port_) +
                "\n  UserKnownHostsFile " + known_hosts().string() + "\n  GlobalKnownHostsFile " +
                dir + "/global_known_hosts\n  IdentityFile " + dir + "/user_key\n");
  WriteFile(known_hosts(), KnownHostsName() + " " + HostKeyLine() + "\n");
  sshd_pid_ = Start({"/usr/sbin/sshd", "-D", "-E", dir + "/sshd.log", "-f", dir + "/sshd_config"});
  ASSERT_GT(sshd_pid_, 0);
  const Deadline deadline = Deadline::After(milliseconds(10000));
  while (!Listens(port_)) {
    ASSERT_FALSE(deadline.Expired()) << ReadFile(folder_ / "sshd.log");
    std::this_thread::sleep_for(milliseconds(10));
  }
}

void SshdTest::StopSshd() {
  if (sshd_pid_ <= 0) return;
  ::kill(sshd_pid_, SIGTERM);
  ::waitpid(sshd_pid_, nullptr, 0);
  sshd_pid_ = -1;
}

std::string SshdTest::HostKeyLine() const {
  const std::string line = ReadFile(folder_ / "host_key.pub");
  return line.substr(0, line.find(' ', line.find(' ') + 1));
}

}  // namespace dslaunch
