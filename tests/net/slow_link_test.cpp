// Bulk over a way that carries a megabit in a second: nobody is taken for dead, and all of it arrives.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "tests/net/socket_support.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace troupe::internal::net::test;
using troupe::internal::Descriptor;

namespace {

// Carries some KiB each way every 30 ms, so many times, and from then on all that comes.
class SlowWay {
 public:
  SlowWay(std::string to, int portions) : to_(std::move(to)), portions_(portions) {
    listening_ = listen_on(parse_address("tcp:127.0.0.1:0"), address_, kForever);
    stop_ = Descriptor(::eventfd(0, EFD_CLOEXEC));
    thread_ = std::thread([this] { run(); });
  }
  ~SlowWay() {
    const uint64_t once = 1;
    CHECK(::write(stop_.get(), &once, sizeof once) == sizeof once);
    thread_.join();
  }
  std::string address() const { return address_.str(); }
  bool is_slow() const { return portions_ > 0; }

 private:
  static constexpr int kPause = 30;  // ms
  static constexpr size_t kPortion = 4 << 10;

  void run() {
    for (;;) {
      const bool slow = is_slow();
      const int looks = slow ? 0 : POLLIN;
      pollfd waits[] = {{stop_.get(), POLLIN, 0},
                        {listening_.get(), POLLIN, 0},
                        {ends_[0] ? ends_[0].get() : -1, static_cast<short>(looks), 0},
                        {ends_[1] ? ends_[1].get() : -1, static_cast<short>(looks), 0}};
      ::poll(waits, 4, slow ? kPause : -1);
      if (waits[0].revents) return;
      if (waits[1].revents) accept();
      const bool both = ends_[0] && ends_[1];
      if (slow && both) --portions_;
      for (const int from : {0, 1})
        if (both && !pass(from, slow ? kPortion : bytes_.size())) break;
    }
  }
  void accept() {
    ends_[0] = Descriptor(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const auto to = resolve_numeric(parse_address(to_)).found.at(0);
    ends_[1] = Descriptor(::socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(ends_[1].get(), to.get(), to.size) != 0) return cut();
    for (const Descriptor& end : ends_) tune(end.get());
  }
  bool pass(int from, size_t most) {
    const ssize_t n = ::recv(ends_[from].get(), bytes_.data(), most, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return true;
    if (n > 0 && send_all(1 - from, std::span(bytes_).first(static_cast<size_t>(n)))) return true;
    cut();
    return false;
  }
  bool send_all(int to, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(ends_[to].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return true;
  }
  void cut() { ends_[0].reset(), ends_[1].reset(); }

  const std::string to_;
  std::atomic<int> portions_;
  Address address_;
  Descriptor listening_, stop_, ends_[2];
  std::array<std::byte, 64 << 10> bytes_;
  std::thread thread_;
};

}  // namespace

TEST_CASE("256 MiB on a slow link starve no heartbeat and arrive") {
  SocketLimits limits;
  limits.heartbeat = std::chrono::milliseconds(200);
  limits.dead_after = std::chrono::seconds(2);
  limits.handshake = limits.connect = kForever;
  for (const Encryption encryption : {Encryption::off, Encryption::always}) {
    Recorder left, right;
    const auto a = transport(left, "w1", limits, kToken, encryption);
    const auto b = transport(right, "w2", limits, kToken, encryption);
    const auto listener = b->listen("tcp:127.0.0.1:0");
    const SlowWay way(listener->address(), 200);  // three times as long as nothing may be heard
    const auto there = a->connect(way.address()).get();
    right.wait_accepted(1);
    const auto back = right.accepted[0];
    constexpr size_t kBulk = 128 << 20;
    for (const auto& end : {there, back}) {
      end->send(message(1, kBulk));
      end->send(message(2));
    }
    CHECK(way.is_slow());
    CHECK(there->queued_bytes() > 0);
    for (Recorder* side : {&left, &right}) {
      side->wait_messages(2);
      side->with([&] {
        CHECK(side->closed.empty());
        CHECK(side->messages[0].buffer_bytes() == kBulk);
        CHECK(side->messages[0].buffers[0].data()[kBulk - 4096] ==
              message(1, kBulk).buffers[0].data()[kBulk - 4096]);
        CHECK(side->messages[1].header == message(2).header);
      });
    }
    CHECK_FALSE(way.is_slow());
  }
}
