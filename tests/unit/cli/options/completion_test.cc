#include "cli/options/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/options/help_text.h"
#include "cli/options/option_table.h"

namespace dslaunch::completion_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Paths = Completion::Paths;

std::vector<std::string> Words(const std::vector<std::string>& typed) {
  std::vector<std::string> words;
  for (const Completion::Word& word : Complete(typed).words) words.push_back(word.text);
  return words;
}

TEST(Complete, OffersOptionsInTypedSpelling) {
  EXPECT_THAT(Words({"--num_"}),
              ElementsAre("--num_proc", "--num_nodes", "--num_machines", "--num_gpus",
                          "--num_accelerators", "--num_processes"));
  EXPECT_THAT(Words({"--num-g"}), ElementsAre("--num-gpus"));
  EXPECT_THAT(Words({"--num_gpus", "2", "--hostf"}), ElementsAre("--hostfile"));
  EXPECT_THAT(Words({"--logs_s"}), IsEmpty());  // --logs_specs would be refused
  EXPECT_THAT(Words({"-"}), Contains("--include"));
}

TEST(Complete, OffersValuesOfOption) {
  EXPECT_THAT(Words({"--device", ""}),
              ElementsAre("auto", "cuda", "rocm", "xpu", "npu", "hpu", "mlu", "cpu"));
  EXPECT_THAT(Words({"--device=c"}), ElementsAre("--device=cuda", "--device=cpu"));
  // bash splits words at "=".
  EXPECT_THAT(Words({"--device", "=", "c"}), ElementsAre("cuda", "cpu"));
  EXPECT_THAT(Words({"--nproc-per-node", ""}), ElementsAre("auto", "cpu", "gpu"));
  EXPECT_THAT(Words({"--show", ""}), ElementsAre("all", "none"));
  EXPECT_EQ(Complete({"-H", ""}).paths, Paths::kFiles);
  EXPECT_EQ(Complete({"--log_dir", "x"}).paths, Paths::kFolders);
  EXPECT_EQ(Complete({"--num_gpus", ""}).paths, Paths::kNone);
}

TEST(Complete, OffersCommandsProgramsAndTheirArguments) {
  EXPECT_THAT(Words({"--num_gpus", "2", "tr"}), ElementsAre("train"));
  EXPECT_THAT(Words({""}), Contains("doctor"));
  EXPECT_EQ(Complete({}).paths, Paths::kFiles);
  EXPECT_THAT(Words({"train", "--st"}), ElementsAre("--steps"));
  EXPECT_THAT(Words({"train", "recipe.yaml", "--res"}), ElementsAre("--resume", "--resume_from"));
  EXPECT_THAT(Words({"predict", "--resume", "a"}), ElementsAre("auto"));
  EXPECT_THAT(Words({"train.py", "--num_"}), IsEmpty());
  EXPECT_EQ(Complete({"train.py", "--num_"}).paths, Paths::kFiles);
  EXPECT_THAT(Words({"doctor", "--hostf"}), ElementsAre("--hostfile"));
  EXPECT_THAT(Words({"checkpoint", "ex"}), ElementsAre("export"));
  EXPECT_THAT(Words({"checkpoint", "--"}), ElementsAre("--help"));
  EXPECT_THAT(Words({"checkpoint", "none", "--"}), IsEmpty());
  EXPECT_THAT(Words({"checkpoint", "ls", "--j"}), ElementsAre("--json"));
  EXPECT_EQ(Complete({"checkpoint", "export", "a", ""}).paths, Paths::kFolders);
  EXPECT_EQ(Complete({"checkpoint", "ls", "a", ""}).paths, Paths::kNone);
  EXPECT_EQ(Complete({"hostfile", "check", ""}).paths, Paths::kFiles);
  EXPECT_THAT(Words({"attach", ""}), ElementsAre("last"));
  EXPECT_THAT(Words({"attach", "last", ""}), IsEmpty());
  EXPECT_THAT(Words({"checkpoint", "export", "--dtype", ""}), ElementsAre("bf16", "fp16", "fp32"));
  EXPECT_THAT(Words({"logs", "last", "--f"}), ElementsAre("--follow"));
  EXPECT_THAT(Words({"completion", ""}), ElementsAre("bash", "zsh", "fish", "man"));
}

