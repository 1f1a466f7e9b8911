// What the contract of transports is tested with: transports under test, marked messages, a hostile recorder.
#pragma once
#include <catch2/catch.hpp>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "net/transport.h"

namespace troupe::internal::net::contract {

/// A transport under test. One per section, so that sections do not see each other.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::unique_ptr<Transport> make(const std::string& name, TransportOptions options,
                                          Events& events) = 0;
  /// Where the transport called `name` can listen. A free one each time.
  virtual std::string listen_address(const std::string& name) = 0;
  /// A well-formed address where nobody listens.
  virtual std::string nowhere() = 0;
};
using MakeBackend = std::function<std::unique_ptr<Backend>()>;

/// A guard against hanging for ever, not a measure of anything.
inline constexpr auto kHang = std::chrono::seconds(60);

inline TransportOptions options_for(const std::string& name, WorkerId id = kNoWorker) {
  TransportOptions o;
  o.self = {id, name};
  o.token = "a token of the tests";
  return o;
}

/// `size` bytes that depend on `seed`, in a storage of their own, not at its start.
inline Buffer make_buffer(uint64_t seed, size_t size) {
  Buffer b{Storage::allocate(size + 64), 64, size};
  for (size_t i = 0; i < size; ++i)
    b.data()[i] = static_cast<std::byte>((seed * 31 + i * 7 + (i >> 8)) & 0xff);
  return b;
}
inline Message make_message(uint64_t sender, uint64_t number, const std::vector<size_t>& sizes = {}) {
  Message m;
  m.header = {sender, number, sizes.size()};
  for (size_t i = 0; i < sizes.size(); ++i)
    m.header.push_back(sizes[i]), m.buffers.push_back(make_buffer(number + i, sizes[i]));
  return m;
}
/// Empty if `m` is what make_message() made, else what is wrong.
inline std::string damage(const Message& m) {
  if (m.header.size() < 3 || m.header.size() != 3 + m.header[2]) return "header damaged";
  if (m.buffers.size() != m.header[2]) return "got " + std::to_string(m.buffers.size()) + " buffers";
  for (size_t i = 0; i < m.buffers.size(); ++i) {
    const auto& b = m.buffers[i];
    if (b.size != m.header[3 + i])
      return "buffer " + std::to_string(i) + " has " + std::to_string(b.size) + " bytes";
    const Buffer expected = make_buffer(m.header[1] + i, b.size);
    if (b.size && std::memcmp(b.data(), expected.data(), b.size) != 0)
      return "buffer " + std::to_string(i) + " damaged";
  }
  return {};
}

/// Hostile to transports that break the rules of Events: notes two callbacks at once for one connection, a
/// message before the connection is known or after it closed, a second on_closed, and anything after stop().
class Recorder : public Events {
 public:
  std::function<void(Connection&, Message&)> on_each;  ///< runs inside on_message; set before the traffic

  void on_accepted(std::shared_ptr<Connection> c) override {
    Guard guard(*this, *c, "on_accepted");
    std::lock_guard lock(mutex_);
    if (c->peer().name.size() > 255) note("peer name too long");
    accepted_.push_back(std::move(c));
    changed_.notify_all();
  }
  void on_message(Connection& c, Message m) override {
    Guard guard(*this, c, "on_message");
    if (auto wrong = damage(m); !wrong.empty()) violation(wrong);
    if (on_each) on_each(c, m);
    std::lock_guard lock(mutex_);
    received_[&c].push_back({m.header.at(0), m.header.at(1)});
    ++messages_;
    changed_.notify_all();
  }
  void on_closed(Connection& c, const Error& reason) override {
    Guard guard(*this, c, "on_closed");
    std::lock_guard lock(mutex_);
    if (reason.kind() != ErrorKind::disconnected) note("on_closed with " + std::string(name(reason.kind())));
    if (!closed_.emplace(&c, reason.message()).second) note("on_closed twice");
    changed_.notify_all();
  }

  /// From now on no callback may come.
  void stop() { stopped_ = true; }

  struct Id {
    uint64_t sender, number;
  };
  std::shared_ptr<Connection> accepted(size_t i = 0) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kHang, [&] { return accepted_.size() > i; })) return nullptr;
    return accepted_[i];
  }
  size_t accepted_count() {
    std::lock_guard lock(mutex_);
    return accepted_.size();
  }
  bool wait_messages(size_t n) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kHang, [&] { return messages_ >= n; });
  }
  bool wait_closed(size_t n = 1) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kHang, [&] { return closed_.size() >= n; });
  }
  std::vector<Id> received(const Connection& c) {
    std::lock_guard lock(mutex_);
    return received_[&c];
  }
  size_t messages() {
    std::lock_guard lock(mutex_);
    return messages_;
  }
  std::vector<std::string> violations() {
    std::lock_guard lock(mutex_);
    return violations_;
  }
  void violation(const std::string& text) {
    std::lock_guard lock(mutex_);
    note(text);
  }

 private:
  struct Guard {
    Guard(Recorder& r, Connection& c, const char* what) : r(r), c(c) {
      std::lock_guard lock(r.mutex_);
      if (r.stopped_) r.note(std::string(what) + " after the transport was destroyed");
      if (r.busy_[&c]++) r.note(std::string(what) + " while another callback of the connection runs");
      if (r.closed_.count(&c)) r.note(std::string(what) + " after on_closed");
    }
    ~Guard() {
      std::lock_guard lock(r.mutex_);
      --r.busy_[&c];
    }
    Recorder& r;
    Connection& c;
  };
  void note(const std::string& text) { violations_.push_back(text); }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> stopped_{false};
  std::vector<std::shared_ptr<Connection>> accepted_;
  std::map<const Connection*, std::vector<Id>> received_;
  std::map<const Connection*, std::string> closed_;
  std::map<const Connection*, int> busy_;
  std::vector<std::string> violations_;
  size_t messages_ = 0;
};

/// A transport with its recorder. The recorder outlives the transport, as the contract asks.
struct Side {
  Recorder events;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Listener> listener;
  std::string address;

  Side(Backend& backend, const std::string& name, TransportOptions options, bool listen) {
    transport = backend.make(name, std::move(options), events);
    if (!listen) return;
    listener = transport->listen(backend.listen_address(name));
    address = listener->address();
  }
  Side(Backend& backend, const std::string& name, WorkerId id = kNoWorker, bool listen = false)
      : Side(backend, name, options_for(name, id), listen) {}
  std::shared_ptr<Connection> connect(const std::string& to) {
    auto future = transport->connect(to);
    REQUIRE(future.wait_for(kHang));
    return future.get();
  }
  void destroy() {
    listener.reset();
    transport.reset();
    events.stop();
  }
  ~Side() {
    listener.reset();
    transport.reset();
  }
};

template <class F>
ErrorKind kind_of_failure(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    CHECK(e.message().starts_with("["));
    return e.kind();
  }
  FAIL("no error");
  return {};
}
template <class T>
ErrorKind failure_of(const Future<T>& f) {
  REQUIRE(f.wait_for(kHang));
  return kind_of_failure([&] { (void)f.get(); });
}

}  // namespace troupe::internal::net::contract
