#include "rendezvous/wait_place.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/text/sanitize.h"
#include "proto/wire/rank_stacks.h"

namespace dslaunch {
namespace {

using Kind = WaitPlace::Kind;

// A function in which a rank waits for other ranks. If `function` is empty, all functions of the
// file count.
struct KnownPlace {
  std::string_view file_end;
  std::string_view function;
};
constexpr KnownPlace kKnownPlaces[] = {
    {"torch/cuda/__init__.py", "synchronize"}, {"torch/cuda/streams.py", "synchronize"},
    {"torch/nn/parallel/distributed.py", ""},  {"deepspeed/comm/comm.py", ""},
    {"deepspeed/comm/torch.py", ""},           {"horovod/torch/mpi_ops.py", ""},
    {"horovod/tensorflow/mpi_ops.py", ""},
};
constexpr std::string_view kTorchDistributed = "torch/distributed/";

// Path of torchrun, which waits for its child processes and not for other ranks.
constexpr std::string_view kTorchrun = "torch/distributed/elastic/";

// Path of the decorator that logs calls of torch.distributed. Its frames are not places of waiting.
constexpr std::string_view kDecorators = "torch/distributed/c10d_logger.py";

// Folders of libraries. Any file outside of these folders belongs to the program.
constexpr std::string_view kLibraries[] = {"-packages/torch/", "-packages/deepspeed/",
                                           "-packages/horovod/", "-packages/mpi4py/",
                                           "-packages/accelerate/"};

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Returns the last component of a qualified name.
std::string_view ShortName(std::string_view function) {
  return function.substr(function.rfind('.') + 1);
}

bool IsKnownPlace(const pb::StackFrame& frame) {
  const std::string_view file = frame.file();
  if (Contains(file, kTorchDistributed))
    return !file.ends_with(kDecorators) && !Contains(file, kTorchrun);
  return std::ranges::any_of(kKnownPlaces, [&](const KnownPlace& place) {
    return file.ends_with(place.file_end) &&
           (place.function.empty() || ShortName(frame.function()) == place.function);
  });
}

bool IsLibrary(const pb::StackFrame& frame) {
  return IsKnownPlace(frame) || std::ranges::any_of(kLibraries, [&](std::string_view library) {
           return Contains(frame.file(), library);
         });
}

// Returns whether the frame belongs to the backward pass. The backward pass exchanges gradients
// from C++, so the exchange itself has no Python frame.
bool IsBackward(const pb::StackFrame& frame) {
  return ShortName(frame.function()) == "_engine_run_backward" ||
         std::string_view(frame.file()).ends_with("torch/autograd/__init__.py");
}

// Returns whether the thread's system call may belong to an exchange: a wait for another thread, or
// a read from a socket.
bool MayWaitForPeer(const pb::ThreadStack& thread) {
  constexpr std::string_view kReads[] = {"read", "readv", "recvfrom", "recvmsg"};
  if (thread.state() == "R") return false;
  return thread.call() == "futex" ||
         (std::ranges::count(kReads, thread.call()) > 0 && Contains(thread.target(), "socket"));
}

std::string SiteText(const pb::StackFrame& frame) {
  pb::ThreadStack one;
  *one.add_frames() = frame;
  return FramesText(one, 1);
}

// Returns the place where a thread with Python frames waits.
WaitPlace PythonPlace(const pb::ThreadStack& thread, bool is_main) {
  WaitPlace place;
  const auto& frames = thread.frames();
  const auto site = std::ranges::find_if_not(frames, &IsLibrary);
  if (site != frames.end()) place.site = SiteText(*site);
  const auto known = std::find_if(frames.begin(), site, &IsKnownPlace);
  if (known != site) {
    place.kind = Kind::kKnown;
    place.call = SanitizeForTerminal(ShortName(known->function()));
  }
  if (place.kind == Kind::kKnown || !is_main || frames.empty() || !MayWaitForPeer(thread))
    return place;
  const pb::StackFrame& innermost = frames[0];
  if (IsBackward(innermost)) {
    place.kind = Kind::kKnown;
    place.call = "backward";
  } else if (!std::string_view(innermost.file()).ends_with("threading.py") && !thread.has_gil()) {
    place.kind = Kind::kMaybe;  // a call such as Work.wait(), which has no frame of its own
  }
  return place;
}

// Returns whether a C or C++ function waits for other ranks. These are all functions of MPI except
// its clock, and functions of c10d and gloo.
bool IsNativeExchange(std::string_view function) {
  if (function.starts_with('P')) function.remove_prefix(1);
  return (function.starts_with("MPI_") && function != "MPI_Wtime") ||
         function.starts_with("c10d::") || function.starts_with("gloo::");
}

// Returns whether a frame is the program's own code. Libraries of the system have no line numbers,
// so a line number indicates the program.
bool IsOwnNative(const pb::StackFrame& frame) {
  return frame.line() > 0 && !IsNativeExchange(frame.function());
}

bool HasFunction(const pb::ThreadStack& thread, std::string_view part) {
  return std::ranges::any_of(thread.frames(), [&](const pb::StackFrame& frame) {
    return Contains(frame.function(), part);
  });
}

// Returns the place where a thread of a program without Python waits, from its frames and its
// system call. A thread in MPI may be running, because MPI waits by spinning.
WaitPlace NativePlace(const pb::ThreadStack& thread) {
  WaitPlace place;
  const auto& frames = thread.frames();
  const auto exchange =
      std::find_if(frames.rbegin(), frames.rend(),
                   [](const pb::StackFrame& frame) { return IsNativeExchange(frame.function()); });
  if (exchange != frames.rend()) {
    place.kind = Kind::kKnown;
    std::string_view call = exchange->function();
    if (call.starts_with("PMPI_")) call.remove_prefix(1);
    place.call = SanitizeForTerminal(call);
    if (exchange != frames.rbegin()) place.site = SiteText(*std::prev(exchange));
    return place;
  }
  if (thread.state() == "R" || WaitsForBatch(thread)) return place;
  const bool waits_for_thread = thread.call() == "futex";
  if (MayWaitForPeer(thread) && !waits_for_thread) {
    place.kind = Kind::kKnown;
    place.call = thread.call() + "()";
  } else if (waits_for_thread || thread.call() == "poll" || thread.call() == "epoll_wait") {
    place.kind = Kind::kMaybe;
  }
  return place;
}

}  // namespace

bool HasPython(const pb::RankStacks& stacks) {
  return std::ranges::any_of(stacks.processes(), [](const pb::ProcessStacks& process) {
    return !process.python().empty() || !process.no_python().empty();
  });
}

const pb::ProcessStacks& ProgramOf(const pb::RankStacks& stacks) {
  for (const pb::ProcessStacks& process : stacks.processes()) {
    if (process.threads().empty() || !process.python().empty()) continue;
    const bool shows = std::ranges::any_of(process.threads(0).frames(), [](const auto& frame) {
      return IsOwnNative(frame) || IsNativeExchange(frame.function());
    });
    if (shows) return process;
  }
  return *stacks.processes().rbegin();
}

bool WaitsForBatch(const pb::ThreadStack& thread) {
  return HasFunction(thread, "dslaunch::BatchLoader::Next");
}

const pb::ThreadStack* FindBatchReader(const pb::RankStacks& stacks,
                                       const pb::ThreadStack& waiting) {
  for (const pb::ProcessStacks& process : stacks.processes()) {
    for (const pb::ThreadStack& thread : process.threads()) {
      if (&thread != &waiting && HasFunction(thread, "BatchReader::Read")) return &thread;
    }
  }
  return nullptr;
}

pb::ThreadStack WithoutLibraries(const pb::ThreadStack& thread, bool is_native) {
  const auto& frames = thread.frames();
  auto own = is_native ? std::ranges::find_if(frames, &IsOwnNative)
                       : std::ranges::find_if_not(frames, [](const pb::StackFrame& frame) {
                           return IsLibrary(frame) || Contains(frame.file(), "/lib/python3");
                         });
  if (own == frames.end()) own = frames.begin();
  pb::ThreadStack shown = thread;
  shown.clear_frames();
  if (own != frames.begin()) {
    const auto exchange = std::find_if(frames.begin(), own, [](const pb::StackFrame& frame) {
      return IsNativeExchange(frame.function());
    });
    *shown.add_frames() = is_native && exchange != own ? *exchange : frames[0];
  }
  for (; own != frames.end(); ++own) *shown.add_frames() = *own;
  return shown;
}

WaitPlace FindWaitPlace(const pb::RankStacks& stacks) {
  if (!stacks.exchange().empty()) return {Kind::kKnown, SanitizeForTerminal(stacks.exchange()), ""};
  const pb::ThreadStack* const shown = ShownThread(stacks);
  if (shown == nullptr) return {};
  WaitPlace best;
  if (!HasPython(stacks)) {
    const pb::ProcessStacks& program = ProgramOf(stacks);
    return program.threads().empty() ? best : NativePlace(program.threads(0));
  }
  best = PythonPlace(*shown, /*is_main=*/true);
  for (const pb::ProcessStacks& process : stacks.processes()) {
    for (const pb::ThreadStack& thread : process.threads()) {
      if (best.kind == Kind::kKnown) return best;
      if (&thread == shown) continue;
      const WaitPlace place = PythonPlace(thread, /*is_main=*/false);
      if (place.kind == Kind::kKnown) best = place;
    }
  }
  return best;
}

}  // namespace dslaunch
