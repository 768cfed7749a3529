#include "agent/host/launcher_use.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <climits>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/os/proc_text.h"
#include "base/text/sanitize.h"
#include "base/text/split_lines.h"

namespace dslaunch {
namespace {

using Kind = LauncherKind;
using Words = std::vector<std::string>;

// A launcher that is recognized by the name of a program or module. The words of a list are
// separated by blanks.
struct KnownLauncher {
  Kind kind;
  const char* programs;  // names of the launcher's console scripts
  const char* modules;   // names of the launcher's modules, which follow `python -m`
  const char* actions;   // first arguments that start ranks; empty if all do
  // For kModule, the module that each rank runs; a module that ends with '.' is completed by the
  // first argument. For kOther, the text to type instead.
  const char* remedy = "";
};

constexpr KnownLauncher kLaunchers[] = {
    {Kind::kTorchrun, "torchrun", "torch.distributed.run torch.distributed.launch", ""},
    {Kind::kDeepspeed, "deepspeed ds deepspeed.pt", "deepspeed.launcher.runner", ""},
    {Kind::kAccelerate, "accelerate", "accelerate.commands.accelerate_cli", "launch"},
    {Kind::kAccelerate, "accelerate-launch", "accelerate.commands.launch", ""},
    {Kind::kModule, "llamafactory-cli lmf", "llamafactory.cli", "train", "llamafactory.launcher"},
    {Kind::kModule, "axolotl", "axolotl.cli.main", "train evaluate inference", "axolotl.cli."},
    {Kind::kModule, "trl", "trl.cli", "sft dpo grpo kto rloo reward distillation", "trl.scripts."},
    {Kind::kSameOptions, "horovodrun", "horovod.runner.launch horovod.runner", ""},
    {Kind::kSameOptions,
     "mpirun mpirun.openmpi mpirun.mpich mpirun.hydra mpiexec mpiexec.openmpi mpiexec.mpich "
     "mpiexec.hydra orterun prterun",
     "", ""},
    {Kind::kSameOptions, "dslaunch", "dslaunch", ""},
    {Kind::kOther, "srun ibrun aprun jsrun", "", "",
     "PROGRAM in the allocation (dslaunch starts the ranks on all of its nodes)"},
    {Kind::kOther, "tune", "torchtune._cli.tune", "run",
     "RECIPE.py --config CONFIG.yaml, after: tune cp RECIPE RECIPE.py; tune cp CONFIG "
     "CONFIG.yaml"},
    {Kind::kOther, "composer", "composer.cli.launcher composer.cli composer", "", "SCRIPT.py"},
    {Kind::kOther, "fabric lightning", "lightning.fabric.cli lightning.fabric", "run", "SCRIPT.py"},
    {Kind::kOther, "colossalai torchx", "", "run", "SCRIPT.py"},
};

constexpr std::string_view kWrappers[] = {"env",    "exec",    "nohup",   "setsid",   "nice",
                                          "ionice", "time",    "timeout", "stdbuf",   "taskset",
                                          "chrt",   "numactl", "command", "catchsegv"};
// Programs that run another program only after the word "run".
constexpr std::string_view kRunners[] = {"uv",    "poetry", "pipenv", "pdm",  "hatch",
                                         "conda", "mamba",  "rye",    "pixi", "micromamba"};

bool IsListed(std::string_view list, std::string_view word) {
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(' ', begin), list.size());
    if (list.substr(begin, end - begin) == word) return !word.empty();
    begin = end + 1;
  }
  return false;
}

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool IsAssignment(const std::string& word) {
  const size_t equals = word.find('=');
  return equals != std::string::npos && equals > 0 && word.front() != '-' &&
         word.find('/') > equals;
}

