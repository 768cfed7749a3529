#include "agent/stacks/python_stack.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "agent/stacks/code_reader.h"
#include "agent/stacks/line_table.h"

namespace dslaunch {
namespace {

constexpr int kFirstWithAddresses = 11;  // first version in which frame_instruction is an address
// First version of Python 3 in which frame_instruction counts units of two bytes. It counts bytes
// in earlier versions.
constexpr int kFirstWithUnits = 10;
constexpr int kFirstWithTags = 13;  // first version in which frame_code may have tag bits
constexpr uint64_t kTagBits = 7;
// Smallest owner of a frame that belongs to the interpreter itself, and largest valid owner.
constexpr uint8_t kFirstOwnerWithoutCode = 3;
constexpr uint8_t kLastOwner = 4;

// Reads frames in blocks of memory, because frames are adjacent from 3.11 on. Forget() must be
// called before each thread, so that no outdated block is used.
class FrameMemory {
 public:
  FrameMemory(MemoryReader& memory, bool by_blocks) : memory_(memory), by_blocks_(by_blocks) {}

  void Forget() { block_ = kNoBlock; }

  template <class T>
  std::optional<T> Read(uint64_t address) {
    const uint64_t block = address & ~(kBlock - 1);
    const uint64_t within = address - block;
    if (!by_blocks_ || within + sizeof(T) > kBlock) return memory_.ReadValue<T>(address);
    if (block != block_) {
      block_ = kNoBlock;
      if (!memory_.Read(block, content_)) return std::nullopt;
      block_ = block;
    }
    T value;
    std::memcpy(&value, content_.data() + within, sizeof value);
    return value;
  }

 private:
  // Size of a block. It divides the size of a page, so a block is mapped completely or not at all.
  static constexpr uint64_t kBlock = 1024;
  static constexpr uint64_t kNoBlock = 1;

  MemoryReader& memory_;
  const bool by_blocks_;
  uint64_t block_ = kNoBlock;
  std::array<std::byte, kBlock> content_;
};

void Mix(uint64_t& hash, uint64_t value) {
  constexpr uint64_t kPrime = 0x100000001b3;  // prime of FNV-1a
  for (unsigned i = 0; i < sizeof value; ++i) {
    hash = (hash ^ (value & 0xff)) * kPrime;
    value >>= 8;
  }
}

// The content of a frame in the process's memory.
struct RawFrame {
  uint64_t code = 0;
  uint64_t previous = 0;
  int64_t instruction = 0;  // byte in the bytecode; set before 3.11
  uint64_t address = 0;     // address in the bytecode; set from 3.11 on
  bool has_code = true;
};

class Walker {
 public:
  Walker(MemoryReader& memory, const PythonLayout& layout, std::span<const pid_t> tids)
      : memory_(memory),
        layout_(layout),
        at_(layout.offsets),
        tids_(tids),
        frames_(memory, layout.minor >= kFirstWithAddresses),
        codes_(memory, layout) {}

  PythonStacks Walk() {
    PythonStacks stacks;
    std::vector<Found> found;
    if (!List(found, stacks.cut)) {
      found.clear();
      stacks.torn = !List(found, stacks.cut);
    }
    if (found.size() == 1 && found[0].tid == 0 && !tids_.empty()) found[0].tid = tids_[0];
    MainFirst(found);
    for (const Found& thread : found) {
      std::optional<PythonThread> walked = WalkThread(thread, stacks.cut);
      if (!walked) {
        walked = WalkThread(thread, stacks.cut);
        if (!walked) stacks.torn = true;
      }
      if (walked)
        stacks.threads.push_back(*std::move(walked));
      else
        stacks.threads.push_back({.tid = thread.tid, .has_gil = thread.has_gil});
    }
    return stacks;
  }

 private:
  struct Found {
    uint64_t address = 0;
    pid_t tid = 0;
    bool has_gil = false;
  };

  // Lists the threads of all interpreters, newest first. Returns false if the lists are
  // inconsistent.
  bool List(std::vector<Found>& found, bool& cut) {
    auto interpreter = memory_.ReadValue<uint64_t>(layout_.runtime + at_.interpreters_head);
    std::set<uint64_t> seen;
    while (interpreter && *interpreter != 0) {
      if (!seen.insert(*interpreter).second || seen.size() > kMaxInterpreters) return false;
      const std::optional<uint64_t> holder = GilHolder(*interpreter);
      auto thread = memory_.ReadValue<uint64_t>(*interpreter + at_.threads_head);
      while (thread && *thread != 0) {
        if (!seen.insert(*thread).second) return false;
        if (found.size() == kMaxReadThreads) {
          cut = true;
          return true;
        }
        const std::optional<Found> next = ReadThread(*thread, holder);
        if (!next) return false;
        if (next->tid >= 0) found.push_back(*next);
        thread = memory_.ReadValue<uint64_t>(*thread + at_.thread_next);
      }
      if (!thread) return false;
      interpreter = memory_.ReadValue<uint64_t>(*interpreter + at_.interpreter_next);
    }
    return interpreter.has_value();
  }

  std::optional<uint64_t> GilHolder(uint64_t interpreter) {
    if (at_.gil_thread != PythonOffsets::kNone)
      return memory_.ReadValue<uint64_t>(layout_.runtime + at_.gil_thread);
    const auto gil = memory_.ReadValue<uint64_t>(interpreter + at_.interpreter_gil);
    if (!gil || *gil == 0) return std::nullopt;
    const auto locked = memory_.ReadValue<int32_t>(*gil + at_.gil_locked);
    if (!locked || *locked != 1) return std::nullopt;
    return memory_.ReadValue<uint64_t>(*gil + at_.gil_holder);
  }

