#include <map>

#include "agent/accelerators/readers.h"
#include "agent/accelerators/system_files.h"
#include "base/os/folder_names.h"

namespace dslaunch {

std::vector<Accelerator> ReadCambricon(const std::string& root, const LookUpVariable&) {
  constexpr std::string_view kFile = "/dev/cambricon_dev";
  constexpr uint64_t kCambricon = 0xcabc;
  // PCI classes that the vendor's cards have.
  constexpr uint64_t kProcessingAccelerator = 0x1200, kCoprocessor = 0x0b40;
  const std::string list = root + "/proc/driver/cambricon/mlus/";
  std::map<int, Accelerator> by_file;
  for (const int file : NumbersIn(root + "/dev", "cambricon_dev")) {
    if (!IsUsableFile(root + std::string(kFile) + std::to_string(file))) continue;
    Accelerator& card = by_file[file];
    card.name = "Cambricon MLU";
    card.file = file;
    card.numa_node = CommonNumaNode(root, kCambricon, {kProcessingAccelerator, kCoprocessor});
  }
  for (const std::string& address : NamesIn(list)) {
    const std::string text = ReadText(list + address + "/information");
    const std::string path = ValueIn(text, "Device inode path");
    const std::optional<int> file =
        path.starts_with(kFile) ? WholeNumber(path.substr(kFile.size())) : std::nullopt;
    const auto card = file ? by_file.find(*file) : by_file.end();
    if (card == by_file.end()) continue;
    card->second.numa_node = NumaNodeIn(root + "/sys/bus/pci/devices/" + address).value_or(0);
    if (const std::string name = ValueIn(text, "Device name"); !name.empty())
      card->second.name = name;
  }
  std::vector<Accelerator> cards;
  for (auto& [file, card] : by_file) cards.push_back(std::move(card));
  return cards;
}

}  // namespace dslaunch
