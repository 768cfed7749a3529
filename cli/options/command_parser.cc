#include "cli/options/command_parser.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <tuple>
#include <utility>

#include "base/text/sanitize.h"
#include "base/text/suggest.h"
#include "cli/options/option_values.h"
#include "cli/options/other_launchers.h"

namespace dslaunch {
namespace {

// Splits a word at '=' and spells the name as the table does: "--num-nodes=2" becomes "--num_nodes"
// and "=2".
std::pair<std::string, std::string> SplitName(const std::string& word) {
  if (word.rfind("--", 0) != 0) return {word.substr(0, 2), word.substr(2)};
  const size_t equals = std::min(word.find('='), word.size());
  std::string name = word.substr(0, equals);
  std::replace(name.begin() + 2, name.end(), '-', '_');
  return {name, word.substr(equals)};
}

// Returns a hint if `word` is an option of another launcher, else "".
std::string RemedyIn(const OptionTable& table, const std::string& word) {
  return &table == &LaunchOptionTable() ? OptionRemedy(word) : "";
}

// Splits a word like SplitName(word). If the table has a name with one dash and several letters,
// also splits such a name: "-np=2".
std::pair<std::string, std::string> SplitName(const OptionTable& table, const std::string& word) {
  const std::string whole = word.substr(0, word.find('='));
  if (whole.starts_with("--") || whole.size() <= 2) return SplitName(word);
  for (const OptionSpec& spec : table) {
    const std::vector<std::string> names = NamesOf(spec);
    if (std::ranges::find(names, whole) != names.end()) return {whole, word.substr(whole.size())};
  }
  return SplitName(word);
}

bool IsLetter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

Error UnknownOption(const LinePart& part, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  const std::string remedy = RemedyIn(part.table, word);
  if (!remedy.empty()) return WrongUse("option " + Quoted(name) + " is not supported: " + remedy);
  std::string bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  std::replace(bare.begin(), bare.end(), '-', '_');
  for (const LinePart::Other& other : part.others) {
    const std::string typed = SplitName(other.table, word).first;
    // A word with one dash and several letters is not split into a short option and a value:
    // "-hostfile" is not -h with the value "ostfile".
    if (typed.size() == 2 && word.size() > 2 && IsLetter(word[2])) break;
    const FoundOption found = FindOption(other.table, typed);
    if (found.spec == nullptr && found.candidates.empty()) continue;
    return WrongUse("option " + Quoted(typed.starts_with("--") ? name : typed) + " belongs " +
                    other.place);
  }
  std::vector<std::string> known;
  for (const OptionSpec& spec : part.table) {
    for (const std::string& option : NamesOf(spec)) {
      if (option.starts_with("--")) known.push_back(option.substr(2));
    }
  }
  const std::string near = Nearest(bare, known);
  if (near.empty()) return WrongUse("option " + Quoted(name) + " is not supported");
  return WrongUse("unknown option " + Quoted(name) + ", did you mean --" + near + "?");
}

// Returns whether `word` is a long name of the table with one dash too few: "-hostfile" is not -h
// with the value "ostfile".
bool LacksADash(const OptionTable& table, const std::string& word) {
  if (word.size() <= 2 || word[1] == '-') return false;
  const std::string name = "-" + SplitName("-" + word).first.substr(1);
  return std::ranges::any_of(table, [&](const OptionSpec& spec) {
    const std::vector<std::string> names = NamesOf(spec);
    return std::ranges::find(names, name) != names.end();
  });
}

Result<const OptionSpec*> Identify(const LinePart& part, const std::string& word) {
  const std::string typed = SplitName(part.table, word).first;
  // If another section has an option of this name with one dash, the word belongs there, so its
  // first letter is not read as an option here.
  for (const LinePart::Other& other : part.others) {
    if (typed.size() == 2 && !word.starts_with("--") &&
        SplitName(other.table, word).first.size() > 2)
      return UnknownOption(part, word);
  }
  const FoundOption found = FindOption(part.table, typed);
  if (!found.candidates.empty()) {
    std::string list;
    for (const std::string& name : found.candidates) list += (list.empty() ? "" : ", ") + name;
    return WrongUse("option " + Quoted(typed) + " could be one of " + list + "; write it out");
  }
  const bool is_whole = typed.size() > 2 && found.spec != nullptr;
  // An option of another launcher is not split into a letter and a value: "-mca" is not -m with the
  // value "ca".
  const bool is_other = word.size() > 2 && word[1] != '-' && !RemedyIn(part.table, word).empty();
  if (found.spec == nullptr || (!is_whole && (is_other || LacksADash(part.table, word))))
    return UnknownOption(part, word);
  return found.spec;
}

// An option with its name as the user typed it, for messages: "--nnodes", "-n (--num_gpus)".
struct TypedName {
  const OptionSpec* spec;
  std::string name;
};

// Returns the name of `spec` for messages. `word` is the typed name, such as "--num_nodes" or "-N";
// an abbreviated name is completed.
TypedName NameAsTyped(const OptionSpec& spec, const std::string& word) {
  const std::string full(NameOf(spec));
  if (word == full) return {&spec, full};
  if (!word.starts_with("--")) return {&spec, word + " (" + full + ")"};
  const std::vector<std::string> names = NamesOf(spec);
  return {&spec, std::ranges::find(names, word) == names.end() ? full : word};
}

// The words up to the first word that is not an option. CLI11 has a mode for this (prefix_command),
// but that mode mixes unknown options with the program's options. Therefore dslaunch finds the
// boundary itself, and CLI11 reads only the words before it.
struct SplitWords {
  // Canonical names, each followed by its value if the option takes a value.
  std::vector<std::string> options;
  std::vector<TypedName> names;  // names of `options`, in the same order
  size_t next = 0;
  bool ended = false;
};

Result<SplitWords> SplitOptions(const LinePart& part, const std::vector<std::string>& words,
                                size_t begin) {
  SplitWords split;
  for (split.next = begin; split.next < words.size(); ++split.next) {
    std::string word = words[split.next];
    if (word == "--") {
      ++split.next;
      split.ended = true;
      break;
    }
    if (word.size() < 2 || word.front() != '-') break;
    DSL_TRY_ASSIGN(const OptionSpec* spec, Identify(part, word));
    auto [name, attached] = SplitName(part.table, word);
    const bool is_short = !name.starts_with("--");
    while (IsFlag(*spec) && is_short && !attached.empty() && attached.front() != '=') {
      split.options.emplace_back(NameOf(*spec));  // splits combined flags: -qm means -q -m
      split.names.push_back(NameAsTyped(*spec, name));
      word = "-" + attached;
      DSL_TRY_ASSIGN(spec, Identify(part, word));
      std::tie(name, attached) = SplitName(word);
    }
    split.options.emplace_back(NameOf(*spec));
    split.names.push_back(NameAsTyped(*spec, name));
    const std::string& typed = split.names.back().name;
    if (IsFlag(*spec)) {
      if (!attached.empty()) return WrongUse(typed + " takes no value");
      continue;
    }
    std::string value = attached.substr(attached.rfind('=', 0) == 0 ? 1 : 0);
    if (attached.empty()) {
      const auto is_option = [](const std::string& next) {
        return next.starts_with("--") && next.find(' ') == std::string::npos;
      };
      if (split.next + 1 == words.size() || is_option(words[split.next + 1])) {
        return WrongUse(typed + " needs a value");
      }
      value = words[++split.next];
    }
    split.options.push_back(std::move(value));
  }
  return split;
}

// Reads the options with CLI11 and converts CLI11's exceptions to errors.
Result<OptionLayer> ReadByCli(const OptionTable& table, std::vector<std::string> options,
                              const std::vector<TypedName>& names) {
  CLI::App app;
  app.set_help_flag();
  for (const OptionSpec& spec : table) {
    const std::string name(NameOf(spec));  // canonical name, which SplitOptions has written
    if (IsFlag(spec)) {
      app.add_flag(name);
    } else {
      app.add_option(name)->expected(1)->take_all();
    }
  }
  try {
    std::reverse(options.begin(), options.end());  // CLI11 expects the words in reverse order
    app.parse(std::move(options));
  } catch (const CLI::Error& error) {
    return WrongUse(error.what());
  }
  OptionLayer layer;
  for (const OptionSpec& spec : table) {
    const std::string name(NameOf(spec));
    const CLI::Option* option = app.get_option(name);
    if (option->count() == 0) continue;
    std::vector<std::string> typed;  // names that the user typed, one for each occurrence
    for (const TypedName& one : names) {
      if (one.spec == &spec) typed.push_back(one.name);
    }
    if (IsFlag(spec)) layer.Add(spec, {typed.back(), ""});
    const std::vector<std::string>& values = option->results();
    for (size_t i = 0; i < values.size() && !IsFlag(spec); ++i)
      layer.Add(spec, {typed[std::min(i, typed.size() - 1)], values[i]});
  }
  return layer;
}

// Returns the actions of the commands as a list for messages: "ls, verify or export".
std::string ActionList(const std::vector<const CommandSpec*>& commands) {
  std::string list;
  for (size_t i = 0; i < commands.size(); ++i) {
    const char* const separator = i == 0 ? "" : i + 1 == commands.size() ? " or " : ", ";
    list += separator + std::string(ActionOf(*commands[i]));
  }
  return list;
}

Error CommandError(const CommandSpec& command, const std::string& what) {
  return UsageError(command.name + what, "dslaunch " + std::string(FamilyOf(command)) + " --help");
}

// Returns the option tables of the family's other commands, for hints about misplaced options. For
// `bench`, also returns the table of the launch, whose options may precede `bench`.
std::vector<LinePart::Other> Siblings(const CommandSpec& command) {
  std::vector<LinePart::Other> others;
  if (FamilyOf(command) == "bench") others.push_back({LaunchOptionTable(), "before 'bench'"});
  for (const CommandSpec* sibling : CommandsOf(FamilyOf(command))) {
    if (sibling == &command) continue;
    others.push_back({*sibling->options, "to '" + std::string(sibling->name) + "'"});
  }
  return others;
}

Result<void> ReadArguments(const CommandSpec& command, const std::vector<std::string>& arguments,
                           ParsedFlags& flags) {
  const bool repeats = !command.arguments.empty() && command.arguments.back().repeated;
  const size_t count =
      repeats ? std::max(command.arguments.size(), arguments.size()) : command.arguments.size();
  for (size_t i = 0; i < count; ++i) {
    const ArgumentSpec& spec = command.arguments[std::min(i, command.arguments.size() - 1)];
    if (i >= arguments.size()) {
      if (spec.missing == nullptr) break;
      return CommandError(command, std::string(": ") + spec.missing);
    }
    try {
      spec.target.read({spec.name, arguments[i]}, flags);
    } catch (const ValidationError& error) {
      return CommandError(command, std::string(": ") + error.what());
    }
  }
  if (arguments.size() > count) {
    return CommandError(command, " takes no further argument " + Quoted(arguments[count]));
  }
  return {};
}

}  // namespace

Error UsageError(const std::string& what, std::string_view help) {
  return WrongUse(what + (what.ends_with('?') ? " See " : "; see ") + std::string(help));
}

Result<LeadingOptions> ReadLeadingOptions(const LinePart& part,
                                          const std::vector<std::string>& words, size_t begin) {
  DSL_TRY_ASSIGN(SplitWords split, SplitOptions(part, words, begin));
  LeadingOptions leading;
  DSL_TRY_ASSIGN(leading.options, ReadByCli(part.table, std::move(split.options), split.names));
  leading.next = split.next;
  return leading;
}

Result<OptionsAndArguments> ReadOptionsAndArguments(const LinePart& part,
                                                    const std::vector<std::string>& words,
                                                    size_t begin) {
  OptionsAndArguments read;
  std::vector<std::string> options;
  std::vector<TypedName> names;
  for (bool ended = false; begin < words.size();) {
    if (!ended) {
      DSL_TRY_ASSIGN(const SplitWords split, SplitOptions(part, words, begin));
      options.insert(options.end(), split.options.begin(), split.options.end());
      names.insert(names.end(), split.names.begin(), split.names.end());
      begin = split.next;
      ended = split.ended;
    }
    if (begin < words.size()) read.arguments.push_back(words[begin++]);
  }
  DSL_TRY_ASSIGN(read.options, ReadByCli(part.table, std::move(options), names));
  return read;
}

Result<const CommandSpec*> FindCommand(std::string_view family,
                                       const std::vector<std::string>& words) {
  const std::vector<const CommandSpec*> commands = CommandsOf(family);
  if (ActionOf(*commands.front()).empty()) return commands.front();
  const std::string word = words.size() > 1 ? words[1] : "";
  if (word == "-h" || word == "--help") return nullptr;
  std::vector<std::string> actions;
  for (const CommandSpec* command : commands) {
    if (word == ActionOf(*command)) return command;
    actions.emplace_back(ActionOf(*command));
  }
  const std::string near = DidYouMean(word, actions);
  const std::string name(family);
  return UsageError(
      name + (word.empty()   ? ": which action? Give " + ActionList(commands)
              : near.empty() ? ": no " + Quoted(word) + "; give " + ActionList(commands)
                             : ": no " + Quoted(word) + near),
      "dslaunch " + name + " --help");
}

Result<std::optional<ParsedFlags>> ParseCommand(const CommandSpec& command,
                                                const std::vector<std::string>& words, size_t begin,
                                                ParsedFlags flags) {
  const LinePart part = {*command.options, Siblings(command)};
  const auto with_name = [&](const Error& error) {
    return CommandError(command, ": " + error.message);
  };
  const Result<OptionsAndArguments> read = ReadOptionsAndArguments(part, words, begin);
  if (!read.ok()) return with_name(read.error());
  for (const auto& [spec, values] : read->options.values) {
    if (NameOf(*spec) == "--help") return std::optional<ParsedFlags>();
  }
  const Result<void> options = ReadLayers({read->options}, command.exclusions, flags);
  if (!options.ok()) return with_name(options.error());
  const Result<void> complete = CheckRequirements(command.requirements, flags);
  if (!complete.ok()) return with_name(complete.error());
  DSL_TRY(ReadArguments(command, read->arguments, flags));
  return std::optional<ParsedFlags>(std::move(flags));
}

}  // namespace dslaunch
