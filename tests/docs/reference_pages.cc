// Writes the pages of docs/reference from the program's own tables of options, keys, variables,
// exit codes and JSON fields: dslaunch_reference_pages FOLDER.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/commands/json_fields.h"
#include "cli/options/command_data.h"
#include "cli/options/exit_code_meanings.h"
#include "proto/contract/variable_meanings.h"
#include "trainer/config/key_reference.h"

namespace dslaunch {
namespace {

constexpr char kMade[] =
    "<!-- Made from tables in the code; cmake --build build --target update_reference -->\n";

// Escapes '|', which would end a table cell.
std::string Cell(std::string_view text) {
  std::string cell;
  for (const char c : text) cell += c == '|' ? std::string("\\|") : std::string(1, c);
  return cell;
}

std::string Code(std::string_view text) { return "`" + Cell(text) + "`"; }

std::string Row(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) row += cell.empty() ? " |" : " " + cell + " |";
  return row + "\n";
}

std::string Head(const std::vector<std::string>& cells) {
  return Row(cells) + Row(std::vector<std::string>(cells.size(), "---"));
}

std::string Page(const std::string& title, const std::string& about) {
  return "# " + title + "\n\n" + kMade + "\n" + about + "\n";
}

// The following functions make the page of options.

std::string Joined(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined += (joined.empty() ? "" : ", ") + text;
  return joined;
}

std::string Meaning(const OptionData& option) {
  std::string text = Cell(option.refusal.empty() ? option.help : option.refusal);
  if (!option.default_value.empty()) text += "; default " + Code(option.default_value);
  if (option.is_repeatable && option.help.find("repeated") == std::string::npos)
    text += "; may be repeated";
  return text;
}

std::string Origin(const OptionData& option) {
  std::vector<std::string> origins;
  if (option.from_deepspeed) origins.push_back("deepspeed");
  if (option.from_torchrun) origins.push_back("torchrun");
  if (option.from_horovod) origins.push_back("horovodrun");
  if (option.from_accelerate) origins.push_back("accelerate");
  if (!option.variable.empty()) origins.push_back(Code(option.variable));
  return Joined(origins);
}

// Returns a table for each group, in the order of --help.
std::string OptionTables(const CommandData& command) {
  const bool is_launch = command.name.empty();
  std::string text;
  const std::string* group = nullptr;
  for (const OptionData& option : command.options) {
    if (group == nullptr || *group != option.group) {
      group = &option.group;
      if (is_launch) {
        text += "\n### " + option.group + "\n";
      } else if (command.options.front().group != command.options.back().group) {
        text += "\n**" + option.group + "**\n";
      }
      text +=
          "\n" + (is_launch ? Head({"option", "meaning", "also of"}) : Head({"option", "meaning"}));
    }
    std::vector<std::string> cells = {
        Code(Joined(option.names) + (option.placeholder.empty() ? "" : " " + option.placeholder)),
        Meaning(option)};
    if (is_launch) cells.push_back(Origin(option));
    text += Row(cells);
  }
  return text;
}

std::string Details(const CommandData& command) {
  std::string text;
  for (size_t begin = 0; begin < command.details.size();) {
    const size_t end = std::min(command.details.find('\n', begin), command.details.size());
    text += "\n" + command.details.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  text += "\n" + Head({"example", "what it does"});
  for (const auto& [line, what] : command.examples) text += Row({Code(line), Cell(what)});
  return text;
}

std::string OptionsPage() {
  std::string page = Page(
      "Options",
      "Every option of every command. Options may be spelt with `-` or `_`. Those of deepspeed and "
      "torchrun may be abbreviated where that is unambiguous. Options of a launch must precede "
      "`PROGRAM`. The column \"also of\" says which launcher has the option too, and the variable "
      "that gives its value where neither the command line nor the launch file does.");
  for (const CommandData& command : AllCommands()) {
    page += "\n## " + (command.name.empty() ? "Launch" : "dslaunch " + command.name) + "\n\n`" +
            command.usage + "`: " + command.help + ".\n";
    page += Details(command);
    if (command.takes_launch_options) page += "\nIt takes the launch options.\n";
    page += OptionTables(command);
  }
  return page;
}

// The following functions make the page of keys.

std::string ParentOf(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

std::string Types(const ReferenceKey& key) {
  std::string types;
  for (const std::string& type : key.types) types += (types.empty() ? "" : ", ") + type;
  return types;
}

bool IsSection(const ReferenceKey& key) { return key.value.empty(); }

// Returns the keys of a section: first the supported ones, then those with only one accepted value.
std::string KeyTables(const std::vector<ReferenceKey>& keys, const std::string& section) {
  std::string obeyed, refused;
  bool has_types = false;
  for (const ReferenceKey& key : keys)
    has_types = has_types || (ParentOf(key.path) == section && !key.types.empty());
  for (const ReferenceKey& key : keys) {
    if (ParentOf(key.path) != section || IsSection(key)) continue;
    const std::string name = Code(section.empty() ? key.path : key.path.substr(section.size() + 1));
    if (!key.refusal.empty()) {
      refused += Row({name, key.value.starts_with("off:") ? Cell(key.value) : Code(key.value),
                      Cell(key.refusal)});
      continue;
    }
    std::vector<std::string> cells = {name, Cell(key.value)};
    if (has_types) cells.push_back(Types(key));
    cells.push_back(Cell(key.meaning));
    obeyed += Row(cells);
  }
  std::string text;
  if (!obeyed.empty()) {
    text +=
        "\n" +
        (has_types ? Head({"key", "value", "of", "meaning"}) : Head({"key", "value", "meaning"})) +
        obeyed;
  }
  if (!refused.empty())
    text += "\nRefused, but for one value:\n\n" + Head({"key", "value", "why"}) + refused;
  return text;
}

std::string RecipePage() {
  const std::vector<ReferenceKey> keys = RecipeKeys();
  std::string page =
      Page("Recipe keys",
           "Every key of a recipe (YAML or JSON), and so of an engine configuration, which is the "
           "section `engine`. A key that is left out, or null, has its default. Unknown keys are "
           "errors. The column \"of\" says which types of a section have the key; empty: all.");
  for (const ReferenceKey& key : keys) {
    if (!IsSection(key) || key.path == "engine.bfloat16") continue;
    page += "\n## " + key.path + "\n\n" + key.meaning + "\n" + KeyTables(keys, key.path);
  }
  for (const ReferenceKey& key : keys) {
    const std::string items = key.path + "[]";
    const std::string tables = KeyTables(keys, items);
    if (!tables.empty()) page += "\n## " + items + "\n\n" + key.meaning + "\n" + tables;
  }
  return page;
}

// The following functions make the pages of variables and exit codes.

template <size_t count>
std::string Variables(const std::string& title, const VariableMeaning (&variables)[count]) {
  std::string text = "\n## " + title + "\n\n" + Head({"variable", "meaning"});
  for (const VariableMeaning& variable : variables)
    text += Row({Code(variable.name), Cell(variable.meaning)});
  return text;
}

std::string EnvironmentPage() {
  std::string page =
      Page("Environment and exit codes", "What dslaunch sets and reads, and how it ends.");
  page += "\n## Exit codes\n\n" + Head({"code", "meaning"});
  for (const ExitCodeMeaning& code : kExitCodeMeanings)
    page += Row({code.code, Cell(code.meaning)});
  page += Variables("Set for every rank", kRankVariables);
  page += Variables("Read by dslaunch", kFrontEndVariables);
  page += Variables("Read by dslaunch and on the nodes", kDeviceVariables);
  page += Variables("Read on the nodes", kNodeVariables);
  page += Variables("Read by the trainer and by programs on the SDK", kTrainerVariables);
  return page;
}

// The following functions make the page of JSON documents.

std::string Fields(const JsonDocument& document) {
  std::string text = document.about + std::string("\n\n") + Head({"field", "meaning"});
  for (const JsonField& field : document.fields)
    text += Row({Code(field.path), Cell(field.meaning)});
  return text;
}

std::string JsonPage() {
  std::string page = Page(
      "JSON and event fields",
      "`a.b` is the field `b` of the object `a`, `a[]` an item of the list `a`. Readers should "
      "ignore fields that they do not know.");
  page += "\n## Output of commands\n";
  for (const JsonDocument& output : JsonOutputs())
    page += "\n### " + std::string(output.name) + "\n\n" + Fields(output);
  page +=
      "\n## Events\n\nLines of `events.jsonl` in the job's folder. All have `t` (seconds since "
      "1970) and `event` (the name) too.\n";
  for (const JsonDocument& event : JsonEvents())
    page += "\n### " + std::string(event.name) + "\n\n" + Fields(event);
  return page;
}

void Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
}

void WriteAll(const std::string& folder) {
  Write(folder + "/options.md", OptionsPage());
  Write(folder + "/recipe.md", RecipePage());
  Write(folder + "/environment.md", EnvironmentPage());
  Write(folder + "/json.md", JsonPage());
}

}  // namespace
}  // namespace dslaunch

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: dslaunch_reference_pages FOLDER\n");
    return 64;
  }
  dslaunch::WriteAll(argv[1]);
} catch (const std::exception& error) {
  std::fprintf(stderr, "dslaunch_reference_pages: %s\n", error.what());
  return 74;
}
