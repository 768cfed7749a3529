// Tests three processes that own a folder of checkpoints one after the other, as if on different
// machines. One is suspended, one is killed, one keeps running, in all orders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/checkpoint_folder.h"

namespace dslaunch::folder_owners_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr LeaseTimes kFast{.renew_every = milliseconds(20),
                           .dead_after = milliseconds(600),
                           .look_every = milliseconds(5)};
constexpr char kGood[] = "good";

// A job that saves checkpoints in a child process. It reads commands as lines: "begin 3", "commit
// 3", "settle 3", "leave 0".
class Job {
 public:
  explicit Job(const std::string& folder) : folder_(folder) {
    LeaseOwner self = ThisProcess("", 1);
    self.machine = "machine of " + self.token;
    lease_ = std::make_shared<FolderLease>(folder, self, kFast);
    folder_.UseLease(lease_);
    folder_.RemoveLeftovers();
  }

  void Do(const std::string& what, int64_t step) {
    const std::string tag = TagOf(step), begun = folder_.BegunPath(tag, "save");
    if (what == "begin") {
      folder_.Begin(begun);
    } else if (what == "commit") {
      const auto weight = static_cast<float>(step);
      Manifest m;
      m.run_id = "run";  // every job continues the same run
      m.position.step = step;
      m.world_size = 1;
      m.files = {{"w.safetensors",
                  WriteSafetensors(begun + "/w.safetensors", {{"w", "F32", {1}, &weight}})}};
      m.tensors = {{"w", "F32", {1}, {{Shard::Whole(1), "w.safetensors"}}}};
      folder_.Commit(begun, tag, m);
    } else if (what == "settle") {
      folder_.Settle(tag, "run", /*keep=*/1);
    } else {
      lease_->Release();
    }
  }

 private:
  CheckpointFolder folder_;
  std::shared_ptr<FolderLease> lease_;
};

