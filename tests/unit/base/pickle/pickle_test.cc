#include "base/pickle/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <vector>

#include "base/text/sanitize.h"
#include "tests/support/own_memory.h"

namespace dslaunch::pickle_test {
namespace {

using std::string_literals::operator""s;
using testing::HasSubstr;

// Returns a pickle of protocol 2 with these opcodes, followed by STOP.
std::string Protocol2(const std::string& opcodes) { return "\x80\x02" + opcodes + "."; }

std::string LittleEndian(uint64_t number, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(number >> (8 * i));
  return text;
}

std::string Text(const std::string& text) { return "X" + LittleEndian(text.size(), 4) + text; }

Pickle ReadGood(const std::string& opcodes) {
  Result<Pickle> pickle = Pickle::Read(Protocol2(opcodes), "f");
  EXPECT_TRUE(pickle.ok()) << pickle.error().message;
  return *std::move(pickle);
}

// Returns the message for a pickle that is refused; "" if the pickle is accepted.
std::string RefusalOf(const std::string& bytes, const PickleLimits& limits = {}) {
  const Result<Pickle> pickle = Pickle::Read(bytes, "some.pkl", limits);
  if (pickle.ok()) return "";
  EXPECT_EQ(pickle.error().code, ExitCode::kBadInput);
  EXPECT_TRUE(pickle.error().message.starts_with("some.pkl: "));
  EXPECT_EQ(pickle.error().message, SanitizeForTerminal(pickle.error().message));
  return pickle.error().message;
}

TEST(PickleTest, ReadsNumbers) {
  const Pickle pickle = ReadGood(std::string("(K\xffM\xff\xffJ\xff\xff\xff\xff\x8a\x00", 13) +
                                 "\x8a\x02\x00\x80"s + "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"s +
                                 "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00"s +
                                 "G\x3f\xf8\x00\x00\x00\x00\x00\x00"s + "\x88\x89Nt");
  const PickleValue all = pickle.root();
  ASSERT_EQ(all.type(), PickleType::kTuple);
  ASSERT_EQ(all.size(), 11u);
  EXPECT_EQ(all.item(0).Int(), 255);
  EXPECT_EQ(all.item(1).Int(), 65535);
  EXPECT_EQ(all.item(2).Int(), -1);
  EXPECT_EQ(all.item(3).Int(), 0);
  EXPECT_EQ(all.item(4).Int(), -32768);
  EXPECT_EQ(all.item(5).Int(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(all.item(6).type(), PickleType::kInt);
  EXPECT_EQ(all.item(6).Int(), std::nullopt);  // 2^63 does not fit into int64_t
  EXPECT_EQ(all.item(7).Double(), 1.5);
  EXPECT_EQ(all.item(8).Bool(), true);
  EXPECT_EQ(all.item(9).Bool(), false);
  EXPECT_TRUE(all.item(10).IsNone());
}

TEST(PickleTest, AccessorsOfOtherTypesReturnNothing) {
  const Pickle pickle = ReadGood("\x88");
  EXPECT_EQ(pickle.root().Int(), std::nullopt);
  EXPECT_EQ(pickle.root().Double(), std::nullopt);
  EXPECT_EQ(pickle.root().String(), std::nullopt);
  EXPECT_EQ(pickle.root().Bytes(), std::nullopt);
  EXPECT_EQ(pickle.root().size(), 0u);
  EXPECT_EQ(pickle.root().global(), "");
  EXPECT_FALSE(pickle.root().Find("key"));
  EXPECT_FALSE(pickle.root().args());
  EXPECT_FALSE(pickle.root().state());
  EXPECT_FALSE(pickle.root().id());
}

TEST(PickleTest, FindsLastValueOfKey) {
  std::string opcodes = "}(" + Text("a") + "K\x01K\x07K\x02" + Text("a") + "K\x03u";
  const Pickle small = ReadGood(opcodes);
  EXPECT_EQ(small.root().size(), 3u);
  EXPECT_EQ(small.root().Find("a")->Int(), 3);
  EXPECT_EQ(small.root().Find(7)->Int(), 2);
  EXPECT_FALSE(small.root().Find("b"));
  EXPECT_FALSE(small.root().Find(8));

  opcodes = "}(";
  for (int i = 0; i < 100; ++i) opcodes += Text("key" + std::to_string(i % 90)) + "K" + char(i);
  const Pickle large = ReadGood(opcodes + "u");
  EXPECT_EQ(large.root().Find("key5")->Int(), 95);
  EXPECT_EQ(large.root().Find("key50")->Int(), 50);
  EXPECT_FALSE(large.root().Find("key"));
  EXPECT_FALSE(large.root().Find("key90"));
  EXPECT_EQ(large.root().entry(0).first.String(), "key0");
}

TEST(PickleTest, KeepsCallsInert) {
  const std::string file = std::filesystem::temp_directory_path() / "dslaunch-pickle-was-run";
  std::filesystem::remove(file);
  const Pickle pickle = ReadGood("cposix\nsystem\n" + Text("touch " + file) + "\x85R");
  EXPECT_EQ(pickle.root().type(), PickleType::kObject);
  EXPECT_EQ(pickle.root().global(), "posix.system");
  EXPECT_EQ(pickle.root().args()->item(0).String(), "touch " + file);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(PickleTest, ReadsObjectsWithStateAndItems) {
  // The pickle is a dict subclass with an argument, a key and a state.
  const Pickle pickle =
      ReadGood("cmy\nDict\nK\x01\x85\x81" + Text("k") + "K\x02s}" + Text("field") + "K\x03sb");
  const PickleValue object = pickle.root();
  EXPECT_EQ(object.global(), "my.Dict");
  EXPECT_EQ(object.args()->item(0).Int(), 1);
  EXPECT_TRUE(object.has_entries());
  EXPECT_EQ(object.entry(0).second.Int(), 2);
  EXPECT_EQ(object.state()->Find("field")->Int(), 3);
  EXPECT_EQ(object.Find("field")->Int(), 3);

  const Pickle list = ReadGood(
      "cmy\nList\n)\x81K\x05"
      "aK\x06"
      "a");
  EXPECT_EQ(list.root().size(), 2u);
  EXPECT_EQ(list.root().item(1).Int(), 6);
  EXPECT_FALSE(list.root().state());
}

TEST(PickleTest, OrderedDictIsDictWithoutItsAttributes) {
  const Pickle pickle =
      ReadGood("ccollections\nOrderedDict\n)R" + Text("w") + "K\x01s}" + Text("_metadata") + "Nsb");
  EXPECT_EQ(pickle.root().type(), PickleType::kDict);
  EXPECT_EQ(pickle.root().size(), 1u);
  EXPECT_EQ(pickle.root().Find("w")->Int(), 1);
}

TEST(PickleTest, SharesValuesOfMemo) {
  const Pickle pickle = ReadGood("]q\x01h\x01h\x01\x86\x86");
  const PickleValue inner = pickle.root().item(1);
  EXPECT_TRUE(inner.item(0).Same(inner.item(1)));
  EXPECT_TRUE(inner.item(0).Same(pickle.root().item(0)));
  EXPECT_FALSE(inner.Same(pickle.root()));
}

// If shared values were copied, there would be 2^150 of them.
TEST(PickleTest, ReadsExponentiallySharedValues) {
  std::string opcodes = "K\x01";
  for (int i = 0; i < 150; ++i) opcodes += "q" + std::string(1, char(i)) + "h" + char(i) + "\x86";
  EXPECT_EQ(ReadGood(opcodes).root().size(), 2u);
}

TEST(PickleTest, RefusesValuesInsideThemselves) {
  EXPECT_THAT(RefusalOf(Protocol2("]q\x01h\x01"
                                  "a")),
              HasSubstr("byte 2 (EMPTY_LIST): a value that is put into itself"));
  EXPECT_THAT(RefusalOf(Protocol2("]q\x01}K\x01h\x01sa")), HasSubstr("put into itself"));
  EXPECT_THAT(RefusalOf(Protocol2("cm\nC\n)\x81q\x01h\x01"
                                  "b")),
              HasSubstr("put into itself"));
}

TEST(PickleTest, RefusesDeepValuesWithoutUsingStack) {
  const PickleLimits deep = {.depth = 1'000'001};
  const std::string million(1'000'000, '\x85');
  EXPECT_THAT(RefusalOf(Protocol2("N" + million)), HasSubstr("more than 200 levels"));
  EXPECT_EQ(RefusalOf(Protocol2("N" + million), deep), "");
  EXPECT_EQ(RefusalOf(Protocol2("N" + std::string(199, '\x85'))), "");
  EXPECT_NE(RefusalOf(Protocol2("N" + std::string(200, '\x85'))), "");
  // Two long paths share their end, so the depth must be counted along each path.
  EXPECT_NE(RefusalOf(Protocol2("N" + std::string(150, '\x85') + "q\x01h\x01" +
                                std::string(60, '\x85') + "\x86")),
            "");
}

TEST(PickleTest, RefusesLengthsBeyondThePickle) {
  const uint64_t huge = uint64_t{1} << 63;
  EXPECT_THAT(RefusalOf("\x80\x04\x8d" + LittleEndian(huge, 8)),
              HasSubstr("byte 2 (BINUNICODE8): has 9223372036854775808 bytes; at most 1048576"));
  EXPECT_THAT(RefusalOf("\x80\x04\x95" + LittleEndian(huge, 8)),
              HasSubstr("byte 2 (FRAME): it ends beyond the pickle"));
  EXPECT_THAT(RefusalOf("\x80\x02X" + LittleEndian(100, 4)),
              HasSubstr("byte 2 (BINUNICODE): needs 100 bytes, and the pickle has 0 more"));
  EXPECT_THAT(RefusalOf("\x80\x02r" + LittleEndian(UINT32_MAX, 4)), HasSubstr("LONG_BINPUT"));
  EXPECT_THAT(RefusalOf("\x80\x02Nr" + LittleEndian(9'999'999, 4)),
              HasSubstr("memo entry 9999999 of a pickle of 8 bytes"));
  EXPECT_THAT(RefusalOf("\x80\x02T" + LittleEndian(UINT32_MAX, 4)), HasSubstr("BINSTRING"));
}

TEST(PickleTest, EnforcesLimits) {
  const std::string list = Protocol2("](" + std::string(50, 'N') + "e");
  EXPECT_EQ(RefusalOf(list, {.bytes = list.size(), .values = 51}), "");
  EXPECT_THAT(RefusalOf(list, {.bytes = list.size() - 1}), HasSubstr("at most 55 are read"));
  EXPECT_THAT(RefusalOf(list, {.values = 50}), HasSubstr("more than 50 values"));
  EXPECT_THAT(RefusalOf(Protocol2("Nq\x01q\x02"), {.values = 2}),
              HasSubstr("more than 2 values and memo entries"));
  EXPECT_THAT(RefusalOf(Protocol2(Text("abc")), {.string_bytes = 2}), HasSubstr("at most 2"));
}

TEST(PickleTest, RefusesManyNamesOfClasses) {
  std::string opcodes;
  for (int i = 0; i < 256; ++i)
    opcodes += Text(std::string(200, 'a' + i % 26) + std::to_string(i)) + "q" + char(i);
  std::string globals = "(";
  for (int i = 0; i < 256; ++i)
    for (int k = 0; k < 256; ++k) globals += "h"s + char(i) + "h" + char(k) + "\x93";
  const int64_t before_kib = OwnMemoryKib("VmRSS");
  EXPECT_THAT(RefusalOf("\x80\x04" + opcodes + globals + "t."), HasSubstr("the names of classes"));
  EXPECT_LT(OwnMemoryKib("VmRSS") - before_kib, 16 << 10);
}

TEST(PickleTest, NamesRefusedOpcodes) {
  EXPECT_THAT(RefusalOf(Protocol2("(i__main__\nC\n")), HasSubstr("byte 3 (INST): "));
  EXPECT_THAT(RefusalOf(Protocol2("\x82\x01")), HasSubstr("byte 2 (EXT1): "));
  EXPECT_THAT(RefusalOf(Protocol2("\x97")), HasSubstr("byte 2 (NEXT_BUFFER): "));
  EXPECT_THAT(RefusalOf(Protocol2("\xff")), HasSubstr("byte 2: is not an opcode: 255"));
  EXPECT_THAT(RefusalOf("(lp0\n."), HasSubstr("not a pickle of protocol 2 to 5"));
  EXPECT_THAT(RefusalOf("\x80\x06N."), HasSubstr("protocol 6; 2 to 5 are supported"));
}

TEST(PickleTest, RefusesWrongUseOfStack) {
  for (const char* opcodes : {"",
                              "R",
                              "N\x85\x86",
                              "t",
                              "(",
                              "NN",
                              "(N",
                              "NNa",
                              "N(Ne",
                              "]Nh\x05\x86",
                              "}(Nu",
                              "}NNNs",
                              "NNs",
                              "NN\x93",
                              "NQQ\x81",
                              "cm\nC\nN\x81",
                              "NNR",
                              "NNb",
                              "cm\nC\n)\x81K\x01"
                              "aNNs",
                              "\x8f(N\x90"
                              "a",
                              "](N\x90",
                              "cm\nC\n)R)\x81",
                              "q\x01N",
                              "(N)\x85t\x87"}) {
    EXPECT_NE(RefusalOf(Protocol2(opcodes)), "") << opcodes;
  }
  EXPECT_THAT(RefusalOf(Protocol2("N") + "N"), HasSubstr("1 bytes follow the pickle"));
  EXPECT_THAT(RefusalOf(Protocol2("X\x01\0\0\0\xff"s)), HasSubstr("not UTF-8"));
}

TEST(PickleTest, RefusesEveryTruncation) {
  const std::string whole =
      Protocol2("}(" + Text("w") + "ctorch\nSize\nK\x02\x85\x85R" + Text("f") +
                "(K\x01N\x88t\x8a\x02\x01\x02G" + std::string(8, '\0') + "u");
  EXPECT_EQ(RefusalOf(whole), "");
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_NE(RefusalOf(whole.substr(0, bytes)), "") << bytes;
  }
}

}  // namespace
}  // namespace dslaunch::pickle_test
