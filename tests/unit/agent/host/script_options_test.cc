#include "agent/host/script_options.h"

#include <gtest/gtest.h>

namespace dslaunch::script_options_test {
namespace {

TEST(ScriptOptionsTest, FindsOptionAsSpelledInTheSource) {
  const std::pair<const char*, const char*> sources[] = {
      {"parser.add_argument('--local_rank', type=int)", "--local_rank"},
      {"parser.add_argument(\"--local-rank\", type=int)", "--local-rank"},
      {"p.add_argument(\n    # which\n    '--local_rank')", "--local_rank"},
      {"p.add_argument('-l', '--local-rank', '--local_rank')", "--local-rank"},
      {"@click.option('--local_rank')\ndef f(): pass", "--local_rank"},
      {"x = {'a': f('--local_rank')}", "--local_rank"},
      {"'''say \"it's\"'''\nf('--local_rank')", "--local_rank"},
      {"'it\\'s'\nf('--local_rank')", "--local_rank"},
      {"x = 'unfinished\nf('--local_rank')", "--local_rank"}};
  for (const auto& [source, option] : sources) EXPECT_EQ(LocalRankOption(source), option) << source;
}

TEST(ScriptOptionsTest, IgnoresCommentsOtherStringsAndLists) {
  for (const std::string& source : {
           std::string(""),
           std::string("import os\nprint(os.environ['LOCAL_RANK'])"),
           std::string("# p.add_argument('--local_rank')\n"),
           std::string("'''p.add_argument('--local_rank')'''\n"),
           std::string("\"\"\"\nUsage: f(\n'--local_rank')\n\"\"\""),
           std::string("p.add_argument('--local_rank_x')"),
           std::string("p.add_argument('--local_ranks')"),
           std::string("print('pass --local_rank')"),
           std::string("cmd = [python, script, '--local_rank', '0']"),
           std::string("run(['--local_rank', '0'])"),
           std::string("if arg in ('--local_rank', '-l'): pass"),
           std::string("x = '--local_rank'"),
           std::string("p.add_argument('unfinished --local_rank"),
           std::string("p.add_argument('''--local_rank"),
           std::string("f(\0'--local_rank'", 17),
           std::string("\\"),
       }) {
    EXPECT_EQ(LocalRankOption(source), "") << source;
  }
}

}  // namespace
}  // namespace dslaunch::script_options_test
