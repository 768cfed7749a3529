#include "cli/plan/kubernetes_manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <map>

namespace dslaunch::kubernetes_manifest_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum class Type { kText, kNumber, kBool };

// Returns the fields of Kubernetes that a manifest may use, with their types: fields of JobSet
// (jobset.x-k8s.io/v1alpha2), Job (batch/v1), Service and PodSpec (v1). [] stands for an item of a
// list.
std::map<std::string, Type> Schema() {
  std::map<std::string, Type> pod = {
      {"restartPolicy", Type::kText},
      {"terminationGracePeriodSeconds", Type::kNumber},
      {"subdomain", Type::kText},
      {"containers[].name", Type::kText},
      {"containers[].image", Type::kText},
      {"containers[].command[]", Type::kText},
      {"containers[].args[]", Type::kText},
      {"containers[].ports[].containerPort", Type::kNumber},
      {"containers[].resources.limits.nvidia.com/gpu", Type::kNumber},  // a quantity of Kubernetes
      {"containers[].volumeMounts[].name", Type::kText},
      {"containers[].volumeMounts[].mountPath", Type::kText},
      {"containers[].volumeMounts[].readOnly", Type::kBool},
      {"volumes[].name", Type::kText},
      {"volumes[].secret.secretName", Type::kText},
      {"volumes[].secret.defaultMode", Type::kNumber},
      {"volumes[].emptyDir.medium", Type::kText}};
  std::map<std::string, Type> job = {
      {"completionMode", Type::kText},
      {"completions", Type::kNumber},
      {"parallelism", Type::kNumber},
      {"backoffLimit", Type::kNumber},
      {"podFailurePolicy.rules[].action", Type::kText},
      {"podFailurePolicy.rules[].onExitCodes.containerName", Type::kText},
      {"podFailurePolicy.rules[].onExitCodes.operator", Type::kText},
      {"podFailurePolicy.rules[].onExitCodes.values[]", Type::kNumber},
      {"template.metadata.labels.dslaunch-job", Type::kText}};
  for (const auto& [path, type] : pod) job["template.spec." + path] = type;
  std::map<std::string, Type> all;
  for (const char* kind : {"JobSet", "Job", "Service"}) {
    for (const char* path : {"apiVersion", "kind", "metadata.name", "metadata.namespace"})
      all[std::string(kind) + ":" + path] = Type::kText;
  }
  for (const auto& [path, type] : job) {
    all["Job:spec." + path] = type;
    all["JobSet:spec.replicatedJobs[].template.spec." + path] = type;
  }
  for (const auto& [path, type] : std::map<std::string, Type>{
           {"JobSet:spec.network.enableDNSHostnames", Type::kBool},
           {"JobSet:spec.network.subdomain", Type::kText},
           {"JobSet:spec.network.publishNotReadyAddresses", Type::kBool},
           {"JobSet:spec.failurePolicy.maxRestarts", Type::kNumber},
           {"JobSet:spec.failurePolicy.rules[].name", Type::kText},
           {"JobSet:spec.failurePolicy.rules[].action", Type::kText},
           {"JobSet:spec.failurePolicy.rules[].onJobFailureReasons[]", Type::kText},
           {"JobSet:spec.replicatedJobs[].name", Type::kText},
           {"JobSet:spec.replicatedJobs[].replicas", Type::kNumber},
           {"Service:spec.clusterIP", Type::kText},
           {"Service:spec.publishNotReadyAddresses", Type::kBool},
           {"Service:spec.selector.dslaunch-job", Type::kText}})
    all[path] = type;
  return all;
}

// Returns the type that YAML gives to a scalar. A quoted scalar is always a text.
Type TypeOf(const YAML::Node& scalar) {
  if (scalar.Tag() == "!") return Type::kText;
  bool flag = false;
  int64_t number = 0;
  if (YAML::convert<bool>::decode(scalar, flag)) return Type::kBool;
  return YAML::convert<int64_t>::decode(scalar, number) ? Type::kNumber : Type::kText;
}

void CheckAgainst(const std::map<std::string, Type>& schema, const YAML::Node& node,
                  const std::string& path) {
  if (node.IsMap()) {
    for (const auto& field : node) {
      const std::string dot = path.ends_with(':') ? "" : ".";
      CheckAgainst(schema, field.second, path + dot + field.first.as<std::string>());
    }
  } else if (node.IsSequence()) {
    for (const auto& item : node) CheckAgainst(schema, item, path + "[]");
  } else {
    const auto found = schema.find(path);
    ASSERT_NE(found, schema.end()) << path << " is no field that is known";
    EXPECT_EQ(TypeOf(node), found->second) << path << ": " << node.Scalar();
  }
}

KubernetesJob Example() {
  KubernetesJob job;
  job.name = "gpt";
  job.image = "registry.example/dslaunch:1";
  job.num_nodes = 4;
  job.num_gpus = 8;
  job.command = {"--max_restarts", "2", "train", "r.yaml", "--set", "a=$(id) $HOME", "64"};
  return job;
}

