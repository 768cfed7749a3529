#include "trainer/foreign/plain_names.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "base/count.h"

namespace dslaunch {
namespace {

constexpr std::string_view kParallel = "module.";
constexpr std::string_view kAnywhere[] = {"_orig_mod.", "_fsdp_wrapped_module.",
                                          "_checkpoint_wrapped_module."};

std::string Without(std::string name, std::string_view dropped) {
  if (dropped == kParallel) return name.starts_with(dropped) ? name.substr(dropped.size()) : name;
  for (size_t at = 0; (at = name.find(dropped, at)) != std::string::npos;) {
    if (at == 0 || name[at - 1] == '.') {
      name.erase(at, dropped.size());
    } else {
      at += dropped.size();
    }
  }
  return name;
}

}  // namespace

PlainNames::PlainNames(const std::vector<std::string>& names) {
  std::vector<std::string> rest = names;
  // Removes `wrapper` from the names in `rest` if a name contains it and all names stay different.
  const auto drop = [&](std::string_view wrapper) {
    std::vector<std::string> shorter = rest;
    for (std::string& name : shorter) name = Without(name, wrapper);
    if (shorter == rest || std::set(shorter.begin(), shorter.end()).size() != rest.size()) return;
    dropped_.emplace_back(wrapper);
    rest = std::move(shorter);
  };
  for (const std::string_view wrapper : kAnywhere) drop(wrapper);
  const auto is_parallel = [](const std::string& name) { return name.starts_with(kParallel); };
  if (std::ranges::all_of(rest, is_parallel)) drop(kParallel);
}

std::string PlainNames::Of(std::string name) const {
  for (const std::string& wrapper : dropped_) name = Without(std::move(name), wrapper);
  return name;
}

std::string PlainNames::note() const {
  return dropped_.empty() ? "" : "names are without " + NameList(dropped_, ", ");
}

}  // namespace dslaunch
