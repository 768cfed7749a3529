#include "base/os/exported_symbols.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/support/temp_dir.h"

namespace dslaunch {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ExportedSymbolsTest, ListsSymbolsOfCLibraryByPrefix) {
  Dl_info library;
  ASSERT_NE(::dladdr(reinterpret_cast<void*>(&std::atoi), &library), 0);
  const auto symbols = ExportedSymbols(library.dli_fname, "ato");
  ASSERT_TRUE(symbols.ok()) << symbols.error().message;
  EXPECT_THAT(*symbols, Contains("i"));  // rest of the name atoi
  EXPECT_THAT(*symbols, Contains("l"));
  EXPECT_THAT(*symbols, Not(Contains("atoi")));
  EXPECT_TRUE(std::ranges::is_sorted(*symbols));
  const auto none = ExportedSymbols(library.dli_fname, "dslaunch_");
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
}

TEST(ExportedSymbolsTest, RejectsFilesThatAreNotLibraries) {
  const TempDir dir;
  for (const std::string& path :
       {dir.Write("text.so", "no library"), dir.path(), std::string("/dev/zero")}) {
    const auto symbols = ExportedSymbols(path, "");
    ASSERT_FALSE(symbols.ok()) << path;
    EXPECT_EQ(symbols.error().code, ExitCode::kBadInput);
    EXPECT_THAT(symbols.error().message, HasSubstr("not a shared library"));
  }
  EXPECT_THAT(ExportedSymbols(dir / "none.so", "").error().message,
              HasSubstr("cannot be read: No such file or directory"));
}

}  // namespace
}  // namespace dslaunch