std::vector<YAML::Node> Documents(const KubernetesJob& job) {
  const Result<std::string> text = KubernetesManifest(job);
  EXPECT_TRUE(text.ok()) << text.error().message;
  return YAML::LoadAll(*text);
}

TEST(KubernetesManifestTest, MatchesSchema) {
  const std::map<std::string, Type> schema = Schema();
  for (const auto kind : {KubernetesJob::Kind::kJobSet, KubernetesJob::Kind::kJob}) {
    for (const char* space : {"", "team"}) {
      KubernetesJob job = Example();
      job.kind = kind;
      job.space = space;
      for (const YAML::Node& document : Documents(job))
        CheckAgainst(schema, document, document["kind"].as<std::string>() + ":");
    }
  }
}

TEST(KubernetesManifestTest, StartsOnePodForEachNode) {
  const std::vector<YAML::Node> documents = Documents(Example());
  ASSERT_EQ(documents.size(), 1u);
  EXPECT_EQ(documents[0]["apiVersion"].as<std::string>(), "jobset.x-k8s.io/v1alpha2");
  const YAML::Node job = documents[0]["spec"]["replicatedJobs"][0]["template"]["spec"];
  EXPECT_EQ(job["completionMode"].as<std::string>(), "Indexed");
  EXPECT_EQ(job["parallelism"].as<int>(), 4);
  const YAML::Node pod = job["template"]["spec"];
  EXPECT_THAT(
      pod["containers"][0]["args"].as<std::vector<std::string>>(),
      ElementsAre("--nnodes", "4", "--rdzv_endpoint", "gpt-node-0-0.gpt:29500", "--rdzv_token_file",
                  "/run/dslaunch/token", "--nproc_per_node", "8", "--max_restarts", "2", "train",
                  "r.yaml", "--set", "a=$$(id) $$HOME", "64"));
  EXPECT_EQ(pod["volumes"][0]["secret"]["secretName"].as<std::string>(), "gpt-token");
  EXPECT_EQ(pod["volumes"][0]["secret"]["defaultMode"].as<int>(), 0400);
}

TEST(KubernetesManifestTest, IndexedJobHasServiceForItsNames) {
  KubernetesJob job = Example();
  job.kind = KubernetesJob::Kind::kJob;
  const std::vector<YAML::Node> documents = Documents(job);
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[0]["spec"]["clusterIP"].as<std::string>(), "None");
  const YAML::Node pod = documents[1]["spec"]["template"];
  EXPECT_EQ(pod["spec"]["subdomain"].as<std::string>(),
            documents[0]["metadata"]["name"].as<std::string>());
  EXPECT_EQ(pod["metadata"]["labels"]["dslaunch-job"].as<std::string>(),
            documents[0]["spec"]["selector"]["dslaunch-job"].as<std::string>());
  EXPECT_EQ(pod["spec"]["containers"][0]["args"][3].as<std::string>(), "gpt-0.gpt:29500");
}

TEST(KubernetesManifestTest, ExplainsTokenAndContainsNone) {
  KubernetesJob job = Example();
  job.space = "team";
  EXPECT_THAT(*KubernetesManifest(job),
              HasSubstr("kubectl create secret generic gpt-token --namespace team "
                        "--from-file=token=/dev/stdin\n"));
}

TEST(KubernetesManifestTest, RejectsValuesThatKubernetesRefuses) {
  const auto why = [](void (*change)(KubernetesJob&)) {
    KubernetesJob job = Example();
    change(job);
    const Result<std::string> text = KubernetesManifest(job);
    return text.ok() ? "" : text.error().message;
  };
  EXPECT_THAT(why([](KubernetesJob& job) { job.name = "My_Job"; }), HasSubstr("--name My_Job"));
  EXPECT_THAT(why([](KubernetesJob& job) { job.name = std::string(41, 'a'); }),
              HasSubstr("--name"));
  EXPECT_THAT(why([](KubernetesJob& job) { job.space = "a b"; }), HasSubstr("--namespace a b"));
  EXPECT_THAT(why([](KubernetesJob& job) { job.image = "a\nb"; }), HasSubstr("--image"));
  EXPECT_THAT(why([](KubernetesJob& job) { job.command.push_back("a\nb"); }),
              HasSubstr("argument"));
}

TEST(TakeCompletionIndexTest, SetsNodeRankUnlessOptionDoes) {
  const auto with = [](const char* index) {
    return [index](const char* name) {
      return std::string(name) == "JOB_COMPLETION_INDEX" ? index : nullptr;
    };
  };
  LaunchOptions options;
  TakeCompletionIndex(with("2"), options);
  EXPECT_FALSE(options.per_node);
  options.per_node = PerNode();
  for (const char* none : {static_cast<const char*>(nullptr), "", "x", "-1", "2 "}) {
    TakeCompletionIndex(with(none), options);
    EXPECT_FALSE(options.per_node->node_rank);
  }
  TakeCompletionIndex(with("2"), options);
  EXPECT_EQ(options.per_node->node_rank, 2);
  TakeCompletionIndex(with("3"), options);
  EXPECT_EQ(options.per_node->node_rank, 2);
}

}  // namespace
}  // namespace dslaunch::kubernetes_manifest_test
