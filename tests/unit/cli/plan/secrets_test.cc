#include "cli/plan/secrets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::secrets_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Part of every secret in the tables below, so that the tests can search for it.
constexpr char kSecret[] = "s3crEt";

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

TEST(NamesSecretTest, LooksAtWordsOfName) {
  for (const char* name :
       {"hf_token", "--api-key", "apiKey", "AWS_SECRET_ACCESS_KEY", "clientSecret", "dbpassword",
        "PGPASS", "DB_PWD", "Authorization", "X-Api-Key", "aws_session_token", "TOKEN_2",
        "client_secret_value", "SharedAccessSignature", "cookie", "--passwd", "ssh_passphrase"})
    EXPECT_TRUE(NamesSecret(name)) << name;
  for (const char* name :
       {"", "--", "tokenizer", "--max_tokens", "key_size", "password_file", "token_dir", "monkey",
        "--pad_token", "eos-token", "text_key", "bypass", "lr", "TOKENIZERS_PARALLELISM",
        "--rdzv_token_file", "keyboard", "compass", "secret_name"})
    EXPECT_FALSE(NamesSecret(name)) << name;
}

TEST(MaskedValueTest, HidesVariablesUnlessKnownToBeHarmless) {
  const struct {
    const char* name;
    const char* value;
    const char* shown;
  } cases[] = {
      // Values that must be hidden.
      {"HF_TOKEN", "hf_s3crEt", "***"},
      {"aws_secret_access_key", "s3crEt", "***"},
      {"MLFLOW_TRACKING_TOKEN", "s3crEt", "***"},
      {"DATABASE_URL", "postgres://u:s3crEt@h/db", "***"},
      {"PGPASS", "s3crEt", "***"},
      {"MYSQL_PWD", "s3crEt", "***"},
      {"SENTRY_DSN", "https://s3crEt@o1.ingest.sentry.io/2", "***"},
      {"SLURM_JWT", "s3crEt", "***"},
      {"NCCL_TUNER_TOKEN", "s3crEt", "***"},
      {"MY_COMPANY_THING", "s3crEt", "***"},
      {"PIN", "4711", "***"},
      {"CARD", "4711471147114711", "***"},
      {"MLFLOW_TRACKING_URI", "https://me:s3crEt@mlflow/", "https://me:***@mlflow/"},
      // Values that must be shown.
      {"NCCL_DEBUG", "INFO", "INFO"},
      {"PYTHONPATH", "/a:/b", "/a:/b"},
      {"PATH", "/usr/bin:/bin", "/usr/bin:/bin"},
      {"PWD", "/home/me", "/home/me"},
      {"OMP_NUM_THREADS", "8", "8"},
      {"TOKENIZERS_PARALLELISM", "false", "false"},
      {"LANG", "C.UTF-8", "C.UTF-8"},
      {"LR", "3e-4", "3e-4"},
      {"USE_FLASH", "true", "true"},
      {"EMPTY", "", ""},
      {"CUDA_VISIBLE_DEVICES", "0,1", "0,1"},
  };
  for (const auto& c : cases) EXPECT_EQ(MaskedValue(c.name, c.value), c.shown) << c.name;
}

