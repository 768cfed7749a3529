#include "cli/plan/kubernetes_manifest.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kPort = 29'500;
constexpr size_t kMaxNameBytes =
    40;  // leaves room in a pod name of 63 bytes, which begins with this name
constexpr char kTokenFolder[] = "/run/dslaunch";
constexpr char kReplicatedJob[] = "node";
// Exit codes that no restart can fix: usage error, bad input, no permission, program not found.
constexpr std::array kFinalExitCodes = {64, 65, 77, 126, 127};

Error CannotPrint(std::string message) { return {ExitCode::kUsage, std::move(message)}; }

bool IsLabel(const std::string& text, size_t max_bytes) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  };
  return !text.empty() && text.size() <= max_bytes && std::ranges::all_of(text, plain) &&
         text.front() >= 'a' && text.back() != '-';
}

// Returns `argument` with `$` escaped as `$$`, because Kubernetes replaces $(NAME) in a container's
// arguments.
std::string Escaped(const std::string& argument) {
  std::string text;
  for (const char c : argument) text += c == '$' ? "$$" : std::string(1, c);
  return text;
}

std::string TokenName(const KubernetesJob& job) { return job.name + "-token"; }

// Returns the host name by which other pods resolve the pod of node 0.
std::string FirstHost(const KubernetesJob& job) {
  return job.kind == KubernetesJob::Kind::kJobSet
             ? job.name + "-" + kReplicatedJob + "-0-0." + job.name
             : job.name + "-0." + job.name;
}

std::vector<std::string> Arguments(const KubernetesJob& job) {
  std::vector<std::string> words = {
      "--nnodes",          std::to_string(job.num_nodes),
      "--rdzv_endpoint",   FirstHost(job) + ":" + std::to_string(kPort),
      "--rdzv_token_file", std::string(kTokenFolder) + "/token"};
  if (job.num_gpus) words.insert(words.end(), {"--nproc_per_node", std::to_string(*job.num_gpus)});
  for (const std::string& word : job.command) words.push_back(Escaped(word));
  return words;
}

OrderedJson Metadata(const KubernetesJob& job) {
  OrderedJson metadata = {{"name", job.name}};
  if (!job.space.empty()) metadata["namespace"] = job.space;
  return metadata;
}

OrderedJson Container(const KubernetesJob& job) {
  OrderedJson container = {{"name", "dslaunch"},
                           {"image", job.image},
                           {"command", {"dslaunch"}},
                           {"args", Arguments(job)},
                           {"ports", {{{"containerPort", kPort}}}}};
  if (job.num_gpus) container["resources"]["limits"]["nvidia.com/gpu"] = *job.num_gpus;
  container["volumeMounts"] = {{{"name", "token"}, {"mountPath", kTokenFolder}, {"readOnly", true}},
                               {{"name", "shared-memory"}, {"mountPath", "/dev/shm"}}};
  return container;
}

OrderedJson Pod(const KubernetesJob& job) {
  OrderedJson pod = {{"restartPolicy", "Never"}, {"terminationGracePeriodSeconds", job.grace_s}};
  // A JobSet creates its own service, so only a Job needs a subdomain.
  if (job.kind == KubernetesJob::Kind::kJob) pod["subdomain"] = job.name;
  pod["containers"] = OrderedJson::array({Container(job)});
  // dslaunch refuses a token that other users may read, so the mode is 0400.
  pod["volumes"] = {
      {{"name", "token"}, {"secret", {{"secretName", TokenName(job)}, {"defaultMode", 0400}}}},
      {{"name", "shared-memory"}, {"emptyDir", {{"medium", "Memory"}}}}};
  return pod;
}

OrderedJson JobSpec(const KubernetesJob& job) {
  const bool is_alone = job.kind == KubernetesJob::Kind::kJob;
  OrderedJson rule = {
      {"action", "FailJob"},
      {"onExitCodes",
       {{"containerName", "dslaunch"}, {"operator", "In"}, {"values", kFinalExitCodes}}}};
  OrderedJson spec = {{"completionMode", "Indexed"},
                      {"completions", job.num_nodes},
                      {"parallelism", job.num_nodes},
                      // A Job restarts single pods, so restarts are allowed only for a job of one
                      // node.
                      {"backoffLimit", is_alone ? job.restarts : 0},
                      {"podFailurePolicy", {{"rules", OrderedJson::array({std::move(rule)})}}}};
  if (is_alone) spec["template"]["metadata"]["labels"]["dslaunch-job"] = job.name;
  spec["template"]["spec"] = Pod(job);
  return spec;
}

