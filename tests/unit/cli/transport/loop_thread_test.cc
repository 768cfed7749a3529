#include "cli/transport/loop_thread.h"

#include <gtest/gtest.h>

#include <asio/post.hpp>
#include <thread>

#include "base/deadline.h"

namespace dslaunch::loop_thread_test {
namespace {

bool Ends(const std::weak_ptr<asio::io_context>& context) {
  for (const Deadline deadline = Deadline::After(milliseconds(5'000)); !deadline.Expired();) {
    if (context.expired()) return true;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return false;
}

TEST(LoopThreadTest, RunsOnLoopThreadEvenIfCalledThere) {
  const std::shared_ptr<LoopThread> loop = *LoopThread::Start("for a test");
  std::thread::id outer, inner;
  loop->Run([&] {
    outer = std::this_thread::get_id();
    loop->Run([&] { inner = std::this_thread::get_id(); });
  });
  EXPECT_NE(outer, std::this_thread::get_id());
  EXPECT_EQ(inner, outer);
}

TEST(LoopThreadTest, CanBeDestroyedOnItsOwnThread) {
  std::shared_ptr<LoopThread> loop = *LoopThread::Start("for a test");
  const std::weak_ptr<asio::io_context> context = loop->context();
  asio::io_context& running = *loop->context();
  asio::post(running, [loop = std::move(loop)]() mutable { loop.reset(); });
  EXPECT_TRUE(Ends(context));
}

TEST(LoopThreadTest, SshConnectionsShareLoopUntilLastEnds) {
  std::shared_ptr<LoopThread> loop = *SshLoop();
  EXPECT_EQ(*SshLoop(), loop);
  const std::weak_ptr<asio::io_context> context = loop->context();
  loop.reset();
  EXPECT_TRUE(context.expired()) << "its thread still runs";
  bool ran = false;
  (*SshLoop())->Run([&ran] { ran = true; });
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace dslaunch::loop_thread_test
