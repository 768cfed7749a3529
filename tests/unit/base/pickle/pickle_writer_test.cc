#include "base/pickle/pickle_writer.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/pickle/pickle.h"

namespace dslaunch::pickle_writer_test {
namespace {

// tests/trainer/torch_archive_test.py also reads the writer's output with torch.load.
TEST(PickleWriterTest, ReaderReturnsWrittenValues) {
  const std::vector<int64_t> numbers = {
      0, -1, INT32_MAX, INT32_MIN, int64_t{1} << 31, std::numeric_limits<int64_t>::min()};
  PickleWriter writer;
  writer.BeginDict();
  writer.String("numbers");
  writer.BeginList();
  for (const int64_t number : numbers) writer.Int(number);
  writer.EndList();
  writer.String("others");
  writer.BeginTuple();
  writer.None();
  writer.Bool(true);
  writer.Double(-0.1);
  writer.String("\xc3\xa4");
  writer.EndTuple();
  writer.String("called");
  writer.Global("a.b", "c");
  writer.BeginTuple();
  writer.EndTuple();
  writer.Reduce();
  writer.String("built");
  writer.Global("a", "d");
  writer.BeginTuple();
  writer.EndTuple();
  writer.NewObject();
  writer.BeginDict();
  writer.String("field");
  writer.Int(7);
  writer.EndDict();
  writer.Build();
  writer.String("id");
  writer.BeginTuple();
  writer.Int(1);
  writer.EndTuple();
  writer.Reference();
  writer.EndDict();

  const Result<Pickle> pickle = Pickle::Read(writer.Take(), "written");
  ASSERT_TRUE(pickle.ok()) << pickle.error().message;
  const PickleValue root = pickle->root();
  ASSERT_EQ(root.size(), 5u);
  for (size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(root.Find("numbers")->item(i).Int(), numbers[i]);
  }
  EXPECT_TRUE(root.Find("others")->item(0).IsNone());
  EXPECT_EQ(root.Find("others")->item(1).Bool(), true);
  EXPECT_EQ(root.Find("others")->item(2).Double(), -0.1);
  EXPECT_EQ(root.Find("others")->item(3).String(), "\xc3\xa4");
  EXPECT_EQ(root.Find("called")->global(), "a.b.c");
  EXPECT_EQ(root.Find("built")->global(), "a.d");
  EXPECT_EQ(root.Find("built")->Find("field")->Int(), 7);
  EXPECT_EQ(root.Find("id")->id()->item(0).Int(), 1);
}

}  // namespace
}  // namespace dslaunch::pickle_writer_test