// Returns the launcher named `module`, or named by argv[at] if `module` is empty; nullopt if no
// known launcher has that name. The launcher's arguments begin after argv[at].
std::optional<LauncherUse> LauncherAt(const Words& argv, size_t at,
                                      const std::string& module = "") {
  const std::string name = module.empty() ? BaseName(argv[at]) : module;
  for (const KnownLauncher& known : kLaunchers) {
    if (!IsListed(module.empty() ? known.programs : known.modules, name)) continue;
    const bool needs_action = *known.actions != '\0';
    const std::string action = at + 1 < argv.size() ? argv[at + 1] : "";
    if (needs_action && !IsListed(known.actions, action)) continue;
    LauncherUse use;
    use.kind = known.kind;
    use.name = (module.empty() ? argv[at] : module) + (needs_action ? " " + action : "");
    use.begin = at;
    use.arguments = at + (needs_action ? 2 : 1);
    if (known.kind == Kind::kOther) use.hint = known.remedy;
    if (known.kind == Kind::kModule) {
      use.module = known.remedy;
      if (use.module.ends_with('.')) use.module += action;
    }
    return use;
  }
  return std::nullopt;
}

std::optional<LauncherUse> LauncherOfPython(const Words& argv, size_t at) {
  const std::optional<PythonTarget> target = TargetOfPython(argv, at);
  if (!target) return std::nullopt;
  std::optional<LauncherUse> use = LauncherAt(argv, target->at, target->module);
  if (!use) return std::nullopt;
  if (!target->module.empty()) use->name = argv[at] + " -m " + use->name;
  use->begin = at;
  use->python = argv[at];
  return use;
}

// Returns whether argv[at] is an argument of the wrapper program before it: an option or an
// option's value, an assignment, or a number such as a duration or a mask.
bool BelongsToWrapper(const Words& argv, size_t at) {
  const std::string& word = argv[at];
  return word.empty() || word.front() == '-' || argv[at - 1].starts_with('-') ||
         IsAssignment(word) || std::isdigit(static_cast<unsigned char>(word.front())) != 0;
}

// Returns the commands in a line of a shell script, each split into words without quotes.
std::vector<Words> ShellCommands(std::string_view line) {
  std::vector<Words> commands(1);
  std::string word;
  bool in_word = false;
  char quote = 0;
  const auto end_word = [&] {
    if (in_word) commands.back().push_back(std::move(word));
    word.clear();
    in_word = false;
  };
  for (const char c : line) {
    if (quote == 0 && c == '#' && !in_word) break;
    if (c == quote) {
      quote = 0;
    } else if (quote != 0) {
      word += c;
    } else if (c == '"' || c == '\'') {
      quote = c;
      in_word = true;
    } else if (std::string_view(" \t\r").find(c) != std::string_view::npos) {
      end_word();
    } else if (std::string_view(";&|()`").find(c) != std::string_view::npos) {
      end_word();
      commands.emplace_back();
    } else {
      word += c;
      in_word = true;
    }
  }
  end_word();
  return commands;
}

// Returns `command` without leading shell keywords and assignments.
Words WithoutShellWords(Words command) {
  constexpr std::array<std::string_view, 8> kSkipped = {"if",    "then", "else", "elif",
                                                        "while", "do",   "!",    "{"};
  const auto begin = std::ranges::find_if(command, [&](const std::string& word) {
    return !IsAssignment(word) && std::ranges::find(kSkipped, word) == kSkipped.end();
  });
  command.erase(command.begin(), begin);
  return command;
}

// Returns the module that a console script of pip calls ("from MODULE import main"); empty for
// other files.
std::string ModuleOfConsoleScript(const std::string& path) {
  constexpr size_t kMaxConsoleScriptBytes = 4096;
  const std::string script = ReadBeginning(path, kMaxConsoleScriptBytes);
  const std::string first = script.substr(0, script.find('\n'));
  if (!first.starts_with("#!") || first.find("python") == std::string::npos) return "";
  for (const std::string_view line : SplitLines(script)) {
    const size_t import = line.find(" import ");
    if (!line.starts_with("from ") || import == std::string_view::npos || import < 5) continue;
    return std::string(line.substr(5, import - 5));
  }
  return "";
}

