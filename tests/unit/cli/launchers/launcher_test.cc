#include "cli/launchers/launcher.h"

#include <gtest/gtest.h>

#include "cli/launchers/start_all.h"

namespace dslaunch::launcher_test {
namespace {

TEST(LauncherTest, RowsAreInOrderOfLauncherAndFoundByName) {
  for (size_t i = 0; i < LauncherTable().size(); ++i) {
    const LauncherRow& row = LauncherTable()[i];
    EXPECT_EQ(static_cast<size_t>(row.launcher), i);
    EXPECT_EQ(&RowOf(row.launcher), &row);
    EXPECT_EQ(FindLauncher(row.name), &row);
  }
  EXPECT_EQ(FindLauncher("mpich"), nullptr);
}

TEST(LauncherTest, LaunchersThatStartAllNodesHaveProgramAndCommand) {
  for (const LauncherRow& row : LauncherTable()) {
    const bool starts_all = row.way == Way::kAllAtOnce;
    EXPECT_EQ(row.start_all != nullptr, starts_all) << row.name;
    EXPECT_EQ(row.program.empty(), !starts_all) << row.name;
    const bool is_packaged = starts_all && row.launcher != Launcher::kPbs;
    EXPECT_EQ(row.package.empty(), !is_packaged) << row.name;
    if (!starts_all) continue;
    EXPECT_NE(row.start_all->command, nullptr) << row.name;
    EXPECT_EQ(row.start_all->node_command != nullptr, row.may_relay) << row.name;
  }
}

}  // namespace
}  // namespace dslaunch::launcher_test
