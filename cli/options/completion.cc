#include "cli/options/completion.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cli/options/command_parser.h"
#include "cli/options/help_text.h"
#include "cli/options/option_table.h"

namespace dslaunch {
namespace {

using Paths = Completion::Paths;

// bash splits words at '=' too, so the value in --name=value is completed as a separate word.
constexpr char kBash[] = R"sh(# bash completion of dslaunch
_dslaunch() {
  local current="${COMP_WORDS[COMP_CWORD]}" line
  local -a lines
  mapfile -t lines < <("${COMP_WORDS[0]}" completion complete -- \
    "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  [[ $current == = ]] && current=
  COMPREPLY=()
  for line in "${lines[@]:1}"; do
    COMPREPLY+=("$(printf %q "${line%%$'\t'*}")")
  done
  case "${lines[0]}" in
    files)
      compopt -o filenames
      mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$current") ;;
    folders)
      compopt -o filenames
      mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$current") ;;
  esac
}
complete -F _dslaunch dslaunch
)sh";

constexpr char kZsh[] = R"sh(#compdef dslaunch
# zsh completion of dslaunch
_dslaunch() {
  local -a lines shown
  lines=("${(@f)$("${words[1]}" completion complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  local paths=$lines[1]
  shown=("${(@)lines[2,-1]//:/\\:}")
  shown=("${(@)shown/$'\t'/:}")
  (( $#shown )) && [[ -n $shown[1] ]] && _describe dslaunch shown
  [[ $PREFIX == --*=* ]] && compset -P '*='
  case $paths in
    files) _files ;;
    folders) _files -/ ;;
  esac
}
if [[ $funcstack[1] == _dslaunch ]]; then _dslaunch "$@"; else compdef _dslaunch dslaunch; fi
)sh";

constexpr char kFish[] = R"sh(# fish completion of dslaunch
function __dslaunch_complete
  set -l words (commandline -opc)
  set -l current (commandline -ct)
  set -l lines ($words[1] completion complete -- $words[2..-1] "$current" 2>/dev/null)
  printf '%s\n' $lines[2..-1]
  switch "$lines[1]"
    case files
      __fish_complete_path "$current"
    case folders
      __fish_complete_directories "$current"
  end
end
# What fish has made of the man page offers every option after every command: it is loaded and erased.
complete -C 'dslaunch ' >/dev/null 2>&1
complete -c dslaunch -e
complete -c dslaunch -f -a '(__dslaunch_complete)'
)sh";

// Returns `name` as the user types it: with '-' for '_' if `typed` contains a '-' after the dashes.
std::string SpeltAs(const std::string& name, const std::string& typed) {
  std::string spelt = name;
  if (typed.size() > 2 && typed.find('-', 2) != std::string::npos) {
    std::replace(spelt.begin() + 2, spelt.end(), '_', '-');
  }
  return spelt;
}

void OfferOptions(const OptionTable& table, const std::string& typed, Completion& completion) {
  for (const OptionSpec& spec : table) {
    if (spec.refusal != nullptr) continue;
    for (const std::string& name : NamesOf(spec)) {
      const std::string spelt = SpeltAs(name, typed);
      if (name.starts_with("--") && spelt.starts_with(typed)) {
        completion.words.push_back({spelt, DescriptionOf(spec)});
      }
    }
  }
}

void OfferWords(const std::vector<std::string>& all, const std::string& typed,
                Completion& completion) {
  for (const std::string& word : all) {
    if (word.starts_with(typed)) completion.words.push_back({word, ""});
  }
}

Paths PathsOf(ValueKind kind) {
  return kind == ValueKind::kFile     ? Paths::kFiles
         : kind == ValueKind::kFolder ? Paths::kFolders
                                      : Paths::kNone;
}