class Owner {
 public:
  explicit Owner(const std::string& folder) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) std::abort();
    socket_ = ends[0];
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      // Discards the job's notices.
      if (std::freopen("/dev/null", "w", stdout) == nullptr) _exit(1);
      Run(folder, ends[1]);
      _exit(0);
    }
    close(ends[1]);
    taken_ = Hear();
  }
  ~Owner() {
    Kill();
    close(socket_);
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  const std::string& taken() const { return taken_; }  // kGood, or the error of taking the folder
  std::string Ask(const std::string& what, int64_t step = 0) {
    const std::string line = what + " " + std::to_string(step);
    if (send(socket_, line.data(), line.size(), MSG_NOSIGNAL) < 0) return "it has ended";
    return Hear();
  }
  void Stop() const {
    kill(pid_, SIGSTOP);
    waitpid(pid_, nullptr, WUNTRACED);
  }
  void Continue() const { kill(pid_, SIGCONT); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  static void Run(const std::string& folder, int socket) {
    std::unique_ptr<Job> job;
    const auto answer = [&](const std::function<void()>& action) {
      std::string text = kGood;
      try {
        action();
      } catch (const std::exception& error) {
        text = error.what();
      }
      return send(socket, text.data(), text.size(), MSG_NOSIGNAL) > 0;
    };
    if (!answer([&] { job = std::make_unique<Job>(folder); }) || !job) return;
    char line[64];
    for (ssize_t n; (n = recv(socket, line, sizeof line, 0)) > 0;) {
      const std::string text(line, static_cast<size_t>(n));
      const size_t space = text.find(' ');
      answer([&] { job->Do(text.substr(0, space), std::stoll(text.substr(space))); });
    }
  }

  std::string Hear() const {
    char text[4096];
    const ssize_t n = recv(socket_, text, sizeof text, 0);
    return n > 0 ? std::string(text, static_cast<size_t>(n)) : "it has ended";
  }

  int socket_ = -1;
  pid_t pid_ = 0;
  std::string taken_;
};

enum class Fate { kSuspended, kKilled, kLives };

class FolderOwnersTest : public testing::Test {
 protected:
  // Returns the contents of all files in the folder except the lease, by path.
  std::map<std::string, std::string> Content() const {
    std::map<std::string, std::string> content;
    for (const auto& entry : fs::recursive_directory_iterator(temp_.path())) {
      if (!entry.is_regular_file() || entry.path().filename() == kLeaseFile) continue;
      std::ifstream stream(entry.path(), std::ios::binary);
      content[entry.path()] = {std::istreambuf_iterator<char>(stream), {}};
    }
    return content;
  }

  void Save(Owner& owner, int64_t step) const {
    for (const char* what : kSteps) EXPECT_EQ(owner.Ask(what, step), kGood) << what;
  }

  // Runs three owners one after the other. The suspended owner is stopped after the first `done`
  // parts of a save. With `late`, it continues after the last owner has left, otherwise before.
  // With `lease_goes`, the lease is deleted before it continues.
  void Try(const std::vector<Fate>& fates, size_t done, bool late, bool lease_goes = false) {
    std::unique_ptr<Owner> owners[3];
    size_t suspended = 0;
    int64_t step = 0, begun = 0;
    for (size_t i = 0; i < 3; ++i) {
      if (i > 0 && fates[i - 1] == Fate::kLives) {
        EXPECT_THAT(Owner(temp_.path()).taken(), HasSubstr("saves there"));
        Save(*owners[i - 1], ++step);
        EXPECT_EQ(owners[i - 1]->Ask("leave"), kGood);
      }
      owners[i] = std::make_unique<Owner>(temp_.path());
      ASSERT_EQ(owners[i]->taken(), kGood);
      Save(*owners[i], ++step);
      if (fates[i] == Fate::kKilled) owners[i]->Kill();
      if (fates[i] != Fate::kSuspended) continue;
      suspended = i;
      begun = ++step;
      for (size_t k = 0; k < done; ++k) EXPECT_EQ(owners[i]->Ask(kSteps[k], begun), kGood);
      owners[i]->Stop();
    }
    if (late && fates[2] == Fate::kLives) EXPECT_EQ(owners[2]->Ask("leave"), kGood);
    if (lease_goes) fs::remove(temp_ / kLeaseFile);
    const auto before = Content();
    Owner& back = *owners[suspended];
    back.Continue();
    for (size_t k = done; k < std::size(kSteps); ++k) {
      const std::string answer = back.Ask(kSteps[k], begun);
      if (suspended == 2) {
        EXPECT_EQ(answer, kGood) << "no other job has had the folder since";
      } else if (k != 1) {
        EXPECT_THAT(answer, HasSubstr("no longer has the lease"));
      } else {  // the next owner has removed the unfinished save
        EXPECT_THAT(answer, HasSubstr("No such file"));
      }
    }
    if (suspended != 2) EXPECT_EQ(Content(), before) << "the suspended owner changed files";
    EXPECT_EQ(back.Ask("leave"), kGood);
    if (fates[2] != Fate::kLives || late) return;
    Save(*owners[2], ++step);
  }

  static constexpr const char* kSteps[] = {"begin", "commit", "settle"};
  TempDir temp_;
};

TEST_F(FolderOwnersTest, SuspendedOwnerChangesNothingInAnyOrder) {
  std::vector<Fate> fates = {Fate::kSuspended, Fate::kKilled, Fate::kLives};
  size_t done = 0;
  do {
    for (const bool late : {false, true}) {
      SCOPED_TRACE(testing::Message() << "the fates are " << static_cast<int>(fates[0])
                                      << static_cast<int>(fates[1]) << static_cast<int>(fates[2])
                                      << ", after " << done << " parts of a save, late: " << late);
      Try(fates, done, late);
      fs::remove_all(temp_.path());
      fs::create_directory(temp_.path());
    }
    done = (done + 1) % 3;
  } while (std::ranges::next_permutation(fates).found);
}

TEST_F(FolderOwnersTest, SuspendedOwnerChangesNothingInAnyPartOfASave) {
  for (size_t done = 0; done < std::size(kSteps); ++done) {
    SCOPED_TRACE(done);
    Try({Fate::kSuspended, Fate::kKilled, Fate::kLives}, done, /*late=*/true);
    fs::remove_all(temp_.path());
    fs::create_directory(temp_.path());
  }
}

// The lease may be deleted by a user, or by an older version that owned the folder in the meantime.
TEST_F(FolderOwnersTest, SuspendedOwnerLosesItsFolderWithADeletedLease) {
  Try({Fate::kSuspended, Fate::kKilled, Fate::kLives}, 0, /*late=*/true, /*lease_goes=*/true);
}

}  // namespace
}  // namespace dslaunch::folder_owners_test