OrderedJson JobSet(const KubernetesJob& job) {
  OrderedJson replicated = {
      {"name", kReplicatedJob}, {"replicas", 1}, {"template", {{"spec", JobSpec(job)}}}};
  OrderedJson final = {
      {"name", "final"}, {"action", "FailJobSet"}, {"onJobFailureReasons", {"PodFailurePolicy"}}};
  return {{"apiVersion", "jobset.x-k8s.io/v1alpha2"},
          {"kind", "JobSet"},
          {"metadata", Metadata(job)},
          {"spec",
           {{"network",
             {{"enableDNSHostnames", true},
              {"subdomain", job.name},
              // The other pods resolve node 0 before it is ready, so the addresses are published
              // early.
              {"publishNotReadyAddresses", true}}},
            {"failurePolicy",
             {{"maxRestarts", job.restarts}, {"rules", OrderedJson::array({std::move(final)})}}},
            {"replicatedJobs", OrderedJson::array({std::move(replicated)})}}}};
}

OrderedJson HeadlessService(const KubernetesJob& job) {
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata", Metadata(job)},
          {"spec",
           {{"clusterIP", "None"},
            {"publishNotReadyAddresses", true},
            {"selector", {{"dslaunch-job", job.name}}}}}};
}

OrderedJson IndexedJob(const KubernetesJob& job) {
  return {{"apiVersion", "batch/v1"},
          {"kind", "Job"},
          {"metadata", Metadata(job)},
          {"spec", JobSpec(job)}};
}

// Returns the value as a YAML scalar: a text without quotes if YAML reads it as the same text; any
// other value as in JSON.
std::string Scalar(const OrderedJson& value) {
  if (!value.is_string()) return value.dump();
  const auto& text = value.get_ref<const std::string&>();
  const bool is_word =
      text.size() > 3 && (std::isalpha(static_cast<unsigned char>(text.front())) != 0) &&
      std::ranges::all_of(text, [](unsigned char c) {
        return std::isalnum(c) != 0 ||
               std::string_view("./_-").find(static_cast<char>(c)) != std::string_view::npos;
      });
  return is_word && text != "true" && text != "false" && text != "null" ? text : value.dump();
}

// Writes the value in YAML's block style.
void WriteYaml(const OrderedJson& value, const std::string& indent, std::string& text) {
  const bool is_list = value.is_array();
  bool is_first = true;
  for (const auto& [key, item] : value.items()) {
    // The first line of a list's item follows its dash, so it is not indented.
    if (!is_first || text.ends_with('\n')) text += indent;
    is_first = false;
    text += is_list ? "- " : key + ":";
    if (!item.is_structured()) {
      text += (is_list ? "" : " ") + Scalar(item) + "\n";
    } else {
      if (!is_list) text += "\n";
      WriteYaml(item, indent + "  ", text);
    }
  }
}

std::string ToYaml(const OrderedJson& value) {
  std::string text;
  WriteYaml(value, "", text);
  return text;
}

Result<void> CheckManifest(const KubernetesJob& job) {
  if (!IsLabel(job.name, kMaxNameBytes)) {
    return CannotPrint("--name " + Truncate(job.name) +
                       ": give up to 40 lower-case letters, digits and '-', a letter first");
  }
  if (!job.space.empty() && !IsLabel(job.space, 63))
    return CannotPrint("--namespace " + Truncate(job.space) +
                       " is not a valid name of a namespace");
  const bool is_printable =
      std::ranges::all_of(job.image, [](char c) { return c > ' ' && c <= '~'; });
  if (job.image.empty() || !is_printable)
    return CannotPrint("--image " + Truncate(job.image) + " is not a valid name of an image");
  for (const std::string& word : job.command) {
    if (SanitizeForTerminal(word) != word || word.find('\n') != std::string::npos) {
      return CannotPrint("argument " + Truncate(word) +
                         " has bytes that a manifest cannot hold; put it in a file of the image");
    }
  }
  return {};
}

}  // namespace

Result<std::string> KubernetesManifest(const KubernetesJob& job) {
  DSL_TRY(CheckManifest(job));
  const std::string space = job.space.empty() ? "" : " --namespace " + job.space;
  std::string text =
      "# Made by dslaunch manifest kubernetes. The token, by which the nodes know each other, "
      "once:\n"
      "#   openssl rand -hex 32 | kubectl create secret generic " +
      TokenName(job) + space + " --from-file=token=/dev/stdin\n";
  if (job.kind == KubernetesJob::Kind::kJobSet) return text + ToYaml(JobSet(job));
  return text + ToYaml(HeadlessService(job)) + "---\n" + ToYaml(IndexedJob(job));
}

void TakeCompletionIndex(const GetVariable& getenv, LaunchOptions& options) {
  const char* const text = getenv("JOB_COMPLETION_INDEX");
  if (text == nullptr || !options.per_node || options.per_node->node_rank) return;
  const std::string_view index = text;
  int number = 0;
  const auto [end, error] = std::from_chars(index.data(), index.data() + index.size(), number);
  if (error != std::errc() || end != index.data() + index.size() || number < 0) return;
  options.per_node->node_rank = number;
}

}  // namespace dslaunch
