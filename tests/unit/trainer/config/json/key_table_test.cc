#include "trainer/config/json/key_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/base/train_error.h"

namespace dslaunch::key_table_test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

enum class Color { kRed, kBlue };

struct Inner {
  double rate = 1e-5;
};

struct Settings {
  int64_t size = 3;
  std::optional<int64_t> limit;
  Color color = Color::kBlue;
  std::string name;
  Inner inner;
};

const KeyTable<Settings>& Keys() {
  using S = Settings;
  static const KeyTable<S> kKeys = Joined<S>(
      {{Required(IntKey("size", &S::size, {1, 9}, "required"), "is missing; give a size"),
        IntKey("limit", &S::limit, {0}, "most of all; default: none"),
        WordKey("color", &S::color, {"red", "blue"}, "of the paint"), TextKey("name", &S::name, ""),
        IgnoredBool<S>("fast")},
       Within(&S::inner, KeyTable<Inner>{SameOnRanks(NumberKey("rate", &Inner::rate, {0}, ""))})});
  return kKeys;
}

Settings Read(const json& section) {
  JsonObject object(section, "c", "s");
  Settings settings = ReadKeys(object, Keys());
  object.RefuseUnknown();
  return settings;
}

TEST(KeyTableTest, ReadsMembersAndKeepsDefaults) {
  const Settings read = Read({{"size", 4}, {"color", "red"}, {"rate", 0.5}, {"fast", true}});
  EXPECT_EQ(read.size, 4);
  EXPECT_EQ(read.limit, std::nullopt);
  EXPECT_EQ(read.color, Color::kRed);
  EXPECT_EQ(read.inner.rate, 0.5);
  EXPECT_EQ(Read({{"size", 1}, {"limit", 7}}).limit, 7);
}

TEST(KeyTableTest, RefusesMissingAndWrongValues) {
  const auto refusal = [](const json& section) -> std::string {
    try {
      Read(section);
      return "accepted";
    } catch (const TrainError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal(json::object()), "c: s.size is missing; give a size");
  EXPECT_THAT(refusal({{"size", 10}}), HasSubstr("s.size is 10; it must be at least 1"));
  EXPECT_THAT(refusal({{"size", 1}, {"color", "bleu"}}), HasSubstr("did you mean \"blue\"?"));
  EXPECT_THAT(refusal({{"size", 1}, {"fast", 1}}), HasSubstr("s.fast is 1"));
  EXPECT_THAT(refusal({{"size", 1}, {"rat", 1}}), HasSubstr("did you mean \"rate\"?"));
}

TEST(KeyTableTest, ShowsAllKeysWithAnEffect) {
  EXPECT_EQ(ShowKeys(Keys(), Settings()).dump(),
            R"({"size":3,"limit":null,"color":"blue","name":"","rate":1e-05})");
  EXPECT_THAT(KeysOf(Keys()), ElementsAre("color", "fast", "limit", "name", "rate", "size"));
}

TEST(KeyTableTest, RecordsMeaningsWithDefaults) {
  KeyRecord record;
  Read({{"size", 1}});
  std::vector<std::string> meanings;
  for (const KeyUse& use : record.uses()) meanings.push_back(use.meaning);
  EXPECT_THAT(meanings,
              ElementsAre("required", "most of all; default: none", "of the paint; default blue",
                          "", "accepted, no effect", "default 1e-5"));
}

}  // namespace
}  // namespace dslaunch::key_table_test
