#include "tests/support/standin_gpu/memory.h"

#include <c10/util/Exception.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "tests/support/standin_gpu/launch.h"
#include "tests/support/standin_gpu/settings.h"
#include "tests/support/standin_gpu/streams.h"

namespace dslaunch::standin {
namespace {

constexpr size_t kAlignment = 512, kPage = 4096;
constexpr int kPinned = -1;  // placeholder for a stream
constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

struct Block {
  uintptr_t begin = 0;
  size_t bytes = 0;
  int stream = kPinned;  // stream for which the block was allocated
  bool live = false;
  GraphMemory* graph = nullptr;
  AccessLog log;
  std::set<int> recorded;  // streams of record_stream() calls
};

// Maps the same bytes at two addresses: one for tensors and one for kernels.
struct Region {
  uintptr_t tensors = 0, kernels = 0;
  uint64_t used = 0;

  bool Has(const void* p) const { return reinterpret_cast<uintptr_t>(p) - tensors < kRegionBytes; }
};

// A freed block that other streams may still use.
struct Lingering {
  uintptr_t block;
  std::vector<std::shared_ptr<EventMark>> until;
};

void* Map(int protection, int flags, int fd) {
  void* const p = mmap(nullptr, kRegionBytes, protection, flags | MAP_NORESERVE, fd, 0);
  TORCH_CHECK(p != MAP_FAILED, "standin: mmap: ", std::strerror(errno));
  return p;
}
uintptr_t MapAt(int protection, int flags, int fd) {
  return reinterpret_cast<uintptr_t>(Map(protection, flags, fd));
}

[[noreturn]] void EndByRace(const std::string& race) {
  std::fprintf(stderr, "standin: RACE: %s\n", race.c_str());
  std::_Exit(kExitRace);
}

void Protect(const Block& block, int protection) {
  mprotect(reinterpret_cast<void*>(block.begin), block.bytes, protection);
}

struct sigaction former_action;

void OnFault(int signal, siginfo_t* info, void*) {
  const char* text = nullptr;
  if (IsDevicePointer(info->si_addr)) {
    text = "standin: the host touches memory of the device\n";
  } else if (IsPinnedPointer(info->si_addr)) {
    text = "standin: the host touches pinned memory that a stream still reads or writes\n";
  }
  if (text != nullptr) {
    [[maybe_unused]] const auto written = write(STDERR_FILENO, text, std::strlen(text));
    _exit(kExitTouched);
  }
  sigaction(signal, &former_action, nullptr);
}

}  // namespace

// All memory of all devices. Precondition: DeviceMutex is held.
struct MemoryState {
  std::vector<Region> devices;
  Region pinned;
  std::map<uintptr_t, Block> blocks;                          // blocks by first address
  std::multimap<std::pair<int, size_t>, uintptr_t> reusable;  // free blocks by stream and size
  std::vector<Lingering> lingering;
  std::set<uintptr_t> guarded;  // pinned blocks to which the host's access is restricted
  std::vector<c10::CachingDeviceAllocator::DeviceStats> stats;
  GraphMemory* graph = nullptr;

