// Tests the receipt of the front end's copies, in a temporary folder.
#include "agent/node/copy_receiver.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <thread>
#include <utility>

#include "base/digest/sha256.h"

namespace dslaunch::copy_receiver_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr size_t kChunkBytes = 1000;

// Simulates the front end with a list of files and their contents.
class FrontEnd {
 public:
  void AddFile(const std::string& path, const std::string& content, uint32_t mode = 0644) {
    pb::CopyEntry entry;
    entry.set_path(path);
    entry.set_mode(mode);
    entry.set_size(content.size());
    Sha256 sum;
    sum.Add(content);
    entry.set_sha256(sum.Finish());
    entry.set_modified_ns(1'600'000'000'123'456'789);
    contents_[entries_.size()] = content;
    entries_.push_back(entry);
  }
  void AddFolder(const std::string& path, uint32_t mode = 0755) {
    pb::CopyEntry entry;
    entry.set_kind(pb::CopyEntry::FOLDER);
    entry.set_path(path);
    entry.set_mode(mode);
    entries_.push_back(entry);
  }
  void AddLink(const std::string& path, const std::string& target) {
    pb::CopyEntry entry;
    entry.set_kind(pb::CopyEntry::LINK);
    entry.set_path(path);
    entry.set_target(target);
    entries_.push_back(entry);
  }
  pb::CopyEntry& entry(size_t index) { return entries_[index]; }
  void SetContent(size_t index, const std::string& content) { contents_[index] = content; }

  // Copies all files to `folder` and returns the result. Breaks the connection off after
  // `break_after` sent bytes.
  pb::CopyOutput CopyTo(const std::string& folder, uint64_t break_after = UINT64_MAX) {
    inputs_.clear();
    pb::CopyInput input;
    input.mutable_head()->set_key(kKey);
    input.mutable_head()->set_num_entries(entries_.size());
    inputs_.push_back(input);
    for (const pb::CopyEntry& entry : entries_) *input.mutable_entries()->add_entries() = entry;
    inputs_.push_back(input);
    uint64_t sent = 0;
    num_waits_ = 0;
    CopyPeer peer;
    peer.read = [&]() -> std::optional<pb::CopyInput> {
      if (sent > die_after_) ::_exit(0);
      if (inputs_.empty() || sent > break_after) return std::nullopt;
      pb::CopyInput next = std::move(inputs_.front());
      inputs_.pop_front();
      sent += next.data().size();
      if (next.has_data() && on_first_data_) std::exchange(on_first_data_, {})();
      return next;
    };
    peer.write = [&](const pb::CopyOutput& output) {
      if (output.output_case() == pb::CopyOutput::OUTPUT_NOT_SET) ++num_waits_;
      for (const pb::CopyPart& part : output.wanted().parts()) Send(part);
      return sent <= break_after;
    };
    return CopyReceiver(folder, std::move(peer)).Run();
  }

  size_t num_waits() const { return num_waits_; }
  void OnFirstData(std::function<void()> act) { on_first_data_ = std::move(act); }
  // Ends this process after `bytes` sent bytes.
  void DieAfter(uint64_t bytes) { die_after_ = bytes; }

  static constexpr char kKey[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

 private:
  void Send(const pb::CopyPart& part) {
    std::string_view rest = contents_.at(part.entry());
    rest.remove_prefix(part.offset());
    for (; !rest.empty(); rest.remove_prefix(std::min(kChunkBytes, rest.size()))) {
      pb::CopyInput input;
      input.set_data(std::string(rest.substr(0, kChunkBytes)));
      inputs_.push_back(input);
    }
  }

  std::vector<pb::CopyEntry> entries_;
  std::map<size_t, std::string> contents_;
  std::deque<pb::CopyInput> inputs_;
  size_t num_waits_ = 0;
  uint64_t die_after_ = UINT64_MAX;
  std::function<void()> on_first_data_;
};

class CopyReceiverTest : public testing::Test {
 protected:
  CopyReceiverTest() {
    char name[] = "/tmp/copies-XXXXXX";
    root_ = ::mkdtemp(name);
    folder_ = root_ + "/copies";
    place_ = folder_ + "/" + FrontEnd::kKey;
  }
  ~CopyReceiverTest() override {
    std::error_code ignored;
    for (fs::recursive_directory_iterator at(root_), end; at != end; at.increment(ignored))
      if (at->is_directory() && !at->is_symlink())
        fs::permissions(at->path(), fs::perms::owner_all, fs::perm_options::add, ignored);
    fs::remove_all(root_);
  }

  std::string Content(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(place_ + "/" + name).rdbuf();
    return text.str();
  }
  mode_t Mode(const std::string& name) const {
    struct stat status {};
    ::lstat((place_ + "/" + name).c_str(), &status);
    return status.st_mode & 07777;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_))
      names.push_back(entry.path().filename().string());
    return names;
  }

  static std::string Stamp() { return std::string(".done-") + FrontEnd::kKey; }

  std::string root_;
  std::string folder_;
  std::string place_;
  FrontEnd front_end_;
};

