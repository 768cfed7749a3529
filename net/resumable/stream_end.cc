#include "net/resumable/stream_end.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <cstring>
#include <optional>
#include <string>

namespace dslaunch {
namespace {

using Descriptor = asio::posix::stream_descriptor;

class DescriptorEnd : public StreamEnd {
 public:
  DescriptorEnd(asio::io_context& loop, UniqueFd in, UniqueFd out) : in_(loop, in.Release()) {
    SetNonBlocking(in_);
    if (!out) return;
    other_out_.emplace(loop, out.Release());
    SetNonBlocking(*other_out_);
  }

  void AwaitReadable(OnReady then) override {
    in_.async_wait(Descriptor::wait_read, std::move(then));
  }
  void AwaitWritable(OnReady then) override {
    out().async_wait(Descriptor::wait_write, std::move(then));
  }
  size_t Read(char* to, size_t size, std::error_code& error) override {
    return in_.read_some(asio::buffer(to, size), error);
  }
  size_t Write(std::string_view bytes, std::error_code& error) override {
    return out().write_some(asio::buffer(bytes), error);
  }
  void ShutWrite() override {
    if (!other_out_) ::shutdown(in_.native_handle(), SHUT_WR);
  }
  void Shut() override {
    ::shutdown(in_.native_handle(), SHUT_RDWR);
    if (other_out_) ::shutdown(other_out_->native_handle(), SHUT_RDWR);
  }

 private:
  static void SetNonBlocking(Descriptor& descriptor) {
    std::error_code ignored;
    descriptor.non_blocking(true, ignored);
  }
  Descriptor& out() { return other_out_ ? *other_out_ : in_; }

  Descriptor in_;
  std::optional<Descriptor> other_out_;
};

constexpr size_t kPairBytes = size_t{256} << 10;

struct Pair {
  struct Direction {
    std::string bytes;
    bool ended = false;    // true once the writer has ended this direction
    bool refused = false;  // true once the reader has ended this direction
    StreamEnd::OnReady readable;
    StreamEnd::OnReady writable;

    bool IsReadable() const { return !bytes.empty() || ended || refused; }
    bool IsWritable() const { return bytes.size() < kPairBytes || ended || refused; }
  };

  explicit Pair(asio::io_context& on) : loop(on) {}

  void Call(StreamEnd::OnReady then) {
    asio::post(loop, [then = std::move(then)] { then({}); });
  }
  void NotifyReady(Direction& direction) {
    if (direction.readable && direction.IsReadable())
      Call(std::exchange(direction.readable, nullptr));
    if (direction.writable && direction.IsWritable())
      Call(std::exchange(direction.writable, nullptr));
  }

  asio::io_context& loop;
  std::array<Direction, 2> directions;
};

class PairEnd : public StreamEnd {
 public:
  PairEnd(std::shared_ptr<Pair> pair, size_t side)
      : pair_(std::move(pair)), in_(pair_->directions[side]), out_(pair_->directions[1 - side]) {}

  ~PairEnd() override {
    const OnReady readable = std::exchange(in_.readable, nullptr);
    const OnReady writable = std::exchange(out_.writable, nullptr);
    std::string().swap(in_.bytes);
    PairEnd::Shut();
  }

  void AwaitReadable(OnReady then) override {
    in_.readable = std::move(then);
    pair_->NotifyReady(in_);
  }
  void AwaitWritable(OnReady then) override {
    out_.writable = std::move(then);
    pair_->NotifyReady(out_);
  }
  size_t Read(char* to, size_t size, std::error_code& error) override {
    const size_t taken = std::min(size, in_.bytes.size());
    if (taken == 0) {
      error = in_.IsReadable() ? make_error_code(asio::error::eof)
                               : make_error_code(asio::error::would_block);
      return 0;
    }
    std::memcpy(to, in_.bytes.data(), taken);
    if (taken == in_.bytes.size())
      std::string().swap(in_.bytes);
    else
      in_.bytes.erase(0, taken);
    pair_->NotifyReady(in_);
    return taken;
  }
  size_t Write(std::string_view bytes, std::error_code& error) override {
    if (out_.ended || out_.refused) {
      error = asio::error::broken_pipe;
      return 0;
    }
    const size_t taken = std::min(bytes.size(), kPairBytes - out_.bytes.size());
    if (taken == 0) error = asio::error::would_block;
    out_.bytes += bytes.substr(0, taken);
    pair_->NotifyReady(out_);
    return taken;
  }
  void ShutWrite() override {
    out_.ended = true;
    pair_->NotifyReady(out_);
  }
  void Shut() override {
    in_.refused = true;
    pair_->NotifyReady(in_);
    ShutWrite();
  }

 private:
  const std::shared_ptr<Pair> pair_;
  Pair::Direction& in_;
  Pair::Direction& out_;
};

}  // namespace

bool IsToBeAwaited(std::error_code error) {
  return error == asio::error::would_block || error == asio::error::interrupted;
}

std::unique_ptr<StreamEnd> MakeStreamEnd(asio::io_context& loop, UniqueFd in, UniqueFd out) {
  return std::make_unique<DescriptorEnd>(loop, std::move(in), std::move(out));
}

std::pair<std::unique_ptr<StreamEnd>, std::unique_ptr<StreamEnd>> MakeStreamPair(
    asio::io_context& loop) {
  const auto pair = std::make_shared<Pair>(loop);
  return {std::make_unique<PairEnd>(pair, 0), std::make_unique<PairEnd>(pair, 1)};
}

}  // namespace dslaunch
