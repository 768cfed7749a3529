#include "agent/accelerators/visible_devices.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "agent/accelerators/system_files.h"
#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

constexpr std::string_view kMig = "MIG-";

// Returns the device that an element of CUDA_VISIBLE_DEVICES names: a name, or a number without the
// trailing text, which CUDA ignores. Empty if the element names no device.
std::string CudaDeviceOf(std::string_view element) {
  constexpr std::string_view kBlanks = " \t";
  element.remove_prefix(std::min(element.find_first_not_of(kBlanks), element.size()));
  element = element.substr(0, element.find_last_not_of(kBlanks) + 1);
  if (element.starts_with("GPU-") || element.starts_with(kMig)) return std::string(element);
  int number = 0;
  const auto [end, status] =
      std::from_chars(element.data(), element.data() + element.size(), number);
  return status == std::errc() && number >= 0 ? std::to_string(number) : "";
}

// Returns the card and tile that "0.1" names; nullopt if `name` does not have this form.
std::optional<std::pair<int, int>> TileOf(std::string_view name) {
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto card = WholeNumber(name.substr(0, dot)), tile = WholeNumber(name.substr(dot + 1));
  if (!card || !tile) return std::nullopt;
  return std::pair(*card, *tile);
}

std::string DeviceOf(const AcceleratorRow& row, std::string_view element) {
  if (row.device == pb::DEVICE_CUDA) return CudaDeviceOf(element);
  const bool is_name = (row.takes_uuids && element.starts_with("GPU-")) ||
                       (row.device == pb::DEVICE_XPU && TileOf(element));
  const std::optional<int> number = WholeNumber(element);
  // The runtimes compare texts, so "01" names no device and is rejected.
  return is_name || (number && std::to_string(*number) == element) ? std::string(element) : "";
}

int NumberOf(const std::vector<Accelerator>& devices, size_t index) {
  return devices[index].number.value_or(static_cast<int>(index));
}

// Returns the index in `all` of the device that is named `device`; nullopt if several devices
// match, or if no device matches. Returns all.size() if none matches but some UUIDs are unknown.
std::optional<size_t> IndexOf(const std::string& device, const std::vector<Accelerator>& all) {
  if (const auto number = WholeNumber(device)) {
    for (size_t i = 0; i < all.size(); ++i) {
      if (NumberOf(all, i) == *number) return i;
    }
    return std::nullopt;
  }
  const auto matches = [&](const Accelerator& one) { return one.uuid.starts_with(device); };
  const auto found = std::ranges::find_if(all, matches);
  if (std::ranges::count_if(all, matches) == 1) return static_cast<size_t>(found - all.begin());
  const bool is_unknown = std::ranges::any_of(all, &std::string::empty, &Accelerator::uuid);
  return found == all.end() && is_unknown ? std::optional(all.size()) : std::nullopt;
}

// Returns the first variable of a level that is set, and its value; the value is nullptr if no
// variable of the level is set.
std::pair<std::string_view, const char*> SetOf(const std::vector<std::string_view>& level,
                                               const AcceleratorRow& row,
                                               const LookUpVariable& getenv) {
  for (const std::string_view name : level) {
    const char* const value = getenv(std::string(name).c_str());
    if (value != nullptr && (*value != '\0' || row.empty_hides_all)) return {name, value};
  }
  return {"", nullptr};
}

// Returns the devices of `all` whose device files the batch system assigned, with their numbers in
// `all`. Returns `all` if the batch system assigned none of these files, as in a container that has
// other files.
std::vector<Accelerator> GivenByFile(const AcceleratorRow& row, std::vector<Accelerator> all,
                                     const LookUpVariable& getenv) {
  const char* value = getenv("SLURM_STEP_GPUS");
  if (value == nullptr || *value == '\0') value = getenv("SLURM_JOB_GPUS");
  if (!row.is_given_by_file || value == nullptr) return all;
  const std::vector<std::string> files = ListVisibleDevices(row, value);
  std::vector<Accelerator> given;
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::ranges::find(files, std::to_string(all[i].file)) == files.end()) continue;
    given.push_back(all[i]);
    given.back().number = NumberOf(all, i);
  }
  return given.empty() ? all : given;
}