  MemoryState() : devices(static_cast<size_t>(DeviceCount())), stats(devices.size()) {
    for (Region& device : devices) {
      device.tensors = MapAt(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
      device.kernels = MapAt(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    }
    const int fd = memfd_create("pinned", MFD_CLOEXEC);
    TORCH_CHECK(fd >= 0 && ftruncate(fd, static_cast<off_t>(kRegionBytes)) == 0,
                "standin: memfd_create: ", std::strerror(errno));
    pinned.tensors = MapAt(PROT_READ | PROT_WRITE, MAP_SHARED, fd);
    pinned.kernels = MapAt(PROT_READ | PROT_WRITE, MAP_SHARED, fd);
    close(fd);
    struct sigaction action = {};
    action.sa_sigaction = &OnFault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &former_action);
    SetHostListener([this] { GuardAgain(); });
  }

  Block* Find(const void* p) {
    const auto address = reinterpret_cast<uintptr_t>(p);
    const auto next = blocks.upper_bound(address);
    if (next == blocks.begin()) return nullptr;
    Block& block = std::prev(next)->second;
    return address < block.begin + block.bytes ? &block : nullptr;
  }

  // Allows the host to access a pinned block as far as no stream's work conflicts with it. Returns
  // whether some access is still forbidden.
  static bool Guard(const Block& block) {
    bool read = false, written = false;
    for (const Access& access : block.log.accesses()) {
      if (!access.IsBefore(HostClock())) (access.write ? written : read) = true;
    }
    Protect(block, written ? PROT_NONE : read ? PROT_READ : PROT_READ | PROT_WRITE);
    return read || written;
  }
  void GuardAgain() {
    std::erase_if(guarded, [this](uintptr_t begin) { return !Guard(blocks.at(begin)); });
  }

  void Reuse(Block& block) {
    block.log.Clear();
    block.recorded.clear();
    if (block.stream == kPinned) {
      guarded.erase(block.begin);
      Protect(block, PROT_READ | PROT_WRITE);
    } else {
      // The fill runs in the stream's order, so that a wrong later read in that stream gets NaN.
      Submit(block.stream, [address = KernelAddress(reinterpret_cast<void*>(block.begin)),
                            bytes = block.bytes] { std::memset(address, 0xff, bytes); });
    }
    reusable.emplace(std::pair(block.stream, block.bytes), block.begin);
  }

  void CollectLingering() {
    std::erase_if(lingering, [this](const Lingering& item) {
      for (const auto& mark : item.until) {
        if (!mark->IsSet()) return false;
      }
      Reuse(blocks.at(item.block));
      return true;
    });
  }

  void Account(const Block& block, bool allocated) {
    const int device = block.stream / kStreamsPerDevice;
    auto& stat = stats[static_cast<size_t>(device)];
    const auto bytes = static_cast<int64_t>(block.bytes);
    for (auto* values : {&stat.allocated_bytes, &stat.reserved_bytes}) {
      if (allocated) {
        (*values)[kAll].increase(block.bytes);
      } else {
        (*values)[kAll].decrease(block.bytes);
      }
    }
    ++(allocated ? stat.num_device_alloc : stat.num_device_free);
    const auto now = static_cast<size_t>(stat.allocated_bytes[kAll].current);
    c10::reportMemoryUsageToProfiler(
        reinterpret_cast<void*>(block.begin), allocated ? bytes : -bytes, now, now,
        c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(device)));
  }

  void CheckLimit(int stream, size_t bytes) {
    const auto device = static_cast<size_t>(stream / kStreamsPerDevice);
    const auto used = static_cast<uint64_t>(stats[device].allocated_bytes[kAll].current);
    const uint64_t limit = TheSettings().device_bytes;
    if (used + bytes <= limit) return;
    ++stats[device].num_ooms;
    C10_THROW_ERROR(OutOfMemoryError,
                    c10::str("CUDA out of memory. Tried to allocate ", bytes, " bytes. GPU ",
                             device, " has a total capacity of ", limit, " bytes of which ",
                             limit - used, " bytes is free."));
  }

  void* Allocate(size_t wanted, int stream) {
    CollectLingering();
    const bool is_pinned = stream == kPinned;
    const size_t unit = is_pinned ? kPage : kAlignment;
    const size_t bytes = (wanted + unit - 1) / unit * unit;
    if (!is_pinned) CheckLimit(stream, bytes);
    uintptr_t begin = 0;
    if (const auto found = reusable.find({stream, bytes}); found != reusable.end()) {
      begin = found->second;
      reusable.erase(found);
    } else {
      Region& region =
          is_pinned ? pinned : devices[static_cast<size_t>(stream / kStreamsPerDevice)];
      TORCH_CHECK(region.used + bytes <= kRegionBytes, "standin: its address space is used up");
      begin = region.tensors + region.used;
      region.used += bytes;
    }
    Block& block = blocks[begin];
    block.begin = begin;
    block.bytes = bytes;
    block.stream = stream;
    block.live = true;
    if (!is_pinned) {
      block.graph = graph;
      if (graph != nullptr) graph->blocks_.push_back(begin);
      Account(block, /*allocated=*/true);
    }
    return reinterpret_cast<void*>(begin);
  }

  void Free(void* p) {
    Block& block = blocks.at(reinterpret_cast<uintptr_t>(p));
    block.live = false;
    if (block.stream != kPinned) {
      CheckFree(block);
      Account(block, /*allocated=*/false);
    }
    if (block.graph == nullptr) Release(block);
  }

  // Ends the process if another stream may still use the freed block, because its own stream may
  // reuse the memory at once, without any wait.
  void CheckFree(const Block& block) const {
    for (const Access& access : block.log.accesses()) {
      if (access.stream == block.stream || access.IsBefore(HostClock()) ||
          access.IsBefore(StreamClock(block.stream)) || block.recorded.contains(access.stream)) {
        continue;
      }
      EndByRace("memory of " + StreamName(block.stream) + " is freed while " + access.what +
                " in " + StreamName(access.stream) +
                " may still use it, and no record_stream was called");
    }
  }

