#include "agent/frames/frame_reader.h"

#ifdef DSLAUNCH_HAS_DWFL
#include <cxxabi.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/unique_fd.h"
#endif

namespace dslaunch {

#ifndef DSLAUNCH_HAS_DWFL

std::vector<std::vector<NativeFrame>> ReadNativeFrames(pid_t, const std::string&,
                                                       const std::vector<StackSnapshot>&,
                                                       std::string& problem) {
  problem = "this dslaunch was built without libdwfl";
  return {};
}

#else
namespace {

// The argument of libdwfl's callbacks. libdwfl passes no argument to find_elf, so the argument is
// also a global variable; one is enough, because this process reads only one other process.
struct Target {
  pid_t pid = 0;
  const std::vector<StackSnapshot>* snapshots = nullptr;
  size_t current = 0;
};
Target* g_target = nullptr;

int FindElf(Dwfl_Module*, void**, const char* name, Dwarf_Addr, char** file_name, Elf** elf) {
  *elf = nullptr;
  if (name == nullptr || name[0] != '/') return -1;
  const std::string path = "/proc/" + std::to_string(g_target->pid) + "/root" + name;
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd >= 0) *file_name = strdup(path.c_str());
  return fd;
}

pid_t NextThread(Dwfl*, void* argument, void** thread_argument) {
  auto* const target = static_cast<Target*>(argument);
  size_t next = 0;
  if (*thread_argument != nullptr) {
    next = static_cast<size_t>(static_cast<const StackSnapshot*>(*thread_argument) -
                               target->snapshots->data()) +
           1;
  }
  if (next >= target->snapshots->size()) return 0;
  const StackSnapshot& snapshot = (*target->snapshots)[next];
  *thread_argument = const_cast<StackSnapshot*>(&snapshot);
  return snapshot.tid;
}

bool GetThread(Dwfl*, pid_t tid, void* argument, void** thread_argument) {
  auto* const target = static_cast<Target*>(argument);
  for (size_t i = 0; i < target->snapshots->size(); ++i) {
    if ((*target->snapshots)[i].tid != tid) continue;
    target->current = i;
    *thread_argument = const_cast<StackSnapshot*>(&(*target->snapshots)[i]);
    return true;
  }
  return false;
}

bool ReadMemory(Dwfl*, Dwarf_Addr address, Dwarf_Word* result, void* argument) {
  const auto* const target = static_cast<const Target*>(argument);
  const StackSnapshot& snapshot = (*target->snapshots)[target->current];
  const uint64_t begin = snapshot.registers.sp;
  if (address < begin || address - begin > snapshot.stack.size() ||
      snapshot.stack.size() - (address - begin) < sizeof *result)
    return false;
  std::memcpy(result, snapshot.stack.data() + (address - begin), sizeof *result);
  return true;
}

bool SetRegisters(Dwfl_Thread* thread, void* thread_argument) {
  const auto& registers = static_cast<const StackSnapshot*>(thread_argument)->registers;
  for (size_t i = 0; i < registers.values.size(); ++i) {
    if (!registers.values[i]) continue;
    const Dwarf_Word value = *registers.values[i];
    if (!dwfl_thread_state_registers(thread, static_cast<int>(i), 1, &value)) return false;
  }
  dwfl_thread_state_register_pc(thread, registers.pc);
  return true;
}

// Returns the demangled name of a symbol without parameters; empty for nullptr.
std::string ReadableName(const char* symbol) {
  if (symbol == nullptr) return "";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  std::string text = status == 0 && name ? name.get() : symbol;
  // The first parentheses of "(anonymous namespace)::f(int)" are part of the name, so they are
  // kept.
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  size_t from = 0;
  size_t at = text.find('(');
  while (at != std::string::npos && text.compare(at, kAnonymous.size(), kAnonymous) == 0) {
    from = at + kAnonymous.size();
    at = text.find('(', from);
  }
  if (at != std::string::npos && at > 0) text.resize(at);
  return text.substr(0, text.find('@'));  // removes a version, as in "nanosleep@GLIBC_2.2.5"
}

// Returns whether a module is a library of the system, whose source lines do not help the user.
bool IsOfSystem(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  constexpr std::string_view kFolders[] = {"/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"};
  return name.find(".so") != std::string_view::npos &&
         std::ranges::any_of(kFolders,
                             [&](std::string_view folder) { return path.starts_with(folder); });
}

// Sets the source line of an address. Compilers such as clang do not write .debug_aranges, without
// which libdwfl does not find the compilation unit, so all units are searched.
void SetLine(Dwfl_Module* module, Dwarf_Addr pc, NativeFrame& frame) {
  if (Dwfl_Line* const line = dwfl_module_getsrc(module, pc)) {
    const char* const file = dwfl_lineinfo(line, nullptr, &frame.line, nullptr, nullptr, nullptr);
    if (file != nullptr) frame.file = file;
    return;
  }
  constexpr int kMaxUnits = 50'000;
  Dwarf_Die* unit = nullptr;
  Dwarf_Addr bias = 0;
  for (int i = 0; i < kMaxUnits; ++i) {
    unit = dwfl_module_nextcu(module, unit, &bias);
    if (unit == nullptr) return;
    if (dwarf_haspc(unit, pc - bias) != 1) continue;
    Dwarf_Line* const line = dwarf_getsrc_die(unit, pc - bias);
    const char* const file = line == nullptr ? nullptr : dwarf_linesrc(line, nullptr, nullptr);
    if (file != nullptr && dwarf_lineno(line, &frame.line) == 0) frame.file = file;
    return;
  }
}

int AddFrame(Dwfl_Frame* state, void* argument) {
  auto& frames = *static_cast<std::vector<NativeFrame>*>(argument);
  Dwarf_Addr pc = 0;
  bool is_exact = false;
  if (!dwfl_frame_pc(state, &pc, &is_exact)) return DWARF_CB_ABORT;
  if (!is_exact) --pc;  // moves from the return address back into the call
  NativeFrame& frame = frames.emplace_back();
  Dwfl* const dwfl = dwfl_thread_dwfl(dwfl_frame_thread(state));
  if (Dwfl_Module* const module = dwfl_addrmodule(dwfl, pc)) {
    frame.function = ReadableName(dwfl_module_addrname(module, pc));
    const char* const path =
        dwfl_module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
    if (path != nullptr && !IsOfSystem(path)) SetLine(module, pc, frame);
    if (frame.file.empty() || frame.line <= 0) {
      frame.file = path != nullptr ? path : "";
      frame.line = 0;
    }
  }
  return frames.size() < kMaxNativeFrames ? DWARF_CB_OK : DWARF_CB_ABORT;
}

}  // namespace