std::string RealPath(const std::string& path) {
  char resolved[PATH_MAX];
  return ::realpath(path.c_str(), resolved) == nullptr ? path : resolved;
}

// The shell script that a command runs, from a file or from -c; both texts are empty for other
// programs.
struct ShellScript {
  std::string name;
  std::string text;
};
ShellScript ReadShellScript(const Words& argv, const std::string& cwd) {
  constexpr size_t kMaxScriptBytes = 1 << 20;
  constexpr std::string_view kShells = "sh bash dash zsh ksh";
  const auto read = [&](const std::string& name) -> ShellScript {
    const std::string path = name.starts_with('/') ? name : cwd + "/" + name;
    return {name, ReadBeginning(path, kMaxScriptBytes)};
  };
  if (argv.empty()) return {};
  if (!IsListed(kShells, BaseName(argv.front()))) {
    ShellScript script = read(argv.front());
    const std::string first = script.text.substr(0, script.text.find('\n'));
    const std::string shell = BaseName(first.substr(0, first.find_last_not_of(" \r") + 1));
    const bool is_shell =
        first.starts_with("#!") && IsListed(kShells, shell.substr(shell.rfind(' ') + 1));
    return is_shell ? script : ShellScript();
  }
  for (size_t i = 1; i < argv.size(); ++i) {
    if (!argv[i].starts_with('-')) return read(argv[i]);
    const bool is_text = !argv[i].starts_with("--") && argv[i].find('c') != std::string::npos;
    if (is_text) return i + 1 < argv.size() ? ShellScript{"", argv[i + 1]} : ShellScript();
    if (argv[i] == "-o" || argv[i] == "-O") ++i;
  }
  return {};
}

// Returns the words that run the module with its arguments. --accelerate_config of trl is also an
// option of dslaunch, so this option is moved to the front.
Words WordsOfModule(const std::string& module, Words arguments) {
  Words words = {"-m", module};
  const auto config = std::ranges::find(arguments, "--accelerate_config");
  if (arguments.end() - config >= 2) {
    words.insert(words.begin(), config, config + 2);
    arguments.erase(config, config + 2);
  }
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

}  // namespace

bool IsPython(const std::string& word) {
  const std::string name = BaseName(word);
  return name.starts_with("python") &&
         name.find_first_not_of("0123456789.", 6) == std::string::npos;
}

std::optional<PythonTarget> TargetOfPython(const Words& argv, size_t at) {
  for (size_t i = at + 1; i < argv.size(); ++i) {
    const std::string& word = argv[i];
    if (word.size() < 2 || word.front() != '-') return PythonTarget{i};
    if (word.starts_with("--")) {
      if (word == "--check-hash-based-pycs") ++i;
      continue;
    }
    // First letter of an option that takes a value.
    const size_t letter = word.find_first_of("cmXW", 1);
    if (letter == std::string::npos) continue;
    const bool is_attached = letter + 1 < word.size();
    if (word[letter] == 'c') return std::nullopt;
    if (!is_attached) ++i;
    if (word[letter] != 'm') continue;
    if (i >= argv.size()) return std::nullopt;
    return PythonTarget{i, is_attached ? word.substr(letter + 1) : argv[i]};
  }
  return std::nullopt;
}

