#include "trainer/checkpoint/folder_lease.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "tests/support/temp_dir.h"
#include "trainer/base/train_error.h"

namespace dslaunch::folder_lease_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr LeaseTimes kFast{.renew_every = milliseconds(20),
                           .dead_after = milliseconds(600),
                           .look_every = milliseconds(5)};

// Returns an owner on another machine; each call returns a different owner.
LeaseOwner Elsewhere() {
  LeaseOwner owner = ThisProcess("", 1);
  owner.machine = "machine of " + owner.token;
  owner.host = "faraway";
  return owner;
}

class FolderLeaseTest : public testing::Test {
 protected:
  std::string File() const { return temp_ / kLeaseFile; }
  std::string Text() const {
    std::ifstream stream(File(), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(temp_.path())) {
      names.push_back(entry.path().filename());
    }
    return names;
  }
  std::unique_ptr<FolderLease> Take(const LeaseOwner& owner) const {
    return std::make_unique<FolderLease>(temp_.path(), owner, kFast);
  }
  // Tries to take the lease as `owner`. Returns the error message, or "" if the lease was taken.
  std::string Refusal(const LeaseOwner& owner) const {
    testing::internal::CaptureStdout();
    std::string problem;
    try {
      Take(owner);
    } catch (const TrainError& error) {
      EXPECT_EQ(error.code(), ExitCode::kBadInput);
      problem = error.what();
    }
    printed_ = testing::internal::GetCapturedStdout();
    return problem;
  }
  // Writes a lease of `owner`, which is never renewed.
  void Leave(const LeaseOwner& owner) const {
    std::ofstream(File(), std::ios::binary) << FormatLease({.owner = owner});
  }

  const TempDir temp_;
  mutable std::string printed_;  // output of the last Refusal()
};

TEST_F(FolderLeaseTest, RenewsLeaseUntilReleased) {
  {
    const auto lease = Take(ThisProcess("4f2a", 1));
    EXPECT_EQ(lease->taken_from(), "");
    EXPECT_THAT(Names(), ElementsAre(kLeaseFile));
    const std::string first = Text();
    const auto deadline = Deadline::After(milliseconds(5000));
    while (Text() == first && !deadline.Expired()) std::this_thread::sleep_for(milliseconds(5));
    EXPECT_NE(Text(), first) << "a thread renews the lease";
    EXPECT_EQ(Text().size(), kLeaseBytes);
    lease->Confirm();
  }
  EXPECT_THAT(Names(), ElementsAre(kLeaseFile)) << "the file stays, marked as released";
  const auto last = ParseLease(Text());
  ASSERT_TRUE(last);
  EXPECT_TRUE(last->released);
  EXPECT_EQ(last->owner.job_id, "4f2a");
  const auto start = Clock::now();
  EXPECT_EQ(Take(Elsewhere())->taken_from(), "") << "the next owner takes it at once";
  EXPECT_LT(Clock::now() - start, kFast.dead_after);
}

TEST_F(FolderLeaseTest, RefusesLeaseOfLiveLocalProcessAtOnce) {
  const auto lease = Take(ThisProcess("4f2a", 1));
  EXPECT_THAT(Refusal(ThisProcess("5b3c", 1)),
              AllOf(HasSubstr(temp_.path() + ": job 4f2a on "), HasSubstr("pid "),
                    HasSubstr("heartbeat 0 s ago"), HasSubstr("give another folder")));
  EXPECT_EQ(printed_, "");
  lease->Confirm();
}

TEST_F(FolderLeaseTest, RefusesRemoteLeaseWhoseHeartbeatChanges) {
  const auto lease = Take(Elsewhere());
  EXPECT_THAT(Refusal(ThisProcess("", 1)),
              AllOf(HasSubstr("a program on faraway"), HasSubstr("its heartbeat continues")));
  EXPECT_THAT(printed_, AllOf(HasSubstr("a program on faraway"), HasSubstr("waiting up to")));
}

