#include "trainer/data/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/expect_refused.h"

namespace dslaunch::csv_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class CsvTest : public testing::Test {
 protected:
  CsvTable Read(const std::string& content, const std::string& label_column = "",
                int64_t num_classes = 10) {
    return Read(content, CsvColumns{label_column, {}, {}}, num_classes);
  }
  CsvTable Read(const std::string& content, const CsvColumns& columns, int64_t num_classes) {
    return ReadCsv(folder_.Write("data.csv", content), columns, num_classes);
  }
  void Refused(const std::string& content, int line, const std::string& words,
               const std::string& label_column = "") {
    ExpectRefused([&] { Read(content, label_column); }, ExitCode::kBadInput,
                  AllOf(HasSubstr("data.csv:" + std::to_string(line) + ": "), HasSubstr(words)));
  }

  TempDir folder_;
};

TEST_F(CsvTest, TakesLastColumnAsLabelByDefault) {
  const CsvTable table = Read("0.5,-2,3\n1e2,4,0\n");
  EXPECT_EQ(table.num_features, 2);
  EXPECT_THAT(table.features, ElementsAre(0.5f, -2, 100, 4));
  EXPECT_THAT(table.labels, ElementsAre(3, 0));
  EXPECT_THAT(Read("7,0.5,-2\n", "0").labels, ElementsAre(7));
  EXPECT_THAT(Read("0.5,7,-2\n", "1").features, ElementsAre(0.5f, -2));
}

TEST_F(CsvTest, FindsLabelColumnByHeader) {
  EXPECT_THAT(Read("a,class,b\n1,2,3\n", "class").labels, ElementsAre(2));
  EXPECT_THAT(Read("\"a, with \"\"quotes\"\"\",\"class\"\n1,2\n", "class").labels, ElementsAre(2));
  EXPECT_THAT(Read("\"label\",\"0\",\"1\"\n4,0.5,2\n", "label").labels, ElementsAre(4))
      << "columns with numbers for names";
  EXPECT_THAT(Read("\"2\",\"1\",\"x\"\n4,5,6\n", "2").labels, ElementsAre(4))
      << "a name comes before a number";
  EXPECT_THAT(Read("a,b,c\n4,5,6\n", "1").labels, ElementsAre(5));
}

TEST_F(CsvTest, SelectsColumnsAndClassesByName) {
  const CsvColumns columns = {"species", {"width", "length"}, {"setosa", "virginica"}};
  const CsvTable table = Read(
      "id,length,width,species,comment\n"
      "a,5.1,3.5,setosa,first\n"
      "b,6.3,3.3,virginica,\n",
      columns, 2);
  EXPECT_EQ(table.num_features, 2);
  EXPECT_THAT(table.features, ElementsAre(3.5f, 5.1f, 3.3f, 6.3f));
  EXPECT_THAT(table.labels, ElementsAre(0, 1));
  EXPECT_THAT(Read("1,2,dog\n3,4,cat\n", {"", {}, {"cat", "dog"}}, 2).labels, ElementsAre(1, 0))
      << "no line with names of columns";
  EXPECT_THAT(Read("x,1,2,0\n", {"", {"2", "1"}, {}}, 2).features, ElementsAre(2, 1));
  const auto refused = [&](const CsvColumns& wrong, const std::string& words) {
    ExpectRefused([&] { Read("a,b,label\n1,2,cat\n", wrong, 2); }, ExitCode::kBadInput,
                  HasSubstr(words));
  };
  refused({"", {}, {"dog"}}, "\"cat\", is the label, but not one of data.label_names");
  refused({"", {}, {}}, "need data.label_names");
  refused({"", {"c"}, {"cat"}}, "no column named \"c\"; set data.columns");
  refused({"", {"label"}, {"cat"}}, "data.columns names the label's column");
  refused({"", {}, {"cat", "dog", "cow"}}, "model.num_classes is 2");
}

