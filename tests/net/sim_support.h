// Nodes of a simulated network that write down what happens to them.
#pragma once
#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net/sim/network.h"

namespace troupe::internal::net {

inline TransportOptions sim_options(const std::string& name, Limits limits = {}) {
  TransportOptions o;
  o.self = {kNoWorker, name};
  o.token = "a token of the tests";
  o.limits = limits;
  return o;
}
inline Message numbered(uint64_t number, size_t buffer = 0) {
  Message m;
  m.header = {number};
  if (buffer) m.buffers.push_back({Storage::allocate(buffer), 0, buffer});
  if (buffer) std::fill_n(m.buffers[0].data(), buffer, std::byte{1});
  return m;
}

/// For one thread: virtual time, or immediate mode without other threads.
struct SimNode : Events {
  Network& network;
  std::string name;
  std::vector<std::string>* log = nullptr;  ///< shared by the nodes of a scenario
  std::vector<std::shared_ptr<Connection>> accepted;
  std::vector<uint64_t> numbers;
  std::vector<std::string> closed;
  std::vector<TimePoint> times;  ///< of each message and of each end
  std::function<void(Connection&, Message&)> on_each;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Listener> listener;

  SimNode(Network& n, const std::string& name, Limits limits = {}) : network(n), name(name) {
    transport = n.make_transport(name, sim_options(name, limits), *this);
    listener = transport->listen("sim:" + name);
  }
  void on_accepted(std::shared_ptr<Connection> c) override {
    note("accepts " + c->peer().name);
    accepted.push_back(std::move(c));
  }
  void on_message(Connection& c, Message m) override {
    note("gets " + std::to_string(m.header.at(0)) + " from " + c.peer().name);
    numbers.push_back(m.header[0]);
    times.push_back(network.clock().now());
    if (on_each) on_each(c, m);
  }
  void on_closed(Connection& c, const Error& reason) override {
    note("loses " + c.peer().name + ": " + reason.message());
    closed.push_back(reason.message());
    times.push_back(network.clock().now());
  }
  void note(const std::string& what) {
    if (log)
      log->push_back(std::to_string(network.clock().now().time_since_epoch().count()) + " " + name + " " +
                     what);
  }
};

/// Connects in virtual time.
inline std::shared_ptr<Connection> link_up(Network& network, SimNode& from, SimNode& to) {
  auto future = from.transport->connect("sim:" + to.name);
  while (!future.is_ready()) REQUIRE(network.step());
  return future.get();
}
inline ErrorKind kind_thrown(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.kind();
  }
  FAIL("no error");
  return {};
}
template <class T>
ErrorKind kind_of(const Future<T>& f) {
  REQUIRE(f.is_ready());
  return f.peek()->error().kind();
}

}  // namespace troupe::internal::net