Error NamedTwice(const AcceleratorRow& row, std::string_view variable, std::string_view value,
                 const std::string& repeated) {
  return Error{ExitCode::kUsage,
               std::string(variable) + "=" + Truncate(value) + " names " + Truncate(repeated) +
                   " twice" +
                   (row.device == pb::DEVICE_CUDA ? ", for which CUDA shows no GPU at all" : "") +
                   "; name each once"};
}

}  // namespace

std::vector<std::string> ListVisibleDevices(const AcceleratorRow& row, std::string_view value) {
  std::vector<std::string> devices;
  for (std::string_view rest = value; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string device = DeviceOf(row, rest.substr(0, comma));
    if (device.empty()) break;
    devices.push_back(device);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return devices;
}

SeenDevices SeeThrough(const AcceleratorRow& row, std::string_view value,
                       const std::vector<Accelerator>& all, bool each_alone) {
  SeenDevices seen;
  std::set<std::string> identities;
  bool has_mig = false;
  for (const std::string& device : ListVisibleDevices(row, value)) {
    if (all.empty()) break;
    Accelerator one;
    std::string identity = device;
    if (device.starts_with(kMig)) {
      if (has_mig && !each_alone) break;
      has_mig = true;
      one.uuid = device;
    } else if (const auto tile = TileOf(device)) {
      const auto [card, part] = *tile;
      if (static_cast<size_t>(card) >= all.size() || part >= all[static_cast<size_t>(card)].tiles)
        break;
      one = all[static_cast<size_t>(card)];
      // All named tiles of a card count as one device, so only the first tile of a card adds a
      // device.
      if (!identities.insert("card " + std::to_string(card)).second) {
        if (!identities.insert(device).second) return {{}, device};
        continue;
      }
    } else {
      const std::optional<size_t> index = IndexOf(device, all);
      if (!index) break;
      if (*index < all.size()) {
        one = all[*index];
        identity = std::to_string(*index);
      }
    }
    if (!identities.insert(identity).second) return {{}, device};
    seen.devices.push_back(std::move(one));
  }
  // The program, or the next level, numbers the shown devices from 0, so the old numbers are
  // removed.
  if (row.levels.size() > 1) {
    for (Accelerator& one : seen.devices) one.number.reset();
  }
  return seen;
}

bool IsAllotted(const LookUpVariable& getenv) {
  for (const char* const name : {"SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "FLUX_JOB_ID"}) {
    const char* const value = getenv(name);
    if (value != nullptr && *value != '\0') return true;
  }
  return false;
}

const char* OwnVisible(const AcceleratorRow& row, const LookUpVariable& getenv) {
  const char* const own = SetOf(row.levels.back(), row, getenv).second;
  if (own == nullptr || row.levels.size() == 1 || !IsAllotted(getenv)) return own;
  const char* const before = SetOf(row.levels[row.levels.size() - 2], row, getenv).second;
  return before != nullptr && std::string_view(before) == own ? nullptr : own;
}

Result<std::vector<Accelerator>> ShownToLastLevel(const AcceleratorRow& row,
                                                  const std::vector<Accelerator>& all,
                                                  const LookUpVariable& getenv) {
  std::vector<Accelerator> shown = all;
  for (size_t level = 0; level + 1 < row.levels.size(); ++level) {
    const auto [name, value] = SetOf(row.levels[level], row, getenv);
    if (value == nullptr) continue;
    SeenDevices seen = SeeThrough(row, value, shown, /*each_alone=*/false);
    if (!seen.repeated.empty()) return NamedTwice(row, name, value, seen.repeated);
    shown = std::move(seen.devices);
  }
  return shown;
}

Result<std::vector<Accelerator>> VisibleTo(const AcceleratorRow& row,
                                           const std::vector<Accelerator>& all,
                                           const LookUpVariable& getenv, bool each_alone) {
  DSL_TRY_ASSIGN(std::vector<Accelerator> shown, ShownToLastLevel(row, all, getenv));
  const char* const own = OwnVisible(row, getenv);
  if (own == nullptr) return GivenByFile(row, std::move(shown), getenv);
  SeenDevices seen = SeeThrough(row, own, shown, each_alone);
  if (!seen.repeated.empty())
    return NamedTwice(row, SetOf(row.levels.back(), row, getenv).first, own, seen.repeated);
  return std::move(seen.devices);
}

Result<std::vector<Accelerator>> NumberedDevices(const AcceleratorRow& row,
                                                 const std::vector<Accelerator>& all,
                                                 const LookUpVariable& getenv) {
  return IsAllotted(getenv) ? VisibleTo(row, all, getenv, /*each_alone=*/true)
                            : ShownToLastLevel(row, all, getenv);
}

std::vector<std::string> NamesOfSlots(const AcceleratorRow& row, const std::vector<int>& chosen,
                                      const LookUpVariable& getenv,
                                      const std::vector<Accelerator>& numbered, size_t first,
                                      size_t slots) {
  const char* const own = OwnVisible(row, getenv);
  const bool hides_all =
      own != nullptr && (*own == '\0' || std::string_view(own) == row.hides_all.value_or("-1"));
  const auto name_of = [&](size_t index) {
    return std::to_string(index < numbered.size() ? NumberOf(numbered, index)
                                                  : static_cast<int>(index));
  };
  std::vector<std::string> names;
  if (!chosen.empty()) {
    const std::vector<std::string> given = own != nullptr && IsAllotted(getenv)
                                               ? ListVisibleDevices(row, own)
                                               : std::vector<std::string>();
    for (const int device : chosen) {
      const auto index = static_cast<size_t>(device);
      names.push_back(index < given.size() ? given[index] : name_of(index));
    }
  } else if (hides_all || (own != nullptr && std::string_view(own) == "-1")) {
    names.assign(slots, own);  // the value hides all devices, so every slot gets it
  } else if (own != nullptr) {
    names = ListVisibleDevices(row, own);
    names.erase(names.begin(),
                names.begin() + static_cast<std::ptrdiff_t>(std::min(first, names.size())));
  } else {
    for (size_t i = 0; i < slots; ++i) names.push_back(name_of(first + i));
  }
  if (names.size() > slots) names.resize(slots);
  return names;
}

Result<std::vector<int>> NumaNodesOf(const AcceleratorRow& row,
                                     const std::vector<std::string>& names,
                                     const std::vector<Accelerator>& shown) {
  const std::string noun(row.noun);
  std::vector<int> nodes;
  for (const std::string& name : names) {
    const auto tile = TileOf(name);
    // CUDA accepts any unique prefix of a UUID, so only a bare "GPU-" or "MIG-" is rejected here.
    const bool is_name = name.size() > 4 || WholeNumber(name) || tile;
    const std::optional<size_t> index =
        is_name ? IndexOf(tile ? std::to_string(tile->first) : name, shown) : std::nullopt;
    if (!index || *index >= shown.size()) {
      return Error{ExitCode::kUsage,
                   "--numa_binding: it is not known which of the " + std::to_string(shown.size()) +
                       " " + noun + "s " + Quoted(name) + " in " +
                       std::string(row.levels.back().front()) + " is; name them by number" +
                       (row.takes_uuids ? " or UUID" : "")};
    }
    const std::optional<int> node = shown[*index].numa_node;
    if (!node) {
      return Error{ExitCode::kUsage,
                   "--numa_binding: the kernel does not show on which NUMA node " + noun + " " +
                       Truncate(name) + " is; use --bind_cores_to_rank in its place"};
    }
    nodes.push_back(*node);
  }
  return nodes;
}

std::string LimitsOn(const AcceleratorRow& row, const LookUpVariable& getenv) {
  std::string text;
  for (const std::vector<std::string_view>& level : row.levels) {
    const auto [name, value] = SetOf(level, row, getenv);
    if (value != nullptr)
      text += (text.empty() ? "" : " ") + std::string(name) + "=" + SanitizeForTerminal(value);
  }
  return text;
}

}  // namespace dslaunch