TEST(MaskedArgumentsTest, HidesRealisticSecrets) {
  const std::vector<std::vector<std::string>> commands = {
      {"train.py", "--hf_token=s3crEt"},
      {"train.py", "--api-key", "s3crEt"},
      {"train.py", "--apikey=s3crEt"},
      {"train.py", "--password", "s3crEt"},
      {"train.py", "--dbPassword", "s3crEt"},
      {"train.py", "--wandb.api_key=s3crEt"},
      {"env", "DB_PASSWORD=a s3crEt b", "train.py"},
      {"env", "PGPASS=s3crEt", "train.py"},
      {"env", "DATABASE_URL=postgres://u:s3crEt@h/db", "train.py"},
      {"train.py", "--db", "postgresql+psycopg2://u:pass/s3crEt@h/db"},
      {"train.py", "--broker=redis://:s3crEt@h:6379/0"},
      {"git", "clone", "https://s3crEt@github.com/a/b"},
      {"train.py", "s3://b/k?X-Amz-Signature=s3crEt&X-Amz-Date=1"},
      {"train.py", "https://h/f?sv=1&sig=s3crEt"},
      {"train.py", "https://h/f?access_token=s3crEt"},
      {"train.py", "--conn", "Server=h;AccountKey=s3crEt;Port=1"},
      {"curl", "-H", "Authorization: Bearer s3crEt", "url"},
      {"curl", "-H", "authorization: Basic s3crEt=="},
      {"curl", "-H", "X-Api-Key: s3crEt"},
      {"curl", "--header=Cookie: session=s3crEt; a=b"},
      {"curl", "-u", "me:s3crEt", "url"},
      {"sshpass", "-p", "s3crEt", "ssh", "h"},
      {"sshpass", "-ps3crEt", "ssh", "h"},
      {"sh", "-c", "TOKEN=s3crEt ./train --x 1"},
      {"sh", "-c", "PASSWORD='two s3crEt words' ./train"},
      {"sh", "-c", "./train --password s3crEt --x 1"},
      {"sh", "-c", "curl -H \"Authorization: Bearer s3crEt\" url"},
      {"train.py", "--config", R"({"api_key": "s3crEt", "lr": 0.1})"},
      {"train.py", R"({"lr":0.1,"token":"s3crEt"})"},
      {"train.py", "password:s3crEt"},
      {"train.py", "ghp_s3crEt0123456789abcdef"},
      {"train.py", "--x=hf_s3crEt0123456789abcdef"},
      {"train.py", "--pw", "s3crEt"},
      {"train.py", "sk-proj-s3crEt0123456789abcdef"},
      {"train.py", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.s3crEt"},
      {"train.py", "-----BEGIN RSA PRIVATE KEY-----\ns3crEt\n-----END RSA PRIVATE KEY-----"},
      {"dslaunch", "--env", "MY_THING=s3crEt", "train.py"},
      {"dslaunch", "--env=MY_THING=s3crEt", "train.py"},
      {"dslaunch", "-x", "MY_THING=s3crEt", "train.py"},
      {"dslaunch", "-xMY_THING=s3crEt", "train.py"},
      {"dslaunch", "train", "--set", "data.api_key=s3crEt"},
  };
  for (const std::vector<std::string>& command : commands) {
    const std::string shown = Joined(MaskedArguments(command));
    EXPECT_THAT(shown, Not(HasSubstr(kSecret))) << Joined(command);
    EXPECT_THAT(shown, HasSubstr("***")) << Joined(command);
    EXPECT_TRUE(shown.starts_with(command.front())) << shown;
    EXPECT_EQ(Joined(MaskedArguments(MaskedArguments(command))), shown) << "masked twice";
  }
}

TEST(MaskedArgumentsTest, HidesTokensOfLetters) {
  EXPECT_EQ(MaskedArguments({"train.py", "hf_AbCdefghijklmnopqrstuvwxyzabCDefgh"}),
            (std::vector<std::string>{"train.py", "***"}));
}

TEST(MaskedArgumentsTest, KeepsHarmlessArguments) {
  const std::vector<std::vector<std::string>> commands = {
      {"train.py", "--lr", "3e-4", "--lr=0.1", "--batch-size=8"},
      {"train.py", "--tokenizer", "gpt2", "--tokenizer=/data/tok.json"},
      {"train.py", "--max_tokens", "128", "--max_new_tokens=64"},
      {"train.py", "--pad_token", "<pad>", "--eos_token=</s>", "--text_key", "text"},
      {"train.py", "--key_size=4", "--token_file", "/run/token", "--password-file=/run/pw"},
      {"train.py", "/data/a:b/c=d", "http://host:8080/x", "ssh://git@host/repo", "s3://bucket/key"},
      {"train.py", "--include", "w0:0,2@w1:0", "--master_addr", "[fe80::1]:29500", "host:29500"},
      {"train.py", "two words", "it's", "line\nbreak", "  blanks  ", "", "-", "--", "=", ":"},
      {"train.py", "--token", "--verbose"},
      {"train.py", "--betas", "0.9,0.95", "--name=sk-learn-baseline", "hf_cache_folder_of_2026"},
      {"dslaunch", "-H", "hosts", "--env", "NCCL_DEBUG=INFO", "-x", "HF_TOKEN", "./a.out"},
      {"dslaunch", "--rdzv_endpoint", "node1:29400", "--show", "0,3", "python", "-u", "x.py"},
      {"sh", "-c", "cd /x && ./train --lr 0.1 | tee log"},
  };
  for (const std::vector<std::string>& command : commands)
    EXPECT_EQ(MaskedArguments(command), command);
}

TEST(MaskedArgumentsTest, KeepsTextAroundSecret) {
  EXPECT_THAT(
      MaskedArguments({"a", "--db=postgres://u:p@h/db", "https://h/f?token=x&a=b",
                       "k=1;Password=x;b=2", R"({"token":"x","lr":0.1})", "git+https://abc@h/r"}),
      ElementsAre("a", "--db=postgres://u:***@h/db", "https://h/f?token=***&a=b",
                  "k=1;Password=***;b=2", R"({"token":"***","lr":0.1})", "git+https://***@h/r"));
}

TEST(MaskedSettingTest, HidesByKeyAndByValue) {
  EXPECT_EQ(MaskedSetting("api_key", "x"), "***");
  EXPECT_EQ(MaskedSetting("name", "gpt2"), "gpt2");
  EXPECT_EQ(MaskedSetting("path", "https://u:p@h/d"), "https://u:***@h/d");
}

}  // namespace
}  // namespace dslaunch::secrets_test
