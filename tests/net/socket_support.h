// What the socket tests share: a recorder of events, raw clients, log capture, child processes.
#pragma once
#include <catch2/catch.hpp>

#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "net/protocol/frame.h"
#include "net/protocol/handshake.h"
#include "net/socket/loop/sockets.h"
#include "net/socket/socket_transport.h"

namespace troupe::internal::net::test {

inline const std::string kToken = "a token for the socket tests";

/// Fails the test if the condition has not come true in a time that no load explains.
constexpr auto kForever = std::chrono::seconds(60);

/// Keeps what happens, in order. `on_text` runs inside on_message.
class Recorder : public Events {
 public:
  void on_accepted(std::shared_ptr<Connection> c) override {
    with([&] { accepted.push_back(std::move(c)); });
  }
  void on_message(Connection& c, Message m) override {
    if (handler) handler(c, m);
    with([&] { messages.push_back(std::move(m)); });
  }
  void on_closed(Connection& c, const Error& e) override {
    with([&] {
      closed.push_back(e);
      closed_names.push_back(c.peer().name);
    });
  }
  template <class F>
  void wait(F&& condition) {
    std::unique_lock lock(mutex);
    REQUIRE(changed.wait_for(lock, kForever, condition));
  }
  void wait_accepted(size_t n) {
    wait([&] { return accepted.size() >= n; });
  }
  void wait_messages(size_t n) {
    wait([&] { return messages.size() >= n; });
  }
  void wait_closed(size_t n) {
    wait([&] { return closed.size() >= n; });
  }
  template <class F>
  void with(F&& f) {
    std::lock_guard lock(mutex);
    f();
    changed.notify_all();
  }

  std::function<void(Connection&, Message&)> handler;  // set before anything is connected
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<Connection>> accepted;
  std::vector<Message> messages;
  std::vector<Error> closed;
  std::vector<std::string> closed_names;
};

inline std::unique_ptr<Transport> transport(Events& events, const std::string& name,
                                            const SocketLimits& limits = {},
                                            const std::string& token = kToken,
                                            Encryption encryption = Encryption::off) {
  SocketOptions options{{static_cast<WorkerId>(name.back() - '0'), name}, token, limits};
  options.encryption = encryption;
  return make_socket_transport(std::move(options), events);
}

/// An abstract address that nobody else uses.
std::string fresh_address();

inline Message message(uint64_t number, size_t bytes = 0) {
  Message m;
  m.header = {number};
  if (bytes) {
    m.buffers.push_back({Storage::allocate(bytes), 0, bytes});
    std::memset(m.buffers[0].data(), 0, bytes);
    for (size_t i = 0; i < bytes; i += 4096)
      m.buffers[0].data()[i] = static_cast<std::byte>(number + i / 4096);
  }
  return m;
}

/// Two transports of this process, connected.
struct Two {
  explicit Two(const SocketLimits& limits = {}) {
    a = transport(left, "w1", limits), b = transport(right, "w2", limits);
    listener = b->listen(fresh_address());
    link = a->connect(listener->address()).get();
  }
  /// Sends messages until one has come by the arena: the offers have been answered.
  void warm() {
    for (size_t n = 1;; ++n) {
      link->send(message(0, 100000));
      right.wait_messages(n);
      bool borrowed = false;
      right.with([&] { borrowed = right.messages[n - 1].buffers[0].storage->borrowed(); });
      if (borrowed) break;
    }
    right.with([&] { right.messages.clear(); });
  }
  Recorder left, right;
  std::unique_ptr<Transport> a, b;
  std::unique_ptr<Listener> listener;
  std::shared_ptr<Connection> link;
};

/// A blocking socket without the transport.
class RawClient {
 public:
  explicit RawClient(const std::string& address);
  bool send(std::span<const std::byte> bytes);
  bool send(std::string_view text) { return send(std::as_bytes(std::span(text))); }
  /// Up to `n` bytes; fewer at the end of the stream.
  std::vector<std::byte> receive(size_t n);
  /// True once the other side has closed (after reading whatever comes).
  bool closed_by_peer();
  /// Runs the connector's side of a handshake.
  Handshake shake(const std::string& token = kToken, uint32_t version = kProtocolVersion,
                  const LinkWords& link = {});
  void close() { fd_.reset(); }
  int fd() const { return fd_.get(); }

 private:
  Descriptor fd_;
};

/// Keeps the log lines while it lives. One at a time.
class LogCapture {
 public:
  LogCapture();
  ~LogCapture();
  size_t count(const std::string& part) const;
  void wait_for(const std::string& part) const;
};

/// This test program, run again with one hidden test case; killed at the end.
class Child {
 public:
  Child(const std::string& test_case, const std::string& address);
  ~Child();
  void signal(int number);

 private:
  int pid_ = -1;
};

}  // namespace troupe::internal::net::test