// Returns the first words of all commands, each word once.
std::vector<Completion::Word> CommandWords() {
  std::vector<Completion::Word> words;
  for (const CommandSpec& command : Commands()) {
    const std::string_view family = FamilyOf(command);
    if (family.empty() || (!words.empty() && words.back().text == family)) continue;
    std::string help;  // actions of the family; empty for a command without a family
    for (const CommandSpec* member : CommandsOf(family)) {
      help += (help.empty() ? "" : " | ") + std::string(ActionOf(*member));
    }
    words.push_back({std::string(family), help.empty() ? command.help : help});
  }
  return words;
}

std::vector<Completion::Word> WordsOf(Offers offers, const CompletionSources& sources) {
  const auto from = [](const CompletionSources::Words& source) {
    return source ? source() : std::vector<Completion::Word>();
  };
  switch (offers) {
    case Offers::kNothing:
      break;
    case Offers::kJobs:
      return from(sources.jobs);
    case Offers::kRecipes:
      return from(sources.recipes);
    case Offers::kRecipeKeys:
      return from(sources.recipe_keys);
    case Offers::kCommands:
      return CommandWords();
  }
  return {};
}

// The candidates for a value: choices, the words of `offers` (each followed by `end`), and paths.
struct Value {
  std::vector<std::string> choices;
  Offers offers;
  ValueKind kind;
  const char* end;
};

// Adds the candidates for a value to `completion`. `before` is the text that precedes the value in
// the same word: "" or "--device=".
void OfferValue(const Value& value, const std::string& before, const std::string& typed,
                const CompletionSources& sources, Completion& completion) {
  for (const std::string& choice : value.choices) {
    if (choice.starts_with(typed)) completion.words.push_back({before + choice, ""});
  }
  for (const Completion::Word& word : WordsOf(value.offers, sources)) {
    if (word.text.starts_with(typed))
      completion.words.push_back({before + word.text + value.end, word.help});
  }
  completion.paths = PathsOf(value.kind);
}

void OfferValues(const OptionSpec& spec, const std::string& before, const std::string& typed,
                 const CompletionSources& sources, Completion& completion) {
  const char* const end = spec.offers == Offers::kRecipeKeys ? "=" : "";
  OfferValue({ChoicesOf(spec), spec.offers, spec.target.kind, end}, before, typed, sources,
             completion);
}

// Joins the words of --name=value, which bash passes as three words.
std::vector<std::string> WithValuesJoined(const std::vector<std::string>& words) {
  std::vector<std::string> joined;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool of_option = !joined.empty() && joined.back().starts_with("--");
    if (words[i] == "=" && of_option && joined.back().find('=') == std::string::npos) {
      joined.back() += "=";
      if (i + 1 < words.size()) joined.back() += words[++i];
    } else {
      joined.push_back(words[i]);
    }
  }
  return joined;
}

// Skips the options of `table` from words[next]. Moves `next` to the first word that is not an
// option, or to the last word. Returns true if the last word belongs to an option; then
// `completion` is complete.
bool PassOptions(const OptionTable& table, const std::vector<std::string>& words, size_t& next,
                 bool split_by_shell, const CompletionSources& sources, Completion& completion) {
  for (; next < words.size(); ++next) {
    const std::string& word = words[next];
    const bool is_last = next + 1 == words.size();
    if (word.size() < (is_last ? 1u : 2u) || word.front() != '-') return false;
    const size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    if (is_last && equals == std::string::npos) {
      OfferOptions(table, word, completion);
      return true;
    }
    if (word == "--") {
      ++next;
      return false;
    }
    const OptionSpec* spec = FindOption(table, word.substr(0, equals)).spec;
    if (is_last) {
      const std::string before = split_by_shell ? "" : word.substr(0, equals + 1);
      if (spec != nullptr) OfferValues(*spec, before, word.substr(equals + 1), sources, completion);
      return true;
    }
    if (spec == nullptr || IsFlag(*spec) || equals != std::string::npos) continue;
    if (next + 2 == words.size()) {
      OfferValues(*spec, "", words.back(), sources, completion);
      return true;
    }
    ++next;  // skips the value of the option
  }
  return false;
}