  // Makes the block reusable once other streams are done with it, as CUDA's caching allocators do.
  void Release(Block& block) {
    Lingering item{block.begin, {}};
    for (const Access& access : block.log.accesses()) {
      if (access.stream == block.stream || access.IsBefore(HostClock())) continue;
      if (block.stream != kPinned && access.IsBefore(StreamClock(block.stream))) continue;
      item.until.push_back(RecordEvent(access.stream));
    }
    if (item.until.empty()) {
      Reuse(block);
    } else {
      lingering.push_back(std::move(item));
    }
  }

  void Forget(const GraphMemory& gone) {
    for (const uintptr_t begin : gone.blocks_) {
      Block& block = blocks.at(begin);
      block.graph = nullptr;
      if (!block.live) Release(block);
    }
  }
};

namespace {

MemoryState& Memory() {
  static auto* const memory = new MemoryState;
  return *memory;
}

void FreeBlock(void* p) {
  if (p == nullptr) return;
  const std::lock_guard lock(DeviceMutex());
  Memory().Free(p);
}

class DeviceMemory final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::DeviceIndex device = CurrentDevice();
    const std::lock_guard lock(DeviceMutex());
    void* const p =
        bytes == 0 ? nullptr : Memory().Allocate(bytes, NumberOf(CurrentStream(device)));
    return {p, p, &FreeBlock, c10::Device(kDeviceType, device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &FreeBlock; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    Enqueue(CurrentStream(CurrentDevice()), {.name = "copy_data",
                                             .touches = {{from, bytes, false}, {to, bytes, true}},
                                             .kernel = [to, from, bytes](uint64_t) {
                                               std::memcpy(KernelAddress(to), KernelAddress(from),
                                                           bytes);
                                             }});
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (data.get() == nullptr || data.get_deleter() != &FreeBlock)
      return;  // foreign memory is ignored, as in CUDA's allocator
    const std::lock_guard lock(DeviceMutex());
    if (Block* const block = Memory().Find(data.get())) block->recorded.insert(NumberOf(stream));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const std::lock_guard lock(DeviceMutex());
    return Memory().stats.at(static_cast<size_t>(device));
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex device) override {
    const std::lock_guard lock(DeviceMutex());
    auto& stat = Memory().stats.at(static_cast<size_t>(device));
    for (auto& value : stat.allocated_bytes) value.reset_peak();
    for (auto& value : stat.reserved_bytes) value.reset_peak();
  }
};

class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const std::lock_guard lock(DeviceMutex());
    void* const p = bytes == 0 ? nullptr : Memory().Allocate(bytes, kPinned);
    return {p, p, &FreeBlock, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &FreeBlock; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

}  // namespace

bool IsDevicePointer(const void* p) { return DeviceOf(p) >= 0; }
bool IsPinnedPointer(const void* p) { return Memory().pinned.Has(p); }
c10::DeviceIndex DeviceOf(const void* p) {
  const std::vector<Region>& devices = Memory().devices;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].Has(p)) return static_cast<c10::DeviceIndex>(i);
  }
  return -1;
}
void* KernelAddress(const void* p) {
  const c10::DeviceIndex device = DeviceOf(p);
  if (device < 0 && !IsPinnedPointer(p)) return const_cast<void*>(p);
  const Region& region =
      device < 0 ? Memory().pinned : Memory().devices[static_cast<size_t>(device)];
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(p) - region.tensors + region.kernels);
}

void CheckTouches(int stream, const char* what, const std::vector<Touch>& touches) {
  const Clock& clock = StreamClock(stream);
  for (const Touch& touch : touches) {
    if (touch.bytes == 0) continue;
    Block* const block = Memory().Find(touch.begin);
    if (block == nullptr || !(block->live || block->graph != nullptr)) {
      EndByRace(std::string(what) + " in " + StreamName(stream) + " uses memory that is freed");
    }
    const auto begin = reinterpret_cast<uintptr_t>(touch.begin);
    const Access access{begin, begin + touch.bytes, touch.write, stream, clock[stream], what};
    const std::vector<Access> conflicts = block->log.Add(access, clock);
    if (!conflicts.empty()) EndByRace(DescribeRace(access, conflicts.front()));
    if (block->stream == kPinned && MemoryState::Guard(*block)) {
      Memory().guarded.insert(block->begin);
    }
  }
}

GraphMemory::~GraphMemory() {
  const std::lock_guard lock(DeviceMutex());
  Memory().Forget(*this);
}
void AllocateFor(GraphMemory* graph) {
  const std::lock_guard lock(DeviceMutex());
  Memory().graph = graph;
}

c10::DeviceAllocator& TheDeviceAllocator() {
  static auto* const allocator = new DeviceMemory;
  return *allocator;
}
c10::Allocator& ThePinnedAllocator() {
  static auto* const allocator = new PinnedMemory;
  return *allocator;
}

}  // namespace dslaunch::standin