std::vector<std::vector<NativeFrame>> ReadNativeFrames(pid_t pid, const std::string& maps,
                                                       const std::vector<StackSnapshot>& snapshots,
                                                       std::string& problem) {
  Target target = {.pid = pid, .snapshots = &snapshots};
  g_target = &target;
  char* no_path = nullptr;
  const Dwfl_Callbacks callbacks = {.find_elf = &FindElf,
                                    .find_debuginfo = &dwfl_standard_find_debuginfo,
                                    .section_address = nullptr,
                                    .debuginfo_path = &no_path};
  const std::unique_ptr<Dwfl, decltype(&dwfl_end)> dwfl(dwfl_begin(&callbacks), &dwfl_end);
  const std::unique_ptr<std::FILE, decltype(&std::fclose)> file(
      fmemopen(const_cast<char*>(maps.data()), maps.size(), "r"), &std::fclose);
  const Dwfl_Thread_Callbacks threads = {.next_thread = &NextThread,
                                         .get_thread = &GetThread,
                                         .memory_read = &ReadMemory,
                                         .set_initial_registers = &SetRegisters,
                                         .detach = nullptr,
                                         .thread_detach = nullptr};
  if (dwfl == nullptr || file == nullptr ||
      dwfl_linux_proc_maps_report(dwfl.get(), file.get()) != 0 ||
      dwfl_report_end(dwfl.get(), nullptr, nullptr) != 0 ||
      !dwfl_attach_state(dwfl.get(), nullptr, pid, &threads, &target)) {
    problem = std::string("its files cannot be read: ") + dwfl_errmsg(-1);
    return {};
  }
  std::vector<std::vector<NativeFrame>> stacks;
  for (const StackSnapshot& snapshot : snapshots) {
    // The call returns an error at the last frame that can be found. The frames before it are
    // valid, so the error is ignored.
    dwfl_getthread_frames(dwfl.get(), snapshot.tid, &AddFrame, &stacks.emplace_back());
  }
  return stacks;
}

#endif

}  // namespace dslaunch