std::optional<LauncherUse> FindLauncher(const Words& argv) {
  Words variables;
  bool is_wrapped = false;
  bool needs_run = false;  // whether a runner's word "run" must still follow
  for (size_t i = 0; i < argv.size(); ++i) {
    const std::string name = BaseName(argv[i]);
    if (needs_run && name == "run") {
      needs_run = false;
      continue;
    }
    if (i > 0 && (needs_run || BelongsToWrapper(argv, i))) {
      if (needs_run && !BelongsToWrapper(argv, i)) return std::nullopt;
      if (IsAssignment(argv[i])) variables.push_back(argv[i]);
      is_wrapped |= !IsAssignment(argv[i]);
      continue;
    }
    std::optional<LauncherUse> use =
        IsPython(argv[i]) ? LauncherOfPython(argv, i) : LauncherAt(argv, i);
    if (use) {
      use->variables = std::move(variables);
      use->is_wrapped = is_wrapped;
      return use;
    }
    needs_run = std::ranges::find(kRunners, name) != std::end(kRunners);
    if (!needs_run && std::ranges::find(kWrappers, name) == std::end(kWrappers))
      return std::nullopt;
    is_wrapped |= name != "env";
  }
  return std::nullopt;
}

std::string LineInPlaceOf(const LauncherUse& use, const Words& argv) {
  if (use.kind == Kind::kOther) return use.hint;
  Words words(argv.begin() + static_cast<std::ptrdiff_t>(use.arguments), argv.end());
  if (use.kind == Kind::kModule) words = WordsOfModule(use.module, std::move(words));
  if (use.kind == Kind::kAccelerate)
    std::ranges::replace(words, std::string("--config_file"), std::string("--accelerate_config"));
  if (use.kind != Kind::kSameOptions || BaseName(use.name) == "dslaunch") return CommandLine(words);
  // -n of other launchers is the number of all ranks, as is -np of mpirun, so -n becomes -np.
  for (size_t i = 0; i < words.size() && words[i].starts_with('-'); ++i) {
    if (words[i] == "-n" || words[i] == "--n" || words[i] == "-c") words[i] = "-np";
    if (i + 1 < words.size() && !words[i + 1].starts_with('-')) ++i;
  }
  return CommandLine(words);
}

std::string LauncherRefusal(const LauncherUse& use, const std::string& line) {
  return Quoted(use.name) +
         " starts ranks itself: started in each rank, it would run as many separate jobs; type: " +
         line + " (--nested starts it in each rank)";
}

std::optional<ShellLauncher> FindLauncherInShell(const std::string& script) {
  size_t number = 0;
  bool continues = false;  // whether the previous line ended with a backslash
  for (const std::string_view line : SplitLines(script)) {
    ++number;
    // True if the line's first word belongs to the command of the previous line.
    bool is_argument = continues;
    continues = line.ends_with('\\');
    for (Words& command : ShellCommands(line)) {
      if (std::exchange(is_argument, false)) continue;
      const std::optional<LauncherUse> use = FindLauncher(WithoutShellWords(std::move(command)));
      if (use) return ShellLauncher{number, use->name};
    }
  }
  return std::nullopt;
}

Result<void> CheckNoLauncher(const Words& argv, const std::string& node_name) {
  std::optional<LauncherUse> use = FindLauncher(argv);
  if (!use && !argv.empty()) {
    Words real = argv;
    real.front() = RealPath(argv.front());
    use = FindLauncher(real);
    if (!use) {
      real.front() = ModuleOfConsoleScript(real.front());
      real.insert(real.begin(), {"python3", "-m"});
      use = FindLauncher(real);
      if (use) use->arguments -= 2;
    }
    if (use) use->name = argv.front();
  }
  if (!use) return {};
  return Error{
      ExitCode::kUsage,
      node_name + ": " + LauncherRefusal(*use, "dslaunch [options] " + LineInPlaceOf(*use, argv))};
}

std::string ShellLauncherWarning(const Words& argv, const std::string& cwd) {
  const ShellScript script = ReadShellScript(argv, cwd);
  const std::optional<ShellLauncher> found = FindLauncherInShell(script.text);
  if (!found) return "";
  const std::string place =
      script.name.empty() ? "" : script.name + ":" + std::to_string(found->line) + ": ";
  return place + Quoted(found->name) +
         " starts ranks itself: if each rank reaches it, they run as many separate jobs; start "
         "the training program in its place (--nested: no warning)";
}

}  // namespace dslaunch
