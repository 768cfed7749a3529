#include "base/errno_text.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>

#include "base/os/start_thread.h"
#include "tests/support/deny_syscalls.h"

namespace dslaunch::errno_text_test {
namespace {

using ::testing::HasSubstr;

TEST(ErrnoText, NamesTheExceededLimit) {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_THAT(ErrnoText(EMFILE), HasSubstr("Too many open files"));
  EXPECT_THAT(ErrnoText(EMFILE), HasSubstr(std::to_string(limit.rlim_cur)));
  EXPECT_THAT(ErrnoText(EMFILE), HasSubstr("ulimit -n"));
  EXPECT_THAT(ErrnoText(EAGAIN), HasSubstr("pids.max"));
  EXPECT_THAT(ErrnoText(ENOMEM), HasSubstr("memory.max"));
  EXPECT_EQ(ErrnoText(ENOENT), "No such file or directory");
}

TEST(StartThread, FailsWithTheLimitWhenNoThreadIsLeft) {
  int done = 0;
  Result<std::thread> thread = StartThread([&done] { done = 1; }, "to test");
  ASSERT_TRUE(thread.ok());
  thread->join();
  EXPECT_EQ(done, 1);
  EXPECT_TRUE(HoldsWithout({SYS_clone, SYS_clone3}, EAGAIN, [] {
    const Result<std::thread> none = StartThread([] {}, "to test");
    return !none.ok() &&
           none.error().message.find("cannot start a thread to test") != std::string::npos &&
           none.error().message.find("pids.max") != std::string::npos;
  }));
}

}  // namespace
}  // namespace dslaunch::errno_text_test
