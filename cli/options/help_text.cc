#include "cli/options/help_text.h"

#include <algorithm>

#include "cli/options/option_table.h"

namespace dslaunch {
namespace {

constexpr size_t kWidth = 89;
constexpr size_t kTextColumn = 27;

constexpr char kUses[] =
    R"(dslaunch starts one process per slot on one or many nodes, and watches over them.

  dslaunch [options] train | predict [RECIPE] [options]   the built-in trainer
  dslaunch [options] PROGRAM [args...]                    any program or script
  dslaunch ps | logs JOB | attach JOB | stop JOB          jobs started before
  dslaunch checkpoint | hostfile | doctor | completion    'dslaunch doctor --help'
)";

constexpr char kEnd[] =
    R"(
Options may be spelt with '-' or '_' and must precede PROGRAM: what follows it is its own.
A program whose name is a command of dslaunch is started as ./train.
)";

constexpr char kTrainUse[] =
    R"(dslaunch [launch options] train [RECIPE] [trainer options]

RECIPE is a YAML or JSON file, or the name of a built-in recipe. Without it ./dslaunch.yaml
is taken if there is one, else the built-in fashion_mnist.
)";

constexpr char kPredictUse[] =
    R"(dslaunch [launch options] predict [RECIPE] [prediction options]

Answers for each sample of the recipe's test data, in its order, as JSON lines; gpt2 goes on
from a prompt. RECIPE is what the model was trained with. The weights come from the newest
checkpoint in --checkpoint_dir, or from --init_weights.
)";

// "-H, --hostfile FILE".
std::string Heading(const OptionSpec& spec) {
  std::string heading;
  for (const std::string& name : NamesOf(spec)) heading += (heading.empty() ? "" : ", ") + name;
  return IsFlag(spec) ? heading : heading + " " + spec.value;
}

// The line of an option: its heading, and its text in the second column.
std::string Entry(const std::string& heading, std::string_view text) {
  std::string result;
  std::string line = "  " + heading;
  if (line.size() + 2 > kTextColumn) {
    result = line + "\n";
    line.clear();
  }
  line.resize(kTextColumn, ' ');
  while (!text.empty()) {
    size_t end = text.size();
    if (kTextColumn + end > kWidth) end = text.rfind(' ', kWidth - kTextColumn);
    result += line.append(text.substr(0, end)) + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
    line.assign(kTextColumn, ' ');
  }
  return result;
}

std::string Groups(const OptionTable& table, bool all) {
  std::string text;
  const char* title = "";
  for (const OptionSpec& spec : table) {
    if (!all && !spec.common) continue;
    if (title != Title(spec.group)) {
      title = Title(spec.group);
      text += std::string("\n") + title + "\n";
    }
    text += Entry(Heading(spec), spec.refusal != nullptr ? spec.refusal : spec.help);
  }
  return text;
}

}  // namespace

std::string HelpText() { return kUses + Groups(LaunchOptionTable(), false) + kEnd; }

std::string HelpAllText() { return kUses + Groups(LaunchOptionTable(), true) + kEnd; }

std::string TrainHelpText() { return kTrainUse + Groups(TrainOptionTable(), true); }

std::string PredictHelpText() { return kPredictUse + Groups(PredictOptionTable(), true); }

}  // namespace dslaunch