// Adds the commands, and paths of programs, to `completion`.
void OfferCommands(const std::string& typed, Completion& completion) {
  for (Completion::Word& word : CommandWords()) {
    if (word.text.starts_with(typed)) completion.words.push_back(std::move(word));
  }
  completion.paths = Paths::kFiles;
}

void OfferArgument(const ArgumentSpec& argument, const std::string& typed,
                   const CompletionSources& sources, Completion& completion) {
  Value value = {argument.words, argument.offers, argument.target.kind, ""};
  if (argument.target.choices != nullptr) value.choices = argument.target.choices();
  OfferValue(value, "", typed, sources, completion);
}

// Completes the last of `words`. words[next - 1] is the first word of a command of `family`.
Completion CompleteCommand(const std::vector<const CommandSpec*>& family,
                           const std::vector<std::string>& words, size_t next, bool split_by_shell,
                           const CompletionSources& sources) {
  Completion completion;
  const CommandSpec* command = family.front();
  if (!ActionOf(*command).empty()) {
    const bool is_last = next + 1 == words.size();
    std::vector<std::string> actions = {"--help"};
    for (const CommandSpec* member : family) {
      actions.emplace_back(ActionOf(*member));
      if (words[next] == actions.back()) command = member;
    }
    if (is_last) {
      if (!words[next].starts_with('-')) actions.erase(actions.begin());
      OfferWords(actions, words[next], completion);
    }
    if (is_last || ActionOf(*command) != words[next]) return completion;
    ++next;
  }
  size_t argument = 0;
  for (; next < words.size(); ++next) {
    if (PassOptions(*command->options, words, next, split_by_shell, sources, completion))
      return completion;
    if (next + 1 < words.size()) ++argument;
  }
  const size_t count = command->arguments.size();
  if (count > 0 && command->arguments.back().repeated) argument = std::min(argument, count - 1);
  if (argument < count) {
    OfferArgument(command->arguments[argument], words.back(), sources, completion);
  }
  return completion;
}

std::string ToText(const Completion& completion) {
  std::string text = completion.paths == Paths::kFiles     ? "files\n"
                     : completion.paths == Paths::kFolders ? "folders\n"
                                                           : "none\n";
  for (const Completion::Word& word : completion.words) {
    text += word.text + (word.help.empty() ? "" : "\t" + word.help) + "\n";
  }
  return text;
}

}  // namespace

Completion Complete(const std::vector<std::string>& typed_words, const CompletionSources& sources) {
  std::vector<std::string> words = WithValuesJoined(typed_words);
  if (words.empty()) words.emplace_back();
  const bool split_by_shell = words.size() != typed_words.size() && !typed_words.empty();
  const std::string& last = words.back();
  Completion completion;
  size_t next = 0;
  if (PassOptions(LaunchOptionTable(), words, next, split_by_shell, sources, completion))
    return completion;
  if (next + 1 >= words.size()) {
    OfferCommands(last, completion);
    return completion;
  }
  const std::vector<const CommandSpec*> family = CommandsOf(words[next]);
  if (family.empty()) {
    completion.paths = Paths::kFiles;
    return completion;
  }
  return CompleteCommand(family, words, next + 1, split_by_shell, sources);
}

Result<std::string> CompletionText(const std::vector<std::string>& words,
                                   const CompletionSources& sources) {
  if (words.size() > 2 && words[1] == "complete" && words[2] == "--") {
    return ToText(Complete({words.begin() + 3, words.end()}, sources));
  }
  DSL_TRY_ASSIGN(const CommandSpec* command, FindCommand("completion", words));
  DSL_TRY_ASSIGN(const std::optional<ParsedFlags> flags, ParseCommand(*command, words, 1));
  if (!flags) return CommandHelpText(*command);
  if (flags->completion == "bash") return std::string(kBash);
  if (flags->completion == "zsh") return std::string(kZsh);
  if (flags->completion == "fish") return std::string(kFish);
  return ManPage();
}

}  // namespace dslaunch