TEST_F(FolderLeaseTest, TakesUnchangedRemoteLeaseAfterDeadTime) {
  Leave(Elsewhere());
  const auto start = Clock::now();
  const auto lease = Take(ThisProcess("", 1));
  EXPECT_GE(Clock::now() - start, kFast.dead_after);
  EXPECT_THAT(lease->taken_from(), HasSubstr("a program on faraway"));
  EXPECT_THAT(Names(), ElementsAre(kLeaseFile));
}

TEST_F(FolderLeaseTest, TakesLeaseOfDeadLocalProcessAtOnce) {
  const pid_t child = fork();
  if (child == 0) {
    Leave(ThisProcess("4f2a", 1));
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const auto start = Clock::now();
  const auto lease = Take(ThisProcess("5b3c", 1));
  EXPECT_LT(Clock::now() - start, kFast.dead_after);
  EXPECT_THAT(lease->taken_from(), HasSubstr("job 4f2a"));
}

TEST_F(FolderLeaseTest, TakesLeaseIfPidWasReused) {
  LeaseOwner before = ThisProcess("4f2a", 1);
  --before.process.start_ticks;
  Leave(before);
  EXPECT_THAT(Take(ThisProcess("", 1))->taken_from(), HasSubstr("has ended"));
}

TEST_F(FolderLeaseTest, ConfirmThrowsAfterLeaseWasTaken) {
  const auto first = Take(ThisProcess("4f2a", 1));
  const auto second = Take(ThisProcess("4f2a", 2));
  try {
    first->Confirm();
    ADD_FAILURE() << "two jobs save";
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(temp_.path()), HasSubstr("job 4f2a on ")));
  }
  first->Release();
  EXPECT_THAT(Names(), ElementsAre(kLeaseFile)) << "the file is the second owner's";
  second->Confirm();
}

TEST_F(FolderLeaseTest, ConfirmRecreatesRemovedFile) {
  const auto lease = Take(ThisProcess("", 1));
  fs::remove(File());
  lease->Confirm();
  EXPECT_THAT(Names(), ElementsAre(kLeaseFile));
  EXPECT_NE(Refusal(ThisProcess("", 1)), "");
}

TEST_F(FolderLeaseTest, ConfirmThrowsIoErrorIfFolderIsGone) {
  const auto lease = Take(ThisProcess("", 1));
  fs::remove_all(temp_.path());
  try {
    lease->Confirm();
    ADD_FAILURE();
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kIo);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(temp_.path()), HasSubstr("No such file")));
  }
  fs::create_directory(temp_.path());
}

TEST_F(FolderLeaseTest, DoesNotFollowLinkAsLeaseFile) {
  const std::string target = temp_.Write("precious", "text");
  fs::create_symlink(target, File());
  EXPECT_THROW(Take(ThisProcess("", 1)), TrainError);
  std::ifstream stream(target);
  std::string text;
  stream >> text;
  EXPECT_EQ(text, "text");
}

// Simulates processes on other machines by threads, which all find the same dead owner.
TEST_F(FolderLeaseTest, ExactlyOneOfConcurrentOwnersTakesLease) {
  for (const bool after_a_death : {false, true}) {
    for (int round = 0; round < 5; ++round) {
      if (after_a_death) Leave(Elsewhere());
      std::atomic<int> taken = 0, refused = 0, lost = 0;
      std::atomic<bool> done = false;
      std::vector<std::thread> threads;
      for (int i = 0; i < 6; ++i) {
        threads.emplace_back([&] {
          try {
            const auto lease = Take(Elsewhere());
            ++taken;
            while (!done) std::this_thread::sleep_for(milliseconds(1));
            try {
              lease->Confirm();
            } catch (const TrainError&) {
              ++lost;
            }
          } catch (const TrainError&) {
            ++refused;
          }
        });
      }
      const auto deadline = Deadline::After(milliseconds(20'000));
      while (taken + refused < 6 && !deadline.Expired()) {
        std::this_thread::sleep_for(milliseconds(1));
      }
      done = true;
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(taken - lost, 1);
      EXPECT_EQ(taken + refused, 6);
      EXPECT_THAT(Names(), ElementsAre(kLeaseFile));
      EXPECT_TRUE(ParseLease(Text()).value().released);
    }
  }
}

}  // namespace
}  // namespace dslaunch::folder_lease_test
