#include "trainer/plugin/plugin_library.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/os/exported_symbols.h"
#include "base/text/sanitize.h"
#include "base/text/suggest.h"
#include "dslaunch/plugin.h"
#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

// Maximum characters shown of a stamp of another version, which may be any text.
constexpr size_t kMaxStamp = 200;
constexpr size_t kMaxThrown = 1000;  // maximum characters shown of a plugin's exception
constexpr size_t kMaxNamesShown = 20;

[[noreturn]] void Refuse(const std::string& path, const std::string& problem) {
  throw TrainError(ExitCode::kBadInput, "the plugin " + path + " " + problem);
}

std::string Macro(const PluginPart& part) {
  if (part.kind == "model") return "DSLAUNCH_PLUGIN(YourModel)";
  return part.kind == "dataset" ? "DSLAUNCH_DATASET(" + part.name + ", YourDataset)"
                                : "DSLAUNCH_METRIC(" + part.name + ", YourMetric)";
}

// Returns a clause that the library lacks the part, and which parts it has instead.
std::string NoSuchPart(const PluginPart& part, const std::string& path) {
  const std::string write = ": write " + Macro(part) + " into it (dslaunch/plugin.h)";
  if (part.kind == "model") return "defines no model" + write;
  const Result<std::vector<std::string>> names =
      ExportedSymbols(path, "dslaunch_" + part.kind + "_");
  if (!names.ok() || names->empty()) return "defines no " + part.kind + write;
  const std::string none = "defines no " + part.kind + " \"" + part.name + "\"";
  if (const std::string near = Nearest(part.name, *names); !near.empty())
    return none + ", did you mean \"" + near + "\"?";
  std::string list;
  for (size_t i = 0; i < std::min(names->size(), kMaxNamesShown); ++i)
    list += (list.empty() ? "" : ", ") + (*names)[i];
  return none + "; it defines " + list;
}

void* Load(const std::string& path, const std::string& key) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    Refuse(path, "does not exist; give the path of the shared library in " + key);
  // A library may need symbols of another LibTorch. RTLD_LAZY allows reading its stamp
  // nevertheless.
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    Refuse(path, "cannot be loaded; it must be a shared library built for " DSLAUNCH_PLUGIN_STAMP
                 " (" +
                     SanitizeForTerminal(dlerror()) + ")");
  }
  return library;
}

}  // namespace

const void* FindPluginPart(const PluginPart& part) {
  // dlopen searches the system's libraries for a name without a slash, so the path is made
  // absolute.
  const std::string path = std::filesystem::absolute(part.path);
  const std::string symbol =
      part.kind == "model" ? "dslaunch_plugin" : "dslaunch_" + part.kind + "_" + part.name;
  const void* const found = dlsym(Load(path, part.key), symbol.c_str());
  if (found == nullptr) Refuse(path, NoSuchPart(part, path));
  // The object of each symbol begins with a pointer to the stamp, which identifies dslaunch's and
  // LibTorch's versions.
  const char* const stamp = *static_cast<const char* const*>(found);
  if (std::strcmp(stamp, DSLAUNCH_PLUGIN_STAMP) != 0) {
    Refuse(path, "was built for " + SanitizeForTerminal({stamp, strnlen(stamp, kMaxStamp)}) +
                     "; this trainer is " DSLAUNCH_PLUGIN_STAMP ": build the plugin against it");
  }
  return found;
}

void CallPlugin(const PluginPart& part, const std::string& doing,
                const std::function<void()>& call) {
  std::string thrown;
  try {
    return call();
  } catch (const c10::Error& error) {
    thrown = error.what_without_backtrace();
  } catch (const std::exception& error) {
    thrown = error.what();
  } catch (...) {
    thrown = "it throws an exception that is not a std::exception";
  }
  FailPlugin(part, doing + ": " + Truncate(thrown, kMaxThrown));
}

void FailPlugin(const PluginPart& part, const std::string& problem) {
  Refuse(std::filesystem::absolute(part.path),
         (part.kind == "model" ? "" : "cannot be used: the " + part.kind + " " + part.name + " ") +
             problem);
}

}  // namespace dslaunch
