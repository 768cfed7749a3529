// dslaunch's own commands, for completion and the man page. They parse their arguments themselves.
#include "cli/options/option_table.h"

namespace dslaunch {
namespace {

using Group = OptionGroup;

OptionSpec Option(const char* names, const char* value, const char* help) {
  return {.names = names, .value = value, .group = Group::kOther, .help = help};
}

OptionSpec Help() { return Option("-h,--help", "", "what the command does"); }

}  // namespace

const std::vector<CommandSpec>& Commands() {
  static const std::vector<CommandSpec> commands = {
      {"ps",
       "",
       "this user's jobs that were started from this machine and run",
       {},
       {Option("--all", "", "those that have ended too"), Option("--json", "", "for programs"),
        Option("--prune", "", "remove the folders of those that have ended"),
        Option("--older_than", "DAYS", "with --prune: only of those that ended so long ago"),
        Help()}},
      {"logs",
       "JOB",
       "what ranks wrote, of rank 0 by default",
       {"last"},
       {Option("-f,--follow", "", "until the job ends"), Option("--rank", "R", "of this rank"),
        Option("--tee", "all|0,3", "of these ranks"),
        Option("--since", "10m|TIME", "from then on, as 2h or 2026-11-21T10:00"), Help()}},
      {"attach",
       "JOB",
       "shows a detached job from now on, and ends with its exit code",
       {"last"},
       {Option("--rank", "R", "of this rank"), Option("--tee", "all|none|0,3", "of these ranks"),
        Help()}},
      {"stop",
       "JOB",
       "ends a job; waits until nothing of it is left",
       {"last"},
       {Option("--now", "", "SIGKILL at once, without the job's grace"), Help()}},
      {"report",
       "JOB",
       "one page about a training run: loss, step times, operators, communication, memory",
       {"last"},
       {Option("-o,--output", "FILE.html", "there; JOB.html by default"),
        Option("--force", "", "overwrite the file"), Help()}},
      {"checkpoint",
       "ls DIR | verify DIR | export FOLDER OUT",
       "lists, checks and converts what training has kept",
       {"ls", "verify", "export"},
       {Option("--json", "", "ls: for programs"),
        Option("--dtype", "bf16|fp16|fp32", "export: default: what was saved"), Help()}},
      {"hostfile",
       "write | check FILE",
       "makes a hostfile of what the nodes have, or asks all nodes of one",
       {"write", "check"},
       {Option("--hosts", "a,b,c", "write: these nodes"),
        Option("--slurm", "", "write: those of the allocation that this runs in"),
        Option("--ssh_config", "", "write: the hosts of ~/.ssh/config that are no patterns"),
        Option("-o,--output", "FILE", "write: there, in YAML if it ends with .yaml or .yml"),
        Option("--force", "", "write: overwrite the file"),
        Option("--skip_failing", "", "write: leave out nodes that cannot be reached"),
        Option("--json", "", "check: for programs"),
        Option("--connect_timeout", "S", "seconds to reach all nodes"), Help()}},
      {"doctor",
       "[launch options] [train]",
       "looks at every node that a job with these options would use",
       {"train"},
       {}},
      {"completion",
       "bash|zsh|fish|man",
       "prints what a shell reads to complete command lines, or the man page",
       {"bash", "zsh", "fish", "man"},
       {Help()}},
  };
  return commands;
}

}  // namespace dslaunch