TEST_F(CsvTest, ReadsDialectsOfOtherPrograms) {
  EXPECT_THAT(Read("\xEF\xBB\xBF"
                   "a,b\r\n1.5,2.0\r\n\r\n")
                  .labels,
              ElementsAre(2));
  EXPECT_THAT(Read("1 , 2\n 3,\t4 ").features, ElementsAre(1, 3)) << "no newline at the end";
  EXPECT_THAT(Read("\"1.5\" ,\"2\"\n").features, ElementsAre(1.5f));
  EXPECT_THAT(Read("1e-300,2\n").features, ElementsAre(0));
}

TEST_F(CsvTest, ErrorsNameFileAndLine) {
  Refused("1,2\n3,4\n5,x\n", 3, "column 1, \"x\", is not a number");
  Refused("1,2\n3,\n", 2, "column 1, \"\", is not a number");
  Refused("1,2\n0x10,2\n", 2, "\"0x10\"");
  Refused("a,b\n\n1,2,3\n", 3, "has 3 fields where the first line has 2");
  Refused("1,2\n3\n", 2, "has 1 fields");
  Refused("1,2,x\n1,2,3\n", 1, "both numbers and other text");
  Refused("1;2;3\n", 1, "only one column");
  Refused("1,2\n\"3,4\n", 2, "not closed");
  Refused("1,2\n\"3\"4,5\n", 2, "after the closing quote");
  Refused("1,2\nnan,2\n", 2, "not finite");
  Refused("1,2\n1e39,2\n", 2, "not finite in float32");
  Refused("1,2\n1,10\n", 2, "below model.num_classes, 10");
  Refused("1,2\n1,-1\n", 2, "whole number from 0");
  Refused("1,2\n1,1.5\n", 2, "whole number from 0");
  Refused("1,2\n1,nan\n", 2, "whole number from 0");
  Refused("1,2\n1,1e19\n", 2, "whole number from 0");
  Refused("a,b\n1,2\n", 1, "no column named \"c\"", "c");
  Refused("1,2\n1,2\n", 1, "names no columns", "c");
  Refused("a,a\n1,2\n", 1, "two columns named \"a\"", "a");
  Refused("1,2\n1,2\n", 1, "at most 1, not 2", "2");
  Refused("1,2\n\x1B[2J\xFF,2\n", 2, "\"?[2J?\"");
  ExpectRefused([&] { Read(""); }, ExitCode::kBadInput, HasSubstr("is empty"));
  ExpectRefused([&] { Read("\n\n"); }, ExitCode::kBadInput, HasSubstr("is empty"));
  ExpectRefused([&] { Read("a,b\n"); }, ExitCode::kBadInput, HasSubstr("no line after"));
  ExpectRefused([&] { ReadCsv(folder_ / "absent", {}, 2); }, ExitCode::kBadInput,
                HasSubstr("absent"));
  ExpectRefused([&] { ReadCsv(folder_.path(), {}, 2); }, ExitCode::kBadInput,
                HasSubstr("is not a file"));
}

TEST_F(CsvTest, ReadsOrRefusesChangedFiles) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string good = "\"a\",\"b, c\",label\n1.5,-2e3,3\n\"4\",5,6\n";
  const std::string special = "\",\n\r \t.-+e0\0nx\xFF";
  int read = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bytes = good;
    for (unsigned changes = 1 + random() % 3; changes-- > 0;) {
      bytes[random() % bytes.size()] = special[random() % special.size()];
    }
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    try {
      const CsvTable table = Read(bytes);
      ++read;
      ASSERT_GE(table.num_features, 1);
      ASSERT_GE(table.labels.size(), 1u);
      ASSERT_EQ(table.features.size(),
                table.labels.size() * static_cast<size_t>(table.num_features));
      for (const float feature : table.features) ASSERT_TRUE(std::isfinite(feature));
      for (const int64_t label : table.labels) ASSERT_TRUE(label >= 0 && label < 10);
    } catch (const TrainError& error) {
      ASSERT_EQ(error.code(), ExitCode::kBadInput);
      ASSERT_THAT(std::string(error.what()), HasSubstr("data.csv"));
    }
  }
  EXPECT_GT(read, 0) << "the changes leave no file that can be read";
}

}  // namespace
}  // namespace dslaunch::csv_test