TEST(Complete, OffersJobsRecipesAndKeys) {
  CompletionSources sources;
  sources.jobs = [] { return std::vector<Completion::Word>{{"2026-b", "train"}, {"2026-a", ""}}; };
  sources.recipes = [] { return std::vector<Completion::Word>{{"gpt2_tiny", "small"}}; };
  sources.recipe_keys = [] { return std::vector<Completion::Word>{{"run.steps", ""}}; };
  const auto offered = [&](const std::vector<std::string>& typed) {
    std::vector<std::string> words;
    for (const Completion::Word& word : Complete(typed, sources).words) words.push_back(word.text);
    return words;
  };
  for (const char* command : {"logs", "attach", "stop", "report", "describe"})
    EXPECT_THAT(offered({command, ""}), ElementsAre("last", "2026-b", "2026-a")) << command;
  EXPECT_THAT(offered({"train", "g"}), ElementsAre("gpt2_tiny"));
  EXPECT_EQ(Complete({"train", "g"}, sources).paths, Paths::kFiles);
  EXPECT_THAT(offered({"recipe", "show", ""}), ElementsAre("gpt2_tiny"));
  EXPECT_THAT(offered({"recipe", "explain", "run"}), ElementsAre("run.steps"));
  EXPECT_THAT(offered({"train", "--set", "run"}), ElementsAre("run.steps="));
  EXPECT_THAT(offered({"help", "tr"}), ElementsAre("training", "troubleshooting", "train"));
  EXPECT_THAT(offered({"train", "--profile_sort", ""}),
              ElementsAre("self_time", "total_time", "device_time", "memory", "calls"));
}

TEST(CompletionText, PrintsScriptsAndRejectsOtherShells) {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const auto script = CompletionText({"completion", shell});
    ASSERT_TRUE(script.ok());
    EXPECT_THAT(*script, HasSubstr("completion complete -- "));
  }
  EXPECT_EQ(*CompletionText({"completion", "complete", "--", "--device", "cp"}), "none\ncpu\n");
  EXPECT_THAT(*CompletionText({"completion", "complete", "--", "--help_"}),
              HasSubstr("none\n--help_all\tprint every option"));
  EXPECT_THAT(*CompletionText({"completion", "--help"}), HasSubstr("source <(dslaunch"));
  for (const auto& [words, message] :
       {std::pair<std::vector<std::string>, std::string>({"completion"}, "for which shell?"),
        {{"completion", "fihs"}, "not 'fihs', did you mean fish?"},
        {{"completion", "tcsh"}, "not 'tcsh'"},
        {{"completion", "bash", "x"}, "takes no further argument 'x'"}}) {
    const auto text = CompletionText(words);
    ASSERT_FALSE(text.ok());
    EXPECT_EQ(text.error().code, ExitCode::kUsage);
    EXPECT_THAT(text.error().message, HasSubstr(message));
  }
}

TEST(ManPage, ListsEveryOptionAndEscapesRoff) {
  const std::string page = ManPage();
  for (const OptionTable* table :
       {&LaunchOptionTable(), &TrainOptionTable(), &PredictOptionTable()}) {
    for (const OptionSpec& spec : *table) {
      for (const std::string& name : NamesOf(spec)) {
        std::string escaped;
        for (const char c : name) escaped += c == '-' ? "\\-" : std::string(1, c);
        EXPECT_THAT(page, HasSubstr("\\fB" + escaped + "\\fR")) << name;
      }
    }
  }
  EXPECT_THAT(page, HasSubstr("[PET_NNODES]"));
  for (const char* section : {"EXAMPLES", "ENVIRONMENT", "FILES", "EXIT STATUS"})
    EXPECT_THAT(page, HasSubstr(".SH " + std::string(section) + "\n"));
  EXPECT_THAT(page, HasSubstr("\\fBXDG_STATE_HOME\\fR"));
  for (const char* code :
       {"0", "64", "65", "69", "70", "74", "75", "77", "85", "126", "127", "129", "130", "143"}) {
    EXPECT_THAT(page, HasSubstr(".TP\n\\fB" + std::string(code) + "\\fR\n"));
  }
  for (size_t at = 0; (at = page.find("\n.", at)) != std::string::npos; ++at) {
    const std::string word = page.substr(at + 2, 2);
    EXPECT_THAT((std::vector<std::string>{"SH", "SS", "TP", "PP", "br", "nh"}), Contains(word));
  }
}

}  // namespace
}  // namespace dslaunch::completion_test
