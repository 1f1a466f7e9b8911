// Trainers that do what a test tells them, in a simulated cluster with parameters in servers.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "parallel/server/served_parameters.h"
#include "parallel/server/server.h"
#include "rref/ref_table.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

namespace troupe::testing {

using namespace parallel;
using namespace std::chrono_literals;

inline ServerOptions with_policy(const std::string& text, int64_t trainers = 1) {
  return {.options = {{"lr", 0.5}}, .policy = ServerPolicy::parse(text), .trainers = trainers};
}

// Holds a client on its worker, and does what the test tells it.
struct Hand : Actor {
  Hand(Served served, std::string name) : client(std::move(served), {.name = name}) {}
  Task<Tensors> pull() {
    const auto values = client.pull();
    co_return co_await values;
  }
  Task<Pushed> push(Tensors gradients, double weight) {
    const auto pushed = client.push(gradients, weight);
    co_return co_await pushed;
  }
  Task<Tensors> push_pull(Tensors gradients, double weight) {
    const auto values = client.push_pull(gradients, weight);
    co_return co_await values;
  }
  Client client;
  static constexpr auto remote = methods<&Hand::pull, &Hand::push, &Hand::push_pull>;
};

// Servers on w1, and hands on the workers from w2 on.
struct Scene {
  Scene(const Tensors& start, const ServerOptions& options, size_t count, int64_t block_bytes = 4 << 20)
      : cluster(1, 6, hosting<Server, Hand>(), {.timeout = 0s}) {
    cluster.network().set_faults({.delay = 1ms});
    served = serve(Here(internal::rref::RefTable::of(cluster.worker(0))), {"w1"}, start, options,
                   {.bytes = block_bytes});
    for (size_t i = 0; i < count; ++i) add(i);
  }
  void add(size_t i) { hands.push_back(cluster.here(0).spawn<Hand>(i + 2, served, "t" + std::to_string(i))); }
  Tensors pull(size_t i) { return cluster.await(hands[i].call<&Hand::pull>()).value(); }
  Pushed push(size_t i, const Tensors& gradients, double weight = 1) {
    return cluster.await(hands[i].call<&Hand::push>(gradients, weight)).value();
  }
  std::string refusal(size_t i, const Tensors& gradients, double weight = 1) {
    const auto r = cluster.await(hands[i].call<&Hand::push>(gradients, weight));
    return r.ok() ? "no error" : std::string(name(r.error().kind())) + ": " + r.error().what();
  }
  Tensors values(int64_t at_least = 0) { return cluster.await(read(served, at_least)).value(); }
  ServerReport report() { return cluster.await(parallel::report(served)).value().at(0); }
  SimulatedCluster cluster;
  Served served;
  std::vector<RRef<Hand>> hands;
};

}  // namespace troupe::testing