  // Reads a thread state. The tid of the result is -1 if the thread has ended, and 0 if unknown.
  std::optional<Found> ReadThread(uint64_t address, std::optional<uint64_t> holder) {
    Found found = {.address = address, .has_gil = holder == address};
    if (at_.native_thread_id == PythonOffsets::kNone) {
      const auto id = memory_.ReadValue<uint64_t>(address + at_.thread_id);
      if (!id) return std::nullopt;
      found.tid = TidOf(*id);
      return found;
    }
    const auto native = memory_.ReadValue<uint64_t>(address + at_.native_thread_id);
    if (!native) return std::nullopt;
    if (IsTid(static_cast<pid_t>(*native)))
      found.tid = static_cast<pid_t>(*native);
    else if (tids_.size() > 1)
      found.tid = -1;
    return found;
  }

  // Returns the tid in glibc's descriptor of a thread, to which a pthread_t points. The tid follows
  // 704 or 192 bytes of header and two pointers. Returns 0 if neither position contains a known
  // tid.
  pid_t TidOf(uint64_t pthread) {
    constexpr uint64_t kPlaces[] = {720, 208};
    for (const uint64_t place : kPlaces) {
      const auto tid = memory_.ReadValue<int32_t>(pthread + place);
      if (tid && IsTid(*tid)) return *tid;
    }
    return 0;
  }

  bool IsTid(pid_t tid) const { return tid > 0 && std::ranges::find(tids_, tid) != tids_.end(); }

  void MainFirst(std::vector<Found>& found) const {
    std::ranges::reverse(found);  // puts the oldest thread first
    if (tids_.empty()) return;
    const auto main = std::ranges::find(found, tids_[0], &Found::tid);
    if (main != found.end()) std::rotate(found.begin(), main, main + 1);
  }

  std::optional<PythonThread> WalkThread(const Found& found, bool& cut) {
    frames_.Forget();
    PythonThread thread = {.tid = found.tid, .has_gil = found.has_gil};
    thread.signature = 0xcbf29ce484222325;  // initial value of FNV-1a
    auto frame = memory_.ReadValue<uint64_t>(found.address + at_.thread_frame);
    if (at_.cframe_frame != PythonOffsets::kNone && frame && *frame != 0)
      frame = memory_.ReadValue<uint64_t>(*frame + at_.cframe_frame);
    if (!frame) return std::nullopt;
    std::set<uint64_t> seen;
    std::vector<RawFrame> raw_frames;
    for (uint64_t address = *frame; address != 0;) {
      if (raw_frames.size() == kMaxReadFrames || seen.size() > 2 * kMaxReadFrames) {
        cut = true;
        break;
      }
      const std::optional<RawFrame> raw = ReadFrame(address);
      if (!raw || !seen.insert(address).second) return std::nullopt;
      if (raw->has_code) raw_frames.push_back(*raw);
      address = raw->previous;
    }
    for (const RawFrame& raw : raw_frames) {
      if (!Show(raw, thread)) return std::nullopt;
    }
    return thread;
  }

  std::optional<RawFrame> ReadFrame(uint64_t address) {
    RawFrame frame;
    const auto code = frames_.Read<uint64_t>(address + at_.frame_code);
    const auto previous = frames_.Read<uint64_t>(address + at_.frame_previous);
    if (!code || !previous) return std::nullopt;
    frame.code = *code;
    frame.previous = *previous;
    if (layout_.minor < kFirstWithAddresses) {
      const auto index = frames_.Read<int32_t>(address + at_.frame_instruction);
      if (!index) return std::nullopt;
      frame.instruction = *index * (layout_.minor < kFirstWithUnits ? 1 : 2);
      return frame;
    }
    if (layout_.minor >= kFirstWithTags) frame.code &= ~kTagBits;
    const auto instruction = frames_.Read<uint64_t>(address + at_.frame_instruction);
    const auto owner = frames_.Read<uint8_t>(address + at_.frame_owner);
    if (!instruction || !owner || *owner > kLastOwner) return std::nullopt;
    frame.address = *instruction;
    frame.has_code = *owner < kFirstOwnerWithoutCode;
    return frame;
  }

  // Adds the frame to the thread. Returns false if the frame should have code but has none.
  bool Show(const RawFrame& raw, PythonThread& thread) {
    const CodeObject* code = codes_.Read(raw.code);
    if (code == nullptr) return codes_.KindOf(raw.code) == CodeReader::Kind::kNone;
    int64_t instruction = raw.instruction;
    bool is_inside = true;
    if (layout_.minor >= kFirstWithAddresses) {
      instruction = static_cast<int64_t>(raw.address - code->bytecode);
      is_inside = instruction < static_cast<int64_t>(code->bytecode_bytes);
    }
    // CPython 3.12 and later call __init__ from an additional frame, which is not part of the
    // program, so the stack omits this frame.
    if (code->file == "<shim>") return true;
    Mix(thread.signature, raw.code);
    Mix(thread.signature, static_cast<uint64_t>(instruction));
    thread.frames.push_back(
        {code->function, code->file,
         is_inside ? FindLine(layout_.minor, code->lines, code->first_line, instruction) : 0});
    return true;
  }

  MemoryReader& memory_;
  const PythonLayout& layout_;
  const PythonOffsets& at_;
  const std::span<const pid_t> tids_;
  FrameMemory frames_;
  CodeReader codes_;
};

}  // namespace

PythonStacks ReadPythonStacks(MemoryReader& memory, const PythonLayout& layout,
                              std::span<const pid_t> tids) {
  return Walker(memory, layout, tids).Walk();
}

}  // namespace dslaunch
