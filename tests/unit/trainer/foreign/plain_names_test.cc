#include "trainer/foreign/plain_names.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dslaunch::plain_names_test {
namespace {

using Names = std::vector<std::string>;

Names Plain(const Names& names) {
  const PlainNames plain(names);
  Names result;
  for (const std::string& name : names) result.push_back(plain.Of(name));
  return result;
}

TEST(PlainNamesTest, DropsWrappersOfAllNames) {
  EXPECT_EQ(Plain({"module.fc.weight", "module.fc.bias"}), (Names{"fc.weight", "fc.bias"}));
  EXPECT_EQ(Plain({"_orig_mod.module.a", "_orig_mod.module.b"}), (Names{"a", "b"}));
  EXPECT_EQ(Plain({"module._orig_mod.a", "module._orig_mod.b"}), (Names{"a", "b"}));
}

TEST(PlainNamesTest, DropsWrappersOfInnerModules) {
  EXPECT_EQ(Plain({"layers.0._orig_mod.w", "layers.1._checkpoint_wrapped_module.w", "head"}),
            (Names{"layers.0.w", "layers.1.w", "head"}));
}

TEST(PlainNamesTest, KeepsModuleThatOnlySomeNamesHave) {
  EXPECT_EQ(Plain({"module.fc", "head"}), (Names{"module.fc", "head"}));
  EXPECT_EQ(Plain({"my_orig_mod.fc"}), (Names{"my_orig_mod.fc"}));
}

TEST(PlainNamesTest, KeepsWrappersIfNamesWouldBecomeEqual) {
  EXPECT_EQ(Plain({"fc", "_orig_mod.fc"}), (Names{"fc", "_orig_mod.fc"}));
}

TEST(PlainNamesTest, NotesWhatItDrops) {
  EXPECT_EQ(PlainNames({"module._orig_mod.a"}).note(), "names are without _orig_mod., module.");
  EXPECT_EQ(PlainNames({"a"}).note(), "");
}

}  // namespace
}  // namespace dslaunch::plain_names_test
