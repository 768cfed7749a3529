#include "agent/samples/machine_sample.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "base/os/node_memory.h"
#include "base/os/proc_text.h"
#include "base/os/usable_cores.h"

namespace dslaunch {
namespace {

// Unit of /proc/diskstats, whatever the size of a disk's sectors.
constexpr uint64_t kSectorBytes = 512;

// Returns the clock ticks in which cores worked: all times except "idle" and "iowait", the fourth
// and fifth number. The times of guests are included in "user" and "nice", so they are not added.
uint64_t BusyTicks(std::string_view stat) {
  std::string_view line = TakeLine(stat);
  if (TakeWord(line) != "cpu") return 0;
  uint64_t busy = 0;
  for (int field = 0; field < 8; ++field) {
    const uint64_t ticks = TakeNumber(line);
    if (field != 3 && field != 4) busy += ticks;
  }
  return busy;
}

void AddNetwork(std::string_view text, pb::MachineSample& sample) {
  TakeLine(text);
  TakeLine(text);  // skips the second line of column headings
  uint64_t received = 0, sent = 0;
  while (!text.empty()) {
    std::string_view line = TakeLine(text);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    std::string_view name = line.substr(0, colon);
    name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
    line.remove_prefix(colon + 1);
    if (name == "lo") continue;
    received += TakeNumber(line);
    for (int field = 0; field < 7; ++field) TakeWord(line);
    sent += TakeNumber(line);
  }
  sample.set_network_received_bytes(received);
  sample.set_network_sent_bytes(sent);
}

// Returns whether `name` is a whole disk. Excludes partitions, memory, and devices that pass their
// work on to other disks, which are counted themselves (md, dm, loop).
bool IsWholeDisk(std::string_view name) {
  const bool ends_with_digit =
      !name.empty() && std::isdigit(static_cast<unsigned char>(name.back())) != 0;
  if (name.starts_with("nvme")) return name.rfind('p') == std::string_view::npos;
  if (name.starts_with("mmcblk")) return name.rfind('p') == std::string_view::npos;
  const bool is_disk = name.starts_with("sd") || name.starts_with("vd") || name.starts_with("hd") ||
                       name.starts_with("xvd");
  return is_disk && !ends_with_digit;
}

void AddDisks(std::string_view text, pb::MachineSample& sample) {
  uint64_t read = 0, written = 0;
  while (!text.empty()) {
    std::string_view line = TakeLine(text);
    TakeWord(line);
    TakeWord(line);  // skips the device's major and minor number
    if (!IsWholeDisk(TakeWord(line))) continue;
    TakeWord(line);
    TakeWord(line);
    read += TakeNumber(line) * kSectorBytes;
    for (int field = 0; field < 3; ++field) TakeWord(line);
    written += TakeNumber(line) * kSectorBytes;
  }
  sample.set_disk_read_bytes(read);
  sample.set_disk_written_bytes(written);
}

}  // namespace

pb::MachineSample ParseMachineTexts(const MachineTexts& texts, int64_t ticks_per_s) {
  pb::MachineSample sample;
  sample.set_cpu_ms(BusyTicks(texts.stat) * 1000 /
                    static_cast<uint64_t>(std::max<int64_t>(1, ticks_per_s)));
  AddNetwork(texts.network, sample);
  AddDisks(texts.disks, sample);
  return sample;
}

pb::MachineSample ReadMachineSample() {
  const std::string stat = ReadWhole("/proc/stat").value_or("");
  const std::string network = ReadWhole("/proc/self/net/dev").value_or("");
  const std::string disks = ReadWhole("/proc/diskstats").value_or("");
  pb::MachineSample sample = ParseMachineTexts({stat, network, disks}, ::sysconf(_SC_CLK_TCK));
  const NodeMemory memory = ReadNodeMemory();
  sample.set_cores(static_cast<uint32_t>(UsableCores()));
  sample.set_memory_bytes(memory.bytes);
  sample.set_memory_used_bytes(memory.bytes - std::min(memory.bytes, memory.available_bytes));
  return sample;
}

}  // namespace dslaunch
