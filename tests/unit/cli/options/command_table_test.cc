// Tests the table of commands and options, and everything generated from it. The parser must accept
// every entry, and every entry must be in the help, the man page, the completion and the plain
// data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "cli/options/checkpoint_command.h"
#include "cli/options/command_data.h"
#include "cli/options/command_parser.h"
#include "cli/options/completion.h"
#include "cli/options/data_command.h"
#include "cli/options/doctor_command.h"
#include "cli/options/help_text.h"
#include "cli/options/hostfile_command.h"
#include "cli/options/job_command.h"
#include "cli/options/manifest_command.h"
#include "cli/options/option_table.h"
#include "cli/options/recipe_command.h"

namespace dslaunch::command_table_test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Returns the words that select `command` on a command line.
std::vector<std::string> WordsOf(const CommandSpec& command) {
  std::vector<std::string> words;
  if (*command.name == '\0') return words;
  words.emplace_back(FamilyOf(command));
  if (!ActionOf(command).empty()) words.emplace_back(ActionOf(command));
  return words;
}

// Parses `words` as the program does. Returns the error message, or "" if they are accepted.
std::string Complaint(const std::vector<std::string>& words) {
  std::vector<const char*> argv = {"dslaunch"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  const Result<LaunchOptions> options = ParseOptions(static_cast<int>(argv.size()), argv.data());
  if (!options.ok()) return options.error().message;
  const auto message = [](const auto& result) {
    return result.ok() ? std::string() : result.error().message;
  };
  using Mode = LaunchOptions::Mode;
  switch (options->mode) {
    case Mode::kJobCommand:
      return message(ParseJobCommand(options->program, 1'780'000'000'000));
    case Mode::kCheckpointCommand:
      return message(ParseCheckpointCommand(options->program));
    case Mode::kDataCommand:
      return message(ParseDataCommand(options->program));
    case Mode::kRecipeCommand:
      return message(ParseRecipeCommand(options->program));
    case Mode::kManifestCommand:
      return message(ParseManifestCommand(options->program));
    case Mode::kHostfileCommand:
      return message(ParseHostfileCommand(options->program));
    case Mode::kDoctor:
      return message(ParseDoctorCommand(options->program));
    case Mode::kCompletion:
      return message(CompletionText(options->program));
    case Mode::kHelpTopic: {
      const Result<const CommandSpec*> command = FindCommand("help", options->program);
      if (!command.ok()) return command.error().message;
      return message(ParseCommand(**command, options->program, 1));
    }
    default:
      return "";
  }
}

// Returns a value of the option's kind. Later checks may still reject the value.
std::string SomeValue(const OptionSpec& spec) {
  const std::vector<std::string> choices = ChoicesOf(spec);
  return choices.empty() ? "1" : choices.front();
}

struct Place {
  const CommandSpec& command;
  const OptionSpec& option;
};

// Returns each option of each command that has its own options.
std::vector<Place> Places() {
  std::vector<Place> places;
  for (const CommandSpec& command : Commands()) {
    if (*command.name != '\0' && command.options == &LaunchOptionTable()) continue;
    for (const OptionSpec& option : *command.options) places.push_back({command, option});
  }
  return places;
}

TEST(CommandTable, NamesKindsAndTargetsAgree) {
  EXPECT_GT(Places().size(), 130u);
  for (const auto& [command, option] : Places()) {
    SCOPED_TRACE(std::string(command.name) + " " + option.names);
    EXPECT_NE(option.target.read == nullptr, option.refusal == nullptr);
    EXPECT_EQ(IsFlag(option), PlaceholderOf(option).empty());
    EXPECT_EQ(option.target.kind == ValueKind::kChoice, option.target.choices != nullptr);
    EXPECT_THAT(std::string(option.help), Not(testing::EndsWith(".")));
    for (const std::string& name : NamesOf(option)) EXPECT_EQ(name.find_first_of("= "), name.npos);
  }
  for (const CommandSpec& command : Commands()) {
    std::set<std::string> seen;
    for (const OptionSpec& option : *command.options) {
      for (const std::string& name : NamesOf(option)) {
        EXPECT_TRUE(seen.insert(name).second) << command.name << " has " << name << " twice";
      }
    }
    EXPECT_TRUE(seen.contains("--help")) << command.name;
    for (const Requirement& requirement : command.requirements) {
      EXPECT_TRUE(seen.contains(requirement.option)) << requirement.option;
      EXPECT_TRUE(seen.contains(requirement.needs)) << requirement.needs;
    }
    for (const Exclusion& exclusion : command.exclusions) {
      EXPECT_NE(FindOption(*command.options, exclusion.one).spec, nullptr) << exclusion.one;
      EXPECT_NE(FindOption(*command.options, exclusion.other).spec, nullptr) << exclusion.other;
    }
  }
}

// Paths must be options of kind file or folder, because "~" is expanded only in these.
TEST(CommandTable, OptionsWithPathsAreFilesOrFolders) {
  for (const auto& [command, option] : Places()) {
    const std::string value = option.value;
    const bool is_path = value.starts_with("FILE") || value.starts_with("LIB.so") ||
                         value == "DIR" || value == "PATH" || value == "FOLDER";
    if (!is_path || option.refusal != nullptr) continue;
    EXPECT_THAT(option.target.kind, testing::AnyOf(ValueKind::kFile, ValueKind::kFolder))
        << command.name << " " << option.names;
  }
}

TEST(CommandTable, ParserAcceptsEveryOptionInEverySpelling) {
  for (const auto& [command, option] : Places()) {
    for (std::string name : NamesOf(option)) {
      for (const bool with_dashes : {false, true}) {
        if (with_dashes && name.starts_with("--")) {
          std::replace(name.begin() + 2, name.end(), '_', '-');
        }
        std::vector<std::string> words = WordsOf(command);
        words.push_back(name);
        if (!IsFlag(option)) words.push_back(SomeValue(option));
        SCOPED_TRACE(testing::PrintToString(words));
        const std::string complaint = Complaint(words);
        EXPECT_THAT(complaint, Not(HasSubstr("nknown option")));
        EXPECT_THAT(complaint, Not(HasSubstr("belongs ")));
        EXPECT_THAT(complaint, Not(HasSubstr("could be one of")));
        if (option.refusal == nullptr) {
          EXPECT_THAT(complaint, Not(HasSubstr("option '" + name + "' is not supported")));
        } else {
          EXPECT_THAT(complaint, HasSubstr(std::string(NameOf(option)) + " is not supported: "));
        }
      }
    }
  }
}

TEST(CommandTable, AcceptsEveryChoiceAndNothingElse) {
  for (const auto& [command, option] : Places()) {
    if (option.target.kind != ValueKind::kChoice) continue;
    for (const std::string& choice : ChoicesOf(option)) {
      std::vector<std::string> words = WordsOf(command);
      words.insert(words.end(), {std::string(NameOf(option)), choice});
      EXPECT_THAT(Complaint(words), Not(HasSubstr("must be one of"))) << choice;
    }
    std::vector<std::string> words = WordsOf(command);
    words.insert(words.end(), {std::string(NameOf(option)), "nonsense", "p"});
    EXPECT_THAT(Complaint(words), HasSubstr("must be one of")) << option.names;
  }
}

TEST(CommandTable, SuggestsOptionForMisspeltOne) {
  for (const CommandSpec& command : Commands()) {
    if (*command.name == '\0') continue;
    std::vector<std::string> words = WordsOf(command);
    words.push_back("--hepl");
    const std::string complaint = Complaint(words);
    EXPECT_THAT(complaint, HasSubstr("unknown option '--hepl', did you mean --help?"));
    EXPECT_THAT(complaint, HasSubstr(" See dslaunch ")) << command.name;
  }
  EXPECT_THAT(Complaint({"logs", "last", "--folow"}), HasSubstr("did you mean --follow?"));
  EXPECT_THAT(Complaint({"hostfile", "check", "f", "--slurm"}),
              HasSubstr("option '--slurm' belongs to 'hostfile write'"));
}

TEST(CommandTable, HelpOfCommandListsEveryOption) {
  for (const auto& [command, option] : Places()) {
    const std::string help = *command.name == '\0' ? HelpAllText() + HelpLaunchersText()
                                                   : CommandHelpText(FamilyOf(command));
    EXPECT_THAT(help, HasSubstr("\n  " + HeadingOf(option))) << command.name;
  }
  for (const CommandSpec& command : Commands()) {
    if (*command.name == '\0') continue;
    const std::string help = CommandHelpText(FamilyOf(command));
    EXPECT_THAT(help, HasSubstr(UsageOf(command) + "\n"));
    EXPECT_THAT(HelpText(), HasSubstr(std::string(FamilyOf(command))));
    for (size_t begin = 0; begin < help.size();) {
      const size_t end = std::min(help.find('\n', begin), help.size());
      EXPECT_LE(end - begin, 92u) << help.substr(begin, end - begin);
      begin = end + 1;
    }
  }
}

TEST(CommandTable, EveryCommandHasValidExamples) {
  for (const CommandSpec& command : Commands()) {
    SCOPED_TRACE(command.name);
    ASSERT_FALSE(command.examples.empty());
    if (*command.name != '\0') {
      EXPECT_THAT(CommandHelpText(command), HasSubstr(command.examples[0].command));
    }
    for (const Example& example : command.examples) {
      std::istringstream line(example.command);
      std::vector<std::string> words;
      for (std::string word; line >> word && word != ">" && word != "|";) words.push_back(word);
      if (words.front() == "source") continue;
      EXPECT_EQ(words.front(), "dslaunch") << example.command;
      words.erase(words.begin());
      EXPECT_EQ(Complaint(words), "") << example.command;
      EXPECT_LE(std::string(example.command).size(), 87u) << example.command;
    }
  }
}

TEST(CommandTable, SuggestsCommandForMistypedOne) {
  const auto complaint = [](const std::vector<const char*>& words, bool has_program) {
    std::vector<const char*> argv = {"dslaunch"};
    argv.insert(argv.end(), words.begin(), words.end());
    const ParseContext context = {nullptr, "", [=](const std::string&) { return has_program; }};
    const Result<LaunchOptions> options =
        ParseOptions(static_cast<int>(argv.size()), argv.data(), context);
    return options.ok() ? std::string() : options.error().message;
  };
  EXPECT_THAT(complaint({"trian"}, false), HasSubstr("did you mean dslaunch train?"));
  EXPECT_THAT(complaint({"atach", "last"}, false), HasSubstr("did you mean dslaunch attach?"));
  EXPECT_THAT(complaint({"-n", "2", "trian"}, false), HasSubstr("did you mean dslaunch train?"));
  EXPECT_THAT(complaint({"jobs"}, false), HasSubstr("did you mean dslaunch ps?"));
  EXPECT_THAT(complaint({"kill", "last"}, true), HasSubstr("did you mean dslaunch stop JOB?"));
  EXPECT_EQ(complaint({"trian"}, true), "") << "it is a program";
  for (const std::vector<const char*>& words :
       std::vector<std::vector<const char*>>{{"./trian"},
                                             {"-m", "trian"},
                                             {"--no_python", "trian"},
                                             {"my_program"},
                                             {"trian.py"},
                                             {"report.py"}}) {
    EXPECT_EQ(complaint(words, false), "") << testing::PrintToString(words);
  }
}

TEST(CommandTable, ManPageListsEveryOption) {
  const std::string page = ManPage();
  const auto escaped = [](std::string_view text) {
    std::string roff;
    for (const char c : text) roff += c == '-' ? "\\-" : std::string(1, c);
    return roff;
  };
  for (const CommandSpec& command : Commands()) {
    if (*command.name == '\0') continue;
    const size_t section = page.find(".SS \"" + escaped(UsageOf(command)) + "\"\n");
    ASSERT_NE(section, std::string::npos) << command.name;
    if (command.options == &LaunchOptionTable()) continue;
    const std::string_view name = command.name;
    const bool has_own_section = name == "train" || name == "predict";
    const size_t begin =
        has_own_section ? page.find(name == "train" ? "OPTIONS OF TRAIN" : "OPTIONS OF PREDICT")
                        : section;
    const size_t end = page.find(has_own_section ? ".SH" : ".SS \"dslaunch", begin + 5);
    const std::string part = page.substr(begin, end - begin);
    for (const OptionSpec& option : *command.options) {
      for (const std::string& spelling : NamesOf(option)) {
        EXPECT_THAT(part, HasSubstr("\\fB" + escaped(spelling) + "\\fR")) << command.name;
      }
    }
  }
}

TEST(CommandTable, CompletesEveryOptionAndItsValues) {
  for (const auto& [command, option] : Places()) {
    for (const std::string& name : NamesOf(option)) {
      if (!name.starts_with("--")) continue;
      std::vector<std::string> words = WordsOf(command);
      words.push_back(name.substr(0, name.size() - 1));
      SCOPED_TRACE(testing::PrintToString(words));
      std::vector<std::string> offered;
      for (const Completion::Word& word : Complete(words).words) offered.push_back(word.text);
      if (option.refusal != nullptr) {
        EXPECT_THAT(offered, Not(Contains(name)));
        continue;
      }
      EXPECT_THAT(offered, Contains(name));
      words.back() = name;
      words.emplace_back();
      if (IsFlag(option)) continue;
      const Completion completion = Complete(words);
      EXPECT_EQ(completion.words.size(), ChoicesOf(option).size());
      EXPECT_EQ(completion.paths, option.target.kind == ValueKind::kFile ? Completion::Paths::kFiles
                                  : option.target.kind == ValueKind::kFolder
                                      ? Completion::Paths::kFolders
                                      : Completion::Paths::kNone);
    }
  }
  for (const CommandSpec& command : Commands()) {
    if (*command.name == '\0') continue;
    std::vector<std::string> words = WordsOf(command);
    words.back().pop_back();
    std::vector<std::string> offered;
    for (const Completion::Word& word : Complete(words).words) offered.push_back(word.text);
    EXPECT_THAT(offered, Contains(WordsOf(command).back()));
  }
}

// Giving the default must change nothing. Tested for options whose default does not depend on other
// options.
TEST(CommandTable, GivingTheDefaultChangesNothing) {
  const auto parsed = [](const std::vector<std::string>& words) {
    std::vector<const char*> argv = {"dslaunch"};
    for (const std::string& word : words) argv.push_back(word.c_str());
    Result<LaunchOptions> options = ParseOptions(static_cast<int>(argv.size()), argv.data());
    EXPECT_TRUE(options.ok()) << options.error().message;
    if (options.ok()) options->notices.clear();
    return options.ok() ? *std::move(options) : LaunchOptions();
  };
  const LaunchOptions none = parsed({"p"});
  int checked = 0;
  for (const OptionSpec& option : LaunchOptionTable()) {
    if (*option.default_value == '\0') continue;
    ++checked;
    EXPECT_TRUE(parsed({std::string(NameOf(option)), option.default_value, "p"}) == none)
        << option.names;
  }
  EXPECT_GT(checked, 12);
  EXPECT_EQ(HostfileCommand().connect_timeout_ms, 20'000);
  EXPECT_THAT(JobCommand().shown_ranks.ranks, testing::ElementsAre(0));
}

TEST(AllCommands, ContainsEveryOptionOfTheTable) {
  const std::vector<CommandData> all = AllCommands();
  ASSERT_EQ(all.size(), Commands().size());
  size_t options = 0;
  for (const CommandData& command : all) {
    EXPECT_FALSE(command.help.empty()) << command.name;
    EXPECT_THAT(command.usage, testing::StartsWith("dslaunch "));
    EXPECT_EQ(command.takes_launch_options, command.name == "doctor");
    for (const OptionData& option : command.options) {
      ++options;
      EXPECT_THAT(option.names, Not(IsEmpty()));
      EXPECT_FALSE(option.help.empty() || option.group.empty()) << option.names.front();
      EXPECT_EQ(option.placeholder.empty(), option.kind == "flag") << option.names.front();
    }
  }
  EXPECT_EQ(options, Places().size());
  const auto find = [](const CommandData& command, const std::string& name) {
    return *std::ranges::find_if(command.options, [&](const OptionData& option) {
      return std::ranges::find(option.names, name) != option.names.end();
    });
  };
  const OptionData nnodes = find(all.front(), "--nnodes");
  EXPECT_EQ(nnodes.variable, "PET_NNODES");
  EXPECT_TRUE(nnodes.in_launch_file && nnodes.from_torchrun && !nnodes.from_deepspeed);
  EXPECT_FALSE(find(all.front(), "--help").in_launch_file);
  const OptionData device = find(all.front(), "--device");
  EXPECT_EQ(device.placeholder, "KIND");
  EXPECT_EQ(device.default_value, "auto");
  EXPECT_THAT(device.choices,
              testing::ElementsAre("auto", "cuda", "rocm", "xpu", "npu", "hpu", "mlu", "cpu"));
}

}  // namespace
}  // namespace dslaunch::command_table_test
