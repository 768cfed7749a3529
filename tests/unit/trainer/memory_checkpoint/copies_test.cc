#include "trainer/memory_checkpoint/copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "trainer/base/train_error.h"
#include "trainer/memory_checkpoint/memfd_slot.h"

namespace dslaunch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Memory of one slot, which outlives the objects that use it.
using Memory = std::vector<std::byte>;

class MemorySlot final : public CopySlot {
 public:
  explicit MemorySlot(Memory& memory) : memory_(memory) {}
  std::span<std::byte> bytes() override { return memory_; }
  void Grow(size_t bytes) override {
    if (bytes > memory_.size()) memory_.resize(bytes);
  }

 private:
  Memory& memory_;
};

std::string TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class CopiesTest : public testing::Test {
 protected:
  Copies Open() {
    return {Copies::Slots{std::make_unique<MemorySlot>(memory_[0]),
                          std::make_unique<MemorySlot>(memory_[1])},
            owner_};
  }
  static void Begin(Copies& copies, const std::string& state) {
    std::memcpy(copies.Begin(state.size()).data(), state.data(), state.size());
  }
  static void Save(Copies& copies, int64_t step, const std::string& state) {
    Begin(copies, state);
    copies.Commit(step);
  }
  static std::string Read(const Copies& copies, int64_t step, uint64_t attempt = 1) {
    const auto bytes = copies.Read({step, attempt});
    return bytes ? TextOf(*bytes) : "none";
  }

  Memory memory_[2];
  CopyOwner owner_ = {.attempt = 1, .rank = 2, .world_size = 4, .layout = LayoutHash("w[3]")};
};

TEST_F(CopiesTest, KeepsTheTwoNewestCopies) {
  Copies copies = Open();
  EXPECT_THAT(copies.Stored(), IsEmpty());
  Save(copies, 20, "twenty");
  Save(copies, 40, "forty");
  Save(copies, 60, "sixty, which is longer");
  owner_.attempt = 2;
  const Copies next = Open();
  EXPECT_THAT(next.Stored(), ElementsAre(CopyId{60, 1}, CopyId{40, 1}));
  EXPECT_EQ(Read(next, 60), "sixty, which is longer");
  EXPECT_EQ(Read(next, 40), "forty");
  EXPECT_EQ(Read(next, 20), "none");
}

TEST_F(CopiesTest, KeepsOlderCopyWhileNewOneIsUnfinished) {
  Copies copies = Open();
  Save(copies, 20, "twenty");
  Save(copies, 40, "forty");
  Begin(copies, "sixty");
  Copies next = Open();  // a process that is started after a kill
  EXPECT_THAT(next.Stored(), ElementsAre(CopyId{40, 1}));
  Begin(next, "half");
  Save(next, 60, "sixty");
  EXPECT_THAT(next.Stored(), ElementsAre(CopyId{60, 1}, CopyId{40, 1}));
}

TEST_F(CopiesTest, ReplacesNewerCopyThatRanksDidNotChoose) {
  Copies copies = Open();
  Save(copies, 20, "twenty");
  Save(copies, 40, "forty");
  owner_.attempt = 2;
  Copies next = Open();
  next.Keep({20, 1});
  Save(next, 25, "new");
  EXPECT_THAT(next.Stored(), ElementsAre(CopyId{25, 2}, CopyId{20, 1}));
}

TEST_F(CopiesTest, IgnoresCopiesWithOtherRankOrLayout) {
  Copies copies = Open();
  Save(copies, 20, "twenty");
  const CopyOwner owner = owner_;
  for (const auto& change :
       std::vector<std::function<void()>>{[&] { owner_.rank = 3; }, [&] { owner_.world_size = 3; },
                                          [&] { owner_.layout = LayoutHash("w[4]"); }}) {
    change();
    EXPECT_THAT(Open().Stored(), IsEmpty());
    owner_ = owner;
  }
  EXPECT_THAT(Open().Stored(), ElementsAre(CopyId{20, 1}));
}

TEST_F(CopiesTest, DetectsEveryFlippedBit) {
  Copies copies = Open();
  Save(copies, 20, "a state");
  Memory& slot = memory_[0];
  const size_t used = kSlotHeaderBytes + 7;
  for (size_t at = 0; at < used; ++at) {
    if (at >= kSlotHeaderFields && at < kSlotHeaderBytes) continue;  // these bytes are unused
    for (int bit = 0; bit < 8; ++bit) {
      slot[at] ^= std::byte{1} << bit;
      EXPECT_EQ(Read(Open(), 20), "none") << "byte " << at << ", bit " << bit;
      slot[at] ^= std::byte{1} << bit;
    }
  }
  EXPECT_EQ(Read(Open(), 20), "a state");
}

TEST_F(CopiesTest, IgnoresTruncatedSlot) {
  Copies copies = Open();
  Save(copies, 20, "a state");
  const Memory whole = memory_[0];
  for (const size_t size :
       {size_t{0}, size_t{8}, kSlotHeaderBytes - 1, kSlotHeaderBytes, whole.size() - 1}) {
    memory_[0].assign(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THAT(Open().Stored(), IsEmpty()) << size;
  }
}

TEST_F(CopiesTest, NotedStepOutlivesCopiesAndAttempt) {
  Copies copies = Open();
  EXPECT_EQ(copies.noted_step(), std::nullopt);
  copies.NoteStep(19);
  Save(copies, 20, "twenty");
  copies.NoteStep(23);
  owner_.attempt = 2;
  EXPECT_EQ(Open().noted_step(), 23);
  memory_[0][kNotedStepOffset] ^= std::byte{1};
  EXPECT_EQ(Open().noted_step(), std::nullopt);
  EXPECT_EQ(Read(Open(), 20), "twenty");
}

UniqueFd MakeMemory(int seals) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (seals != 0) fcntl(fd.get(), F_ADD_SEALS, seals);
  return fd;
}

TEST(MemfdSlotTest, KeepsBytesForNextUser) {
  const UniqueFd fd = MakeMemory(F_SEAL_SHRINK);
  const auto slot = MemfdSlot::Open(fd.get());
  EXPECT_TRUE(slot->bytes().empty());
  slot->Grow(10'000);
  slot->bytes()[9'999] = std::byte{7};
  slot->Grow(100);
  EXPECT_EQ(slot->bytes().size(), 10'000u);
  const auto next = MemfdSlot::Open(fd.get());
  ASSERT_EQ(next->bytes().size(), 10'000u);
  EXPECT_EQ(next->bytes()[9'999], std::byte{7});
  next->Grow(20'000);
  EXPECT_EQ(next->bytes()[9'999], std::byte{7});
  EXPECT_NE(fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(MemfdSlotTest, RefusesOtherDescriptors) {
  const UniqueFd shrinkable = MakeMemory(0);
  const UniqueFd file(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {shrinkable.get(), file.get(), 999'999}) {
    try {
      MemfdSlot::Open(fd);
      ADD_FAILURE() << fd;
    } catch (const TrainError& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      EXPECT_THAT(error.what(), HasSubstr("DSLAUNCH_MEMORY_FDS: descriptor " + std::to_string(fd)));
    }
  }
}

}  // namespace
}  // namespace dslaunch
