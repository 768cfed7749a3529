// Defines the commands of dslaunch, with their options and arguments.
#include <algorithm>
#include <iterator>

#include "base/text/suggest.h"
#include "cli/options/option_readers.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {
namespace {

using command_options::Flag;
using command_options::Help;
using command_options::Option;

constexpr int64_t kDayMs = 86'400'000;

constexpr Named<const char*> kCompletions[] = {
    {"bash", "bash"}, {"zsh", "zsh"}, {"fish", "fish"}, {"man", "man"}};

// Returns an --ssh_command option whose value is stored in `member`.
template <auto member>
OptionSpec SshCommand(const char* help) {
  OptionSpec spec = Option("--ssh_command", "'ssh ...'", help, ReadCommand<member>);
  spec.needs_trust = kRunsCode;
  return spec;
}

OptionSpec JobSsh() {
  return SshCommand<&JobCommand::ssh_command>(
      "reach the job's nodes with this command; default: as the job was started");
}

// Returns the --rank option of the commands logs and attach.
OptionSpec Rank() {
  return Option(
      "--rank", "R", "show the output of this rank only",
      {[](const FlagValue& given, ParsedFlags& flags) {
         flags.job.shown_ranks = {false, {ReadWhole<int>(given.name, given.text, 0, kMaxNodes)}};
       },
       ValueKind::kNumber});
}

OptionSpec Show() {
  OptionSpec spec = Option("--show", "all|none|0,3", "show the output of these ranks",
                           [](const FlagValue& given, ParsedFlags& flags) {
                             flags.job.shown_ranks = ReadRankChoice(given.name, given.text);
                           });
  spec.default_value = "0";
  return spec;
}

OptionSpec Tee() {
  OptionSpec spec = Option("--tee", "RANKS", "former name of --show", {});
  spec.group = OptionGroup::kRefused;
  spec.refusal = "give --show all, none or 0,3";
  return spec;
}

ArgumentSpec Job(const char* if_missing = "which job? Give a part of its id, or 'last'") {
  return {"JOB", kText<&JobCommand::job>, if_missing, {"last"}, Offers::kJobs};
}

constexpr char kStacksDetails[] =
    "Prints the Python stacks of CPython 3.8 to 3.14, read from outside: also of ranks that are "
    "stopped, hold the GIL in C code or wait in the kernel, and of their child processes; of other "
    "programs the system call and the frames of C and C++. Ranks at the same place are shown once. "
    "JOB is a job id, a part of only one, or 'last'.";

constexpr char kTopDetails[] =
    "Shows step, step time, waiting, memory, CPU, network and disk of nodes and ranks, their "
    "newest "
    "output, and power, memory and temperature of NVIDIA GPUs. Nodes and ranks that are alike "
    "share "
    "a row; what stands out is named. h lists the keys. The job's nodes measure only while "
    "somebody "
    "looks. Leaving does not affect the job. JOB is a job id, a part of only one, or 'last'.";

constexpr char kJobDetails[] = "JOB is a job id, a part of only one, or 'last'.";
const OptionTable& PsOptions() {
  static const OptionTable table = {
      Flag("--all", "also list jobs that have ended", kFlag<&JobCommand::all>),
      Flag("--json", "print JSON, for programs", kFlag<&JobCommand::json>),
      Flag("--openmetrics", "print metrics, for Prometheus", kFlag<&JobCommand::openmetrics>),
      Flag("--prune", "remove the folders of ended jobs, here and on their nodes",
           kFlag<&JobCommand::prune>),
      Option("--older_than", "DAYS|12h",
             "with --prune: only of jobs that ended at least so many days ago",
             [](const FlagValue& given, ParsedFlags& flags) {
               constexpr int kMostDays = 36'500;
               const std::string &name = given.name, &text = given.text;
               const bool in_days = text.find_first_not_of("0123456789") == std::string::npos;
               flags.job.older_than_ms =
                   in_days ? int64_t{ReadWhole<int>(name, text, 0, kMostDays)} * kDayMs
                           : ReadSecondsAsMs(name, text, 0, kMostDays * 86'400.0);
             }),
      JobSsh(),
      Help()};
  return table;
}

const OptionTable& StacksOptions() {
  static const OptionTable table = {
      Option("--rank", "R", "read this rank only",
             {[](const FlagValue& given, ParsedFlags& flags) {
                flags.job.only_rank = ReadWhole<int>(given.name, given.text, 0, kMaxNodes);
              },
              ValueKind::kNumber}),
      Flag("--json", "print JSON, for programs", kFlag<&JobCommand::json>), JobSsh(), Help()};
  return table;
}

const OptionTable& TopOptions() {
  static const OptionTable table = {
      Flag("--once", "print the state once, as text", kFlag<&JobCommand::once>),
      Flag("--json", "print the state once, as JSON, for programs", kFlag<&JobCommand::json>),
      JobSsh(), Help()};
  return table;
}

const OptionTable& DescribeOptions() {
  static const OptionTable table = {JobSsh(), Help()};
  return table;
}

const OptionTable& LogsOptions() {
  static const OptionTable table = {
      Flag("-f,--follow", "show new output until the job ends", kFlag<&JobCommand::follow>),
      Rank(),
      Show(),
      Option("--since", "10m|TIME", "only output from that time on",
             [](const FlagValue& given, ParsedFlags& flags) {
               const Result<int64_t> since = ParseSince(given.text, flags.now_unix_ms);
               if (!since.ok()) throw ValidationError(since.error().message);
               flags.job.since_unix_ms = *since;
             }),
      JobSsh(),
      Help(),
      Tee()};
  return table;
}

const OptionTable& AttachOptions() {
  static const OptionTable table = {Rank(), Show(), JobSsh(), Help(), Tee()};
  return table;
}

const OptionTable& StopOptions() {
  static const OptionTable table = {
      Flag("--now", "SIGKILL at once, without the job's grace", kFlag<&JobCommand::now>), JobSsh(),
      Help()};
  return table;
}

const OptionTable& ReportOptions() {
  static const OptionTable table = {
      Option("-o,--output", "FILE.html", "output file; default: JOB.html",
             kFile<&JobCommand::output>),
      Option("--compare", "JOB", "print how the job differs from this one; the page is about both",
             kText<&JobCommand::compare>),
      Flag("--force", "overwrite the file", kFlag<&JobCommand::force>), JobSsh(), Help()};
  return table;
}

const OptionTable& VersionOptions() {
  static const OptionTable table = {
      Flag("--json", "print JSON, for programs", kFlag<&LaunchOptions::json>), Help()};
  return table;
}

constexpr Named<KubernetesJob::Kind> kKubernetesKinds[] = {{"jobset", KubernetesJob::Kind::kJobSet},
                                                           {"job", KubernetesJob::Kind::kJob}};

const OptionTable& ManifestOptions() {
  static const OptionTable table = {
      Option("-N,--num_nodes", "N", "pods, one for each node",
             kWhole<&KubernetesJob::num_nodes, 1, kMaxNodes>),
      Option("--image", "IMAGE", "the image of the pods, in which dslaunch is in PATH",
             kText<&KubernetesJob::image>),
      Option("-n,--num_gpus", "N", "GPUs, and ranks, of each pod",
             kWhole<&KubernetesJob::num_gpus, 1, kMaxSlots>),
      Option("--name", "NAME", "name of the job in Kubernetes; default: dslaunch",
             kText<&KubernetesJob::name>),
      Option("--namespace", "NAME", "default: kubectl's", kText<&KubernetesJob::space>),
      Option("--kind", "", "a JobSet, or an indexed Job with a headless Service; default: jobset",
             kChoice<&KubernetesJob::kind, kKubernetesKinds>),
      Option("--restarts", "N", "how often Kubernetes restarts failed pods; default: 3",
             kWhole<&KubernetesJob::restarts, 0, 1'000'000>),
      Option("--grace", "S",
             "seconds from the signal to stop a pod until it is killed; default: 60",
             kWhole<&KubernetesJob::grace_s, 1, 86'400>),
      Help()};
  return table;
}

// Returns the exclusions of `train`: at most one option may replace training by another task.
std::vector<Exclusion> TrainExclusions() {
  std::vector<Exclusion> all = {{"--steps", "--epochs"}};
  const std::vector<const char*> tasks = {"--eval_only", "--plan_memory", "--plan_pipeline",
                                          "--compare_precision"};
  for (size_t i = 0; i < tasks.size(); ++i) {
    for (size_t k = i + 1; k < tasks.size(); ++k) all.push_back({tasks[i], tasks[k]});
  }
  return all;
}

const OptionTable& OnlyHelp() {
  static const OptionTable table = {Help()};
  return table;
}

constexpr char kTrainDetails[] =
    R"(RECIPE is a YAML or JSON file, or the name of a built-in recipe. Without it ./dslaunch.yaml is taken if there is one, else the built-in fashion_mnist.)";

constexpr char kPredictDetails[] =
    R"(Prints a prediction for each sample of the recipe's test data, in order, as JSON lines; a model of text continues prompts. Nothing else is on stdout. RECIPE is what the model was trained with. The weights come from the newest checkpoint in --checkpoint_dir, or from --init_weights; stderr names the source.)";

constexpr char kTuneDetails[] =
    R"(Varies micro-batch and accumulation at the recipe's global batch, ZeRO stage, recomputation, offload, pipeline stages and the ranks that divide each layer. Each trial trains a few steps; nothing is saved. Configurations that do not fit into memory, run out of it or fail are rows of the table with their cause. Ctrl-C ends the trial and prints what was found.
Launch options are those of dslaunch --help. Exit codes: 0, a configuration was found; 69, none; 130, interrupted; 64 and 65, wrong input.)";

// Returns the requirements of options for prompts, which have no effect on a prediction of test
// data.
std::vector<Requirement> PromptRequirements() {
  std::vector<Requirement> all;
  for (const char* option :
       {"--max_new_tokens", "--temperature", "--top_k", "--top_p", "--stop", "--tokenizer"}) {
    all.push_back({option, "--prompt",
                   "sets how --prompt or --prompts is continued; give one of them too",
                   "--prompts"});
  }
  return all;
}

constexpr char kDoctorDetails[] =
    R"(Checks all nodes in parallel; without a hostfile, this machine. It starts only the agent, and leaves only the agent's file on a node. Launch options are those of dslaunch --help.
SSH step by step: resolve, connect, handshake, host key, login, copy agent (through a command's stdin; no SFTP is needed), start agent; then versions, cores, memory, GPUs and their driver, the trainer (must run there with 'train', otherwise it is optional), interpreter, script and folder of PROGRAM, clocks, free disk, limits, which folders nodes share, and whether every other node reaches the one that hosts the rendezvous. --bench also measures the nodes and the network between them.
--json prints everything that was found. Exit code: 0 when no check fails (warnings are possible), 69 when one fails; each failing line has a hint below it.)";

constexpr char kCompletionDetails[] =
    R"(TAB then completes commands, options and their values, jobs, recipes and keys of recipes. ./quickstart and an installation put all of this in place.)";

// Returns the commands in the order of --help and the man page.
std::vector<CommandSpec> MakeCommands() {
  const Exclusion rank_or_show = {"--rank", "--show"};
  return {
      {.name = "",
       .help = "starts PROGRAM on all slots of all nodes",
       .arguments = {{"PROGRAM", {}, nullptr}},
       .options = &LaunchOptionTable(),
       .exclusions = LaunchExclusions(),
       .requirements = {{"--bind_core_list", "--bind_cores_to_rank",
                         "selects the cores for --bind_cores_to_rank; give that too"}},
       .examples = {{"dslaunch -n 4 train.py", "4 ranks of a script on this machine"},
                    {"dslaunch -H hosts -N 2 -n 8 train.py",
                     "the first 2 nodes of a hostfile with 8 ranks each"},
                    {"dslaunch -H hosts --dry_run train.py",
                     "what would be done, without doing it"},
                    {"dslaunch -H hosts --detach --max_restarts 3 ./a.out",
                     "in the background, restarted up to 3 times"},
                    {"dslaunch --nnodes 2:4 -H hosts train.py", "continues with 2 to 4 nodes"},
                    {"dslaunch --no_ssh --nnodes 2 --node_rank 0 --master_addr node0 train.py",
                     "as torchrun, on each node"}}},
      {.name = "train",
       .help = "runs the built-in trainer",
       .details = kTrainDetails,
       .arguments = {{"RECIPE", kFile<&TrainOptions::recipe>, nullptr, {}, Offers::kRecipes}},
       .options = &TrainOptionTable(),
       .exclusions = TrainExclusions(),
       .requirements = {{"--pipeline_svg", "--plan_pipeline",
                         "is where --plan_pipeline draws its picture; give that too"},
                        {"--ranks", "--plan_memory",
                         "is the number of ranks that --plan_memory plans for; give that too"},
                        {"--eval_file", "--eval_only",
                         "is what --eval_only tests the model on; give that too"},
                        {"--tokenizer", "--eval_file",
                         "makes tokens of the texts of --eval_file; give that too"}},
       .examples = {{"dslaunch -n 2 train", "the built-in recipe fashion_mnist with 2 ranks"},
                    {"dslaunch train gpt2_tiny --data input.txt --checkpoint_dir run1",
                     "a small GPT-2 on the bytes of a text; starts again where it was"},
                    {"dslaunch -H hosts train my.yaml --set engine.optimizer.params.lr=0.01",
                     "a recipe of your own with another learning rate"},
                    {"dslaunch -n 8 train my.yaml --plan_memory",
                     "how much memory each rank would need"},
                    {"dslaunch -n 8 train my.yaml --plan_memory --ranks 1024",
                     "the same on 128 nodes, planned by one process"}}},
      {.name = "predict",
       .help = "shows what a trained model predicts",
       .details = kPredictDetails,
       .arguments = {{"RECIPE", kFile<&TrainOptions::recipe>, nullptr, {}, Offers::kRecipes}},
       .options = &PredictOptionTable(),
       .exclusions = {{"--prompt", "--data"}, {"--prompts", "--data"}, {"--prompt", "--prompts"}},
       .requirements = PromptRequirements(),
       .examples = {{"dslaunch predict fashion_mnist --checkpoint_dir run1",
                     "a JSON line for each sample of the test data"},
                    {"dslaunch predict gpt2_tiny --checkpoint_dir run1 --prompt Once",
                     "continues a text"},
                    {"dslaunch predict my.yaml --init_weights llama --prompts questions.jsonl",
                     "continues each text of a file; a JSON line for each"}}},
      {.name = "tune",
       .help = "finds the fastest configuration that fits, by trials on the job's nodes",
       .details = kTuneDetails,
       .arguments = {{"RECIPE", kFile<&TrainOptions::recipe>, nullptr, {}, Offers::kRecipes}},
       .options = &TuneOptionTable(),
       .examples = {{"dslaunch -n 2 tune my.yaml",
                     "writes my.tuned.yaml; the same command again continues the search"},
                    {"dslaunch -H hosts -n 8 tune my.yaml --budget 3600 -o fast.yaml",
                     "an hour on all nodes of a hostfile"}}},
      {.name = "bench comm",
       .help = "measures what the ranks' exchanges cost on the nodes of a job",
       .details = "Prints nccl-tests' table, and a fit (latency and bandwidth) of each exchange. "
                  "Values are fp32, on CPUs; every result is checked.",
       .options = &BenchCommOptions(),
       .requirements = {{"--bandwidth", "--predict", "is of the predicted links; add --predict N"}},
       .examples = {{"dslaunch -H hosts -n 2 bench comm", "two ranks on each node"},
                    {"dslaunch -n 2 bench comm --predict 300000000 --bandwidth 1",
                     "what 1.2 GB of gradients would take at 1 GB/s"}}},
      {.name = "ps",
       .help = "lists this user's running jobs that were started from this machine",
       .arguments = {{"JOB", kText<&JobCommand::job>, nullptr, {"last"}, Offers::kJobs}},
       .options = &PsOptions(),
       .exclusions = {{"--openmetrics", "--json"}},
       .requirements = {{"--older_than", "--prune",
                         "limits which jobs --prune removes; add --prune"}},
       .examples = {{"dslaunch ps", "jobs that run"},
                    {"dslaunch ps --all", "also those that have ended, and how"},
                    {"dslaunch ps --prune --older_than 30",
                     "removes what jobs that ended a month ago have left"}}},
      {.name = "describe",
       .help = "describes a job, its state and how it ended (the closing block)",
       .details = kJobDetails,
       .arguments = {Job()},
       .options = &DescribeOptions(),
       .examples = {{"dslaunch describe last", "how the newest job ended"}}},
      {.name = "logs",
       .help = "prints the output of ranks, by default of rank 0",
       .details = "JOB is a job id, a part of only one, or 'last'. TIME is as 2026-11-21T10:00, "
                  "local time, or with Z.",
       .arguments = {Job()},
       .options = &LogsOptions(),
       .exclusions = {rank_or_show},
       .examples = {{"dslaunch logs last -f", "follows rank 0 of the newest job to its end"},
                    {"dslaunch logs 3f2a --show all --since 10m",
                     "the last ten minutes of all ranks of the job with 3f2a in its id"}}},
      {.name = "attach",
       .help = "shows the output of a detached job from now on, and exits with the job's exit code",
       .details = "Ctrl-C leaves the job running. JOB is a job id, a part of only one, or 'last'.",
       .arguments = {Job()},
       .options = &AttachOptions(),
       .exclusions = {rank_or_show},
       .examples = {{"dslaunch attach last --show 0,3",
                     "the output of ranks 0 and 3 from now on"}}},
      {.name = "stacks",
       .help = "shows where the threads of a job's ranks are, without stopping them",
       .details = kStacksDetails,
       .arguments = {Job()},
       .options = &StacksOptions(),
       .examples = {{"dslaunch stacks last", "where all ranks of the newest job are"},
                    {"dslaunch stacks 3f2a --rank 3", "all threads of one rank"}}},
      {.name = "top",
       .help = "shows a running job live: nodes, ranks and GPUs, and what stands out",
       .details = kTopDetails,
       .arguments = {Job()},
       .options = &TopOptions(),
       .examples = {{"dslaunch top last", "the newest job"},
                    {"dslaunch top 3f2a --once", "its state now, as text"}}},
      {.name = "stop",
       .help = "ends a job: SIGTERM, and SIGKILL after its grace; waits until no process is left",
       .details = kJobDetails,
       .arguments = {Job()},
       .options = &StopOptions(),
       .examples = {{"dslaunch stop last", "ends the newest job with its grace"},
                    {"dslaunch stop 3f2a --now", "ends a job at once"}}},
      {.name = "report",
       .help = "writes one page about a training run: loss, learning rate, step time by rank, "
               "operators, communication, memory",
       .details = "The job may still be running. A browser shows the page without network. JOB is "
                  "a job id, a part of only one, or 'last'.",
       .arguments = {Job("which job? Give a part of its id, or 'last'; --compare names "
                         "the second one")},
       .options = &ReportOptions(),
       .examples = {{"dslaunch report last -o run.html", "a page about the newest job"},
                    {"dslaunch report --compare 20261121-1 last", "two jobs side by side"}}},
      {.name = "data prepare",
       .help = "tokenizes text for training: the documents in the files IN become PREFIX.bin and "
               "PREFIX.idx, which data.type tokens reads",
       .details = kDataPrepareDetails,
       .arguments = {{.name = "IN",
                      .target = kFiles<&DataCommand::inputs>,
                      .missing = "which files? Give text or JSON lines",
                      .repeated = true}},
       .options = &DataPrepareOptions(),
       .examples = {{"dslaunch data prepare *.jsonl --tokenizer model --output corpus",
                     "tokens of the key \"text\" of each line"},
                    {"dslaunch train recipe.yaml --set data.path=corpus", "trains with them"}}},
      {.name = "recipe ls",
       .help = "lists the built-in recipes, or what a plugin has: a model, data sets, metrics",
       .arguments = {{"LIB.so", kFile<&RecipeCommand::plugin>, nullptr}},
       .options = &OnlyHelp(),
       .examples = {{"dslaunch recipe ls", "names for train, and what each trains"},
                    {"dslaunch recipe ls libmine.so", "names for data.name and run.metrics"}}},
      {.name = "recipe show",
       .help = "prints a built-in recipe, to read it or to begin one of your own with it",
       .arguments = {{"NAME",
                      kText<&RecipeCommand::name>,
                      "which recipe? Give a name that dslaunch recipe ls lists",
                      {},
                      Offers::kRecipes}},
       .options = &OnlyHelp(),
       .examples = {{"dslaunch recipe show gpt2_tiny > my.yaml", "a recipe to change"}}},
      {.name = "recipe explain",
       .help = "explains a key of a recipe and its values; without KEY, lists the sections",
       .details = "KEY is a path such as run.steps, a section such as engine.fp16, or the last "
                  "part of a path such as lr.",
       .arguments = {{"KEY", kText<&RecipeCommand::key>, nullptr, {}, Offers::kRecipeKeys}},
       .options = &OnlyHelp(),
       .examples = {{"dslaunch recipe explain run.steps", "one key"},
                    {"dslaunch recipe explain engine.zero_optimization", "a section"}}},
      {.name = "recipe schema",
       .help = "prints the JSON Schema of recipes, by which editors check and complete them",
       .options = &OnlyHelp(),
       .examples = {{"dslaunch recipe schema > recipe.schema.json",
                     "then, at the top of a recipe: # yaml-language-server: "
                     "$schema=recipe.schema.json"}}},
      {.name = "hostfile write",
       .help = "asks every node over SSH for its GPUs, or its cores where it has none, and writes "
               "a line 'NAME slots=N' for each, to stdout or to a file",
       .options = &HostfileWriteOptions(),
       .requirements = {{"--force", "--output", "overwrites a file; add --output FILE"}},
       .examples = {{"dslaunch hostfile write --hosts node1,node2 -o hosts",
                     "a hostfile from names"},
                    {"dslaunch hostfile write --slurm > hosts",
                     "the nodes of this Slurm allocation"}}},
      {.name = "hostfile check",
       .help = "reads FILE, asks all its nodes at once, and shows what each has; ends with 69 when "
               "one cannot be reached, and with 65 when one has fewer GPUs than slots",
       .arguments = {{"FILE", kFile<&HostfileCommand::file>, "which file? Give its name"}},
       .options = &HostfileCheckOptions(),
       .examples = {{"dslaunch hostfile check hosts", "what each node has"}}},
      {.name = "manifest kubernetes",
       .help = "prints what Kubernetes needs to run a job: one pod for each node",
       .details = "What follows -- is dslaunch's command line in each pod: its options, and train "
                  "or a program. The pods find each other by names of Kubernetes and by a token: a "
                  "secret of Kubernetes, created as a comment in the manifest shows.",
       .options = &ManifestOptions(),
       .examples = {{"dslaunch manifest kubernetes -N 4 -n 8 --image X -- train r.yaml",
                     "a JobSet; pipe it to kubectl apply -f -"}}},
      {.name = "doctor",
       .help = "checks every node that a job with these options would use",
       .details = kDoctorDetails,
       .arguments = {{"train|PROGRAM", {}, nullptr, {"train"}}},
       .options = &LaunchOptionTable(),
       .examples = {{"dslaunch doctor", "checks this machine"},
                    {"dslaunch doctor -H hosts train.py --lr 1",
                     "also the interpreter, the script and the folder of a job"},
                    {"dslaunch doctor -H hosts",
                     "checks the nodes of a hostfile, and the ways between them"},
                    {"dslaunch doctor -H hosts --include node1@node2 train",
                     "also that the trainer runs on these two"}}},
      {.name = "help",
       .help = "prints a page of the manual or the help of a command; without a topic, the list of "
               "topics",
       .details = "TOPIC is a page or a command. ACTION is the second word of a command, such as "
                  "export of 'checkpoint export'.",
       .arguments = {{"TOPIC",
                      kText<&ParsedFlags::help_topic>,
                      nullptr,
                      {"getting-started", "launching", "launchers", "training", "checkpoints",
                       "other-checkpoints", "report", "sdk", "other-styles", "works-with",
                       "coming-from", "troubleshooting", "benchmarks", "options", "recipe",
                       "environment", "json"},
                      Offers::kCommands},
                     {"ACTION", kText<&ParsedFlags::help_action>, nullptr}},
       .options = &OnlyHelp(),
       .examples = {{"dslaunch help", "the list of pages"},
                    {"dslaunch help launching", "a page"},
                    {"dslaunch help checkpoint export", "a command's help, as with --help"}}},
      {.name = "version",
       .help = "prints the version, the build, for which machines agents are at hand, and "
               "LibTorch's version",
       .options = &VersionOptions(),
       .examples = {{"dslaunch version", "the same as dslaunch --version"},
                    {"dslaunch --version --json", "for programs"}}},
      {.name = "completion",
       .help = "prints what a shell reads to complete command lines, or the man page",
       .details = kCompletionDetails,
       .arguments = {{"SHELL", kChoice<&ParsedFlags::completion, kCompletions>,
                      "for which shell? Give bash, zsh or fish"}},
       .options = &OnlyHelp(),
       .examples = {{"source <(dslaunch completion bash)", "in ~/.bashrc"},
                    {"source <(dslaunch completion zsh)", "in ~/.zshrc, after compinit"},
                    {"dslaunch completion fish | source", "in ~/.config/fish/config.fish"},
                    {"dslaunch completion man > dslaunch.1", "the man page"}}},
  };
}

// A name that other launchers and tools use for a command of dslaunch.
struct OtherName {
  const char* word;
  const char* command;
};
constexpr OtherName kOtherNames[] = {{"abort", "stop JOB"},
                                     {"cancel", "stop JOB"},
                                     {"eval", "train --eval_only"},
                                     {"evaluate", "train --eval_only"},
                                     {"finetune", "train"},
                                     {"fit", "train"},
                                     {"generate", "predict"},
                                     {"infer", "predict"},
                                     {"jobs", "ps"},
                                     {"kill", "stop JOB"},
                                     {"launch", "PROGRAM"},
                                     {"list", "ps"},
                                     {"run", "PROGRAM"},
                                     {"show", "describe JOB"},
                                     {"scancel", "stop JOB"},
                                     {"squeue", "ps"},
                                     {"start", "PROGRAM"},
                                     {"status", "ps"},
                                     {"submit", "--detach PROGRAM"}};

}  // namespace

const std::vector<CommandSpec>& Commands() {
  static const std::vector<CommandSpec> commands = [] {
    std::vector<CommandSpec> all = MakeCommands();
    const std::vector<CommandSpec> checkpoint = CheckpointCommands();
    const auto recipe = std::ranges::find(all, "recipe", &FamilyOf);
    all.insert(recipe, checkpoint.begin(), checkpoint.end());
    return all;
  }();
  return commands;
}

MeantCommand FindMeantCommand(const std::string& word) {
  if (!CommandsOf(word).empty()) return {};
  const auto other = std::ranges::find(kOtherNames, word, &OtherName::word);
  if (other != std::end(kOtherNames)) return {other->command, word == "kill"};
  std::vector<std::string> families;
  for (const CommandSpec& command : Commands()) families.emplace_back(FamilyOf(command));
  return {Nearest(word, families), false};
}

std::string_view FamilyOf(const CommandSpec& command) {
  const std::string_view name = command.name;
  return name.substr(0, name.find(' '));
}

std::string_view ActionOf(const CommandSpec& command) {
  const std::string_view name = command.name;
  const size_t blank = name.find(' ');
  return blank == std::string_view::npos ? "" : name.substr(blank + 1);
}

std::vector<const CommandSpec*> CommandsOf(std::string_view family) {
  std::vector<const CommandSpec*> found;
  for (const CommandSpec& command : Commands()) {
    if (!family.empty() && FamilyOf(command) == family) found.push_back(&command);
  }
  return found;
}

std::string UsageOf(const CommandSpec& command) {
  const std::string_view name = command.name;
  if (name.empty()) return "dslaunch [options] PROGRAM [args...]";
  const auto shown = [](const ArgumentSpec& argument) {
    std::string text = argument.name + std::string(argument.repeated ? "..." : "");
    if (argument.target.choices == nullptr) return text;
    text.clear();
    for (const std::string& word : argument.target.choices()) {
      text += (text.empty() ? "" : "|") + word;
    }
    return text;
  };
  const bool takes_launch_options = command.options == &LaunchOptionTable();
  const bool is_task =
      name == "train" || name == "predict" || name == "tune" || name == "bench comm";
  std::string usage = is_task ? "dslaunch [launch options] " : "dslaunch ";
  usage += name;
  if (takes_launch_options) usage += " [launch options]";
  for (const ArgumentSpec& argument : command.arguments) {
    usage += argument.missing != nullptr ? " " + shown(argument) : " [" + shown(argument) + "]";
  }
  const bool has_own_options = !takes_launch_options && command.options->size() > 1;
  return usage + (has_own_options ? " [options]" : "");
}

}  // namespace dslaunch
