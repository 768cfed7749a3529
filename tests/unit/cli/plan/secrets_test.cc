#include "cli/plan/secrets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch {
namespace {

using testing::ElementsAre;

TEST(MaskedValueTest, TheNameDecides) {
  for (const char* name :
       {"HF_TOKEN", "aws_secret_access_key", "Password", "MLFLOW_TRACKING_TOKEN"})
    EXPECT_EQ(MaskedValue(name, "s3cret"), "***") << name;
  for (const char* name : {"NCCL_DEBUG", "PYTHONPATH", ""})
    EXPECT_EQ(MaskedValue(name, "value"), "value") << name;
}

TEST(MaskedArgumentsTest, OnlyTheValuesOfSecretsAreHidden) {
  EXPECT_THAT(MaskedArguments({"train.py", "--hf_token=abc", "--api-key", "def", "DB_PASSWORD=x",
                               "--tokenizer", "gpt2", "--key_size=4", "--token", "--verbose", ""}),
              ElementsAre("train.py", "--hf_token=***", "--api-key", "***", "DB_PASSWORD=***",
                          "--tokenizer", "gpt2", "--key_size=4", "--token", "--verbose", ""));
}

}  // namespace
}  // namespace dslaunch