std::string Text(size_t size) {
  std::string text;
  while (text.size() < size) text += std::to_string(text.size()) + " ";
  text.resize(size);
  return text;
}

TEST_F(CopyReceiverTest, CopiesNamesModesLinksAndContent) {
  front_end_.AddFolder("d", 0555);
  front_end_.AddFile("d/run", Text(12'345), 0755);
  front_end_.AddFile("d/a\nb", "x", 0600);
  front_end_.AddFile("empty", "");
  front_end_.AddLink("link", "d/run");
  const pb::CopyOutput last = front_end_.CopyTo(folder_);
  ASSERT_TRUE(last.has_done()) << last.failure().message();
  EXPECT_EQ(last.done().folder(), place_);
  EXPECT_EQ(last.done().received_bytes(), 12'346u);
  EXPECT_EQ(Content("d/run"), Text(12'345));
  EXPECT_EQ(Content("d/a\nb"), "x");
  EXPECT_EQ(Content("empty"), "");
  EXPECT_EQ(fs::read_symlink(place_ + "/link"), "d/run");
  EXPECT_EQ(Mode("d"), 0555u);
  EXPECT_EQ(Mode("d/run"), 0755u);
  EXPECT_EQ(Mode("d/a\nb"), 0600u);
  EXPECT_THAT(Names(), UnorderedElementsAre(FrontEnd::kKey, Stamp())) << "nothing else is left";
}

TEST_F(CopyReceiverTest, ReceivesNoBytesOfUnchangedFiles) {
  front_end_.AddFile("a", Text(5000));
  ASSERT_TRUE(front_end_.CopyTo(folder_).has_done());
  EXPECT_EQ(front_end_.CopyTo(folder_).done().received_bytes(), 0u);
  // Changes only the modification time.
  front_end_.entry(0).set_modified_ns(1'700'000'000'000'000'000);
  EXPECT_EQ(front_end_.CopyTo(folder_).done().received_bytes(), 0u);
}

TEST_F(CopyReceiverTest, RepairsFilesThatRanksChanged) {
  front_end_.AddFolder("d");
  front_end_.AddFile("d/a", Text(5000));
  front_end_.AddFile("d/b", Text(700));
  front_end_.AddLink("l", "d");
  ASSERT_TRUE(front_end_.CopyTo(folder_).has_done());
  std::ofstream(place_ + "/d/a", std::ios::in).put('!');
  ::unlink((place_ + "/l").c_str());
  fs::create_directory(place_ + "/l");
  std::ofstream(place_ + "/l/x") << "mine";
  EXPECT_EQ(front_end_.CopyTo(folder_).done().received_bytes(), 5000u);
  EXPECT_EQ(Content("d/a"), Text(5000));
  EXPECT_TRUE(fs::is_symlink(place_ + "/l"));
}

TEST_F(CopyReceiverTest, ReplacesAChangedFileWhoseSizeAndTimeWereRestored) {
  front_end_.AddFile("a", Text(5000));
  ASSERT_TRUE(front_end_.CopyTo(folder_).has_done());
  const std::string path = place_ + "/a";
  struct stat before {};
  ASSERT_EQ(::lstat(path.c_str(), &before), 0);
  // The pause is longer than a tick of the clock of file times.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::ofstream(path, std::ios::in).put('!');
  const timespec times[2] = {before.st_mtim, before.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_EQ(front_end_.CopyTo(folder_).done().received_bytes(), 5000u);
  EXPECT_EQ(Content("a"), Text(5000));
  EXPECT_EQ(front_end_.CopyTo(folder_).done().received_bytes(), 0u);
}

TEST_F(CopyReceiverTest, ResumesBrokenCopy) {
  front_end_.AddFile("a", Text(3000));
  front_end_.AddFile("b", Text(50'000));
  const pb::CopyOutput broken = front_end_.CopyTo(folder_, /*break_after=*/20'000);
  ASSERT_TRUE(broken.has_failure());
  EXPECT_FALSE(fs::exists(place_ + "/b")) << "a file is there whole or not at all";
  const pb::CopyOutput last = front_end_.CopyTo(folder_);
  ASSERT_TRUE(last.has_done()) << last.failure().message();
  EXPECT_LE(last.done().received_bytes(), 33'000u);
  EXPECT_GT(last.done().received_bytes(), 0u);
  EXPECT_EQ(Content("b"), Text(50'000));
  EXPECT_THAT(Names(), UnorderedElementsAre(FrontEnd::kKey, Stamp()));
}

TEST_F(CopyReceiverTest, FetchesDamagedPartAgain) {
  front_end_.AddFile("a", Text(50'000));
  ASSERT_TRUE(front_end_.CopyTo(folder_, /*break_after=*/20'000).has_failure());
  std::ofstream(folder_ + "/.part-" + FrontEnd::kKey + "/0", std::ios::in).put('!');
  const pb::CopyOutput last = front_end_.CopyTo(folder_);
  ASSERT_TRUE(last.has_done()) << last.failure().message();
  EXPECT_EQ(Content("a"), Text(50'000));
}

TEST_F(CopyReceiverTest, NamesFileThatChangedDuringCopy) {
  front_end_.AddFile("the file", Text(5000));
  front_end_.SetContent(0, std::string(5000, 'x'));
  const pb::CopyOutput last = front_end_.CopyTo(folder_);
  ASSERT_TRUE(last.has_failure());
  EXPECT_THAT(last.failure().message(), HasSubstr("the file"));
  EXPECT_THAT(last.failure().message(), HasSubstr("changed meanwhile"));
  EXPECT_FALSE(fs::exists(place_ + "/the file"));
}

TEST_F(CopyReceiverTest, ReportsTooLittleSpaceBeforeCopying) {
  front_end_.AddFile("a", "x");
  front_end_.entry(0).set_size(uint64_t{1} << 60);
  const pb::CopyOutput last = front_end_.CopyTo(folder_);
  ASSERT_TRUE(last.has_failure());
  EXPECT_THAT(last.failure().message(), HasSubstr("no space"));
  EXPECT_THAT(last.failure().message(), HasSubstr("EB"));
}

TEST_F(CopyReceiverTest, OnlyOneNodeCopiesIntoSharedHome) {
  front_end_.AddFile("a", Text(5000));
  fs::create_directories(folder_ + "/.lock-" + FrontEnd::kKey);
  fs::permissions(folder_, fs::perms::owner_all);
  FrontEnd other = front_end_;
  std::thread holder([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    fs::remove(folder_ + "/.lock-" + FrontEnd::kKey);
  });
  const pb::CopyOutput last = front_end_.CopyTo(folder_);
  holder.join();
  ASSERT_TRUE(last.has_done()) << last.failure().message();
  EXPECT_GE(front_end_.num_waits(), 1u) << "a sign of life while it waits";
  EXPECT_EQ(other.CopyTo(folder_).done().received_bytes(), 0u);
}

TEST_F(CopyReceiverTest, TakesLockOfDeadProcessAtOnce) {
  front_end_.AddFile("a", Text(50'000));
  const pid_t child = ::fork();
  if (child == 0) {
    front_end_.DieAfter(20'000);
    (void)front_end_.CopyTo(folder_);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_THAT(Names(), testing::Contains(std::string(".lock-") + FrontEnd::kKey));
  const pb::CopyOutput last = front_end_.CopyTo(folder_);
  ASSERT_TRUE(last.has_done()) << last.failure().message();
  EXPECT_LT(last.done().received_bytes(), 50'000u);
  EXPECT_THAT(Names(), UnorderedElementsAre(FrontEnd::kKey, Stamp()));
}

TEST_F(CopyReceiverTest, StopsAfterLosingLock) {
  front_end_.AddFile("a", Text(50'000));
  front_end_.OnFirstData([this] {
    const std::string lock = folder_ + "/.lock-" + FrontEnd::kKey;
    for (const auto& owner : fs::directory_iterator(lock)) fs::remove(owner.path());
    std::ofstream(lock + "/another") << "";
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  });
  const pb::CopyOutput last = front_end_.CopyTo(folder_);
  ASSERT_TRUE(last.has_failure());
  EXPECT_THAT(last.failure().message(), HasSubstr("another node of its home copies"));
  EXPECT_TRUE(fs::exists(folder_ + "/.lock-" + FrontEnd::kKey + "/another"));
}

TEST_F(CopyReceiverTest, RemovesOldSetsAndKeepsOthers) {
  front_end_.AddFile("a", "x");
  fs::create_directories(folder_);
  fs::permissions(folder_, fs::perms::owner_all);
  const std::string old(64, 'a');
  const std::string recent(64, 'b');
  for (const std::string& name : {old, recent, std::string("other"), ".part-" + old}) {
    fs::create_directories(folder_ + "/" + name + "/d");
    const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
    if (name != recent) ::utimensat(AT_FDCWD, (folder_ + "/" + name).c_str(), times, 0);
  }
  ASSERT_TRUE(front_end_.CopyTo(folder_).has_done());
  EXPECT_THAT(Names(), UnorderedElementsAre(FrontEnd::kKey, Stamp(), recent, "other"));
}

TEST_F(CopyReceiverTest, RefusesPathsOutsideFolder) {
  for (const char* path : {"../a", "/a", "a/../../b", "a//b", "", ".", "no/folder"}) {
    FrontEnd front_end;
    front_end.AddFile(path, "x");
    EXPECT_TRUE(front_end.CopyTo(folder_).has_failure()) << path;
  }
  FrontEnd front_end;
  front_end.AddLink("l", "/etc");
  front_end.AddFile("l/x", "x");
  EXPECT_TRUE(front_end.CopyTo(folder_).has_failure()) << "through a link";
}

TEST_F(CopyReceiverTest, RefusesFolderThatOthersMayChange) {
  front_end_.AddFile("a", "x");
  fs::create_directories(folder_);
  ::chmod(folder_.c_str(), 0777);
  const pb::CopyOutput last = front_end_.CopyTo(folder_);
  ASSERT_TRUE(last.has_failure());
  EXPECT_THAT(last.failure().message(), HasSubstr(folder_));
}

}  // namespace
}  // namespace dslaunch::copy_receiver_test
