#include "cli/commands/help_topics.h"

#include <algorithm>
#include <optional>

#include "base/text/sanitize.h"
#include "base/text/suggest.h"
#include "base/text/text_table.h"
#include "cli/options/command_parser.h"
#include "cli/options/help_text.h"
#include "cli/options/option_table.h"
#include "cli/output/markdown.h"

namespace dslaunch {
namespace {

// Returns the title of a page: "Launching jobs" for "# Launching jobs".
std::string_view TitleOf(const HelpPage& page) {
  std::string_view title = page.text.substr(0, page.text.find('\n'));
  title.remove_prefix(std::min(title.find_first_not_of("# "), title.size()));
  return title;
}

std::string TopicList() {
  std::vector<std::vector<std::string>> rows;
  for (const HelpPage& page : HelpPages())
    rows.push_back({std::string(page.topic), std::string(TitleOf(page))});
  return "dslaunch help TOPIC prints a page of the documentation:\n\n" + TextTable(rows, "  ") +
         "\ndslaunch --help lists options and commands. dslaunch help COMMAND describes a "
         "command.\n";
}

const HelpPage* FindPage(std::string_view topic) {
  const auto found = std::ranges::find(HelpPages(), topic, &HelpPage::topic);
  return found == HelpPages().end() ? nullptr : &*found;
}

// Returns the command or address that opens the target of a link, such as
// "reference/options.md#ssh".
std::string WhereToRead(std::string_view target) {
  if (target.starts_with("http")) return std::string(target);
  const size_t end = target.find(".md");
  if (end == std::string_view::npos) return "";
  const size_t slash = target.rfind('/', end);
  const std::string_view topic =
      target.substr(slash == std::string_view::npos ? 0 : slash + 1, end - slash - 1);
  const bool of_design = target.starts_with("design/");
  return of_design || FindPage(topic) == nullptr ? "" : "dslaunch help " + std::string(topic);
}

Error UnknownTopic(const std::string& topic) {
  std::vector<std::string> topics;
  for (const HelpPage& page : HelpPages()) topics.emplace_back(page.topic);
  for (const CommandSpec& command : Commands()) topics.emplace_back(FamilyOf(command));
  const std::string nearest = Nearest(topic, topics);
  const std::string what = "there is no topic " + Quoted(topic);
  return UsageError(nearest.empty() ? what : what + ", did you mean " + nearest + "?",
                    "dslaunch help");
}

// Returns the help of a command, or of a family of commands if `action` is empty.
Result<std::string> CommandHelp(const std::string& family, const std::string& action) {
  if (action.empty()) return CommandHelpText(family);
  DSL_TRY_ASSIGN(const CommandSpec* command, FindCommand(family, {family, action}));
  if (ActionOf(*command).empty())
    return UsageError("help: " + family + " has no actions", "dslaunch help " + family);
  return CommandHelpText(*command);
}

}  // namespace

Result<std::string> HelpTopicText(const std::vector<std::string>& words, size_t width) {
  DSL_TRY_ASSIGN(const CommandSpec* command, FindCommand("help", words));
  DSL_TRY_ASSIGN(const std::optional<ParsedFlags> flags, ParseCommand(*command, words, 1));
  if (!flags) return CommandHelpText(*command);
  if (flags->help_topic.empty()) return TopicList();
  std::string topic = flags->help_topic;
  std::ranges::replace(topic, '_', '-');
  const bool names_command = !CommandsOf(topic).empty();
  const HelpPage* const page = FindPage(topic);
  if (names_command && (page == nullptr || !flags->help_action.empty()))
    return CommandHelp(topic, flags->help_action);
  if (page == nullptr) return UnknownTopic(flags->help_topic);
  if (!flags->help_action.empty())
    return UsageError("help: " + topic + " is a page, which has no actions", "dslaunch help");
  return RenderMarkdown(page->text, width, WhereToRead) +
         (names_command ? "\nOptions of the command: dslaunch " + topic + " --help\n" : "");
}

}  // namespace dslaunch
