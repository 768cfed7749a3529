#include "cli/commands/help_topics.h"

#include <algorithm>
#include <optional>

#include "base/sanitize.h"
#include "base/suggest.h"
#include "base/text_table.h"
#include "cli/options/command_parser.h"
#include "cli/options/help_text.h"
#include "cli/options/option_table.h"
#include "cli/output/markdown.h"

namespace dslaunch {
namespace {

// "# Launching jobs" -> "Launching jobs".
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
         "\ndslaunch --help lists options and commands.\n";
}

const HelpPage* FindPage(std::string_view topic) {
  const auto found = std::ranges::find(HelpPages(), topic, &HelpPage::topic);
  return found == HelpPages().end() ? nullptr : &*found;
}

// Of a link such as "reference/options.md#ssh".
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
  const std::string nearest = Nearest(topic, topics);
  const std::string what = "there is no topic " + Quoted(topic);
  if (!CommandsOf(topic).empty())
    return {ExitCode::kUsage, what + "; see dslaunch " + topic + " --help"};
  return UsageError(nearest.empty() ? what : what + ", did you mean " + nearest + "?",
                    "dslaunch help");
}

}  // namespace

Result<std::string> HelpTopicText(const std::vector<std::string>& words, size_t width) {
  DSL_TRY_ASSIGN(const CommandSpec* command, FindCommand("help", words));
  DSL_TRY_ASSIGN(const std::optional<ParsedFlags> flags, ParseCommand(*command, words, 1));
  if (!flags) return CommandHelpText("help");
  if (flags->help_topic.empty()) return TopicList();
  std::string topic = flags->help_topic;
  std::ranges::replace(topic, '_', '-');
  const HelpPage* const page = FindPage(topic);
  if (page == nullptr) return UnknownTopic(flags->help_topic);
  return RenderMarkdown(page->text, width, WhereToRead);
}

}  // namespace dslaunch
