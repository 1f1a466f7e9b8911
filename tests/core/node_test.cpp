// Graph nodes: release of long chains, hooks, the accumulator of a leaf, the grad mode.
#include "core/graph/node.h"
#include "core/tensor/creation.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "tests/support/error_of.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

std::atomic<int> alive{0};

struct Step : Node {
  Step() { ++alive; }
  explicit Step(uint32_t results) : Step() { num_inputs_ = results; }
  ~Step() override { --alive; }
  Tensors apply(Tensors&& grads) override { return std::move(grads); }
  std::string name() const override { return "Step"; }
  Tensor saved;
};

}  // namespace

TEST_CASE("a chain of 100,000 nodes is released without recursion") {
  Ref<Node> head;
  for (int i = 0; i < 100'000; ++i) {
    auto step = make_ref<Step>();
    if (head) step->set_next({{head, 0}});
    head = step;
  }
  CHECK(alive == 100'000);
  head = nullptr;
  CHECK(alive == 0);
}

TEST_CASE("a chain through saved tensors, and one with forks, is released without recursion") {
  Tensor last = tensor(1.0);
  for (int i = 0; i < 100'000; ++i) {
    auto step = make_ref<Step>();
    step->saved = last;
    if (const Edge edge = last.grad_fn()) step->set_next({edge, edge, {}});
    last = tensor(1.0);
    last.set_grad_fn({step, 0});
  }
  CHECK(alive == 100'000);
  last = Tensor();
  CHECK(alive == 0);
}

TEST_CASE("a node lives while any handle does, whichever thread drops it") {
  auto step = make_ref<Step>();
  auto above = make_ref<Step>();
  above->set_next({{step, 0}});
  std::thread([held = std::move(above)]() mutable { held = nullptr; }).join();
  CHECK(alive == 1);
  CHECK(step->use_count() == 1);
  step = nullptr;
  CHECK(alive == 0);
}

TEST_CASE("later nodes have larger sequence numbers") {
  const auto a = make_ref<Step>(), b = make_ref<Step>();
  CHECK(a->sequence() < b->sequence());
  CHECK(a->num_inputs() == 1);
  CHECK(a->end() == Node::End::none);
  CHECK(a->next().empty());
}

TEST_CASE("hooks run in order on their result, and may replace its gradient") {
  const auto step = make_ref<Step>(3u);
  std::vector<std::string> calls;
  step->add_hook(0, [&](const Tensor& g) {
    calls.push_back("first " + std::to_string(g.item()));
    return tensor(10.0);
  });
  step->add_hook(2, [&](const Tensor&) {
    calls.push_back("undefined");
    return Tensor();
  });
  step->add_hook(0, [&](const Tensor& g) {
    calls.push_back("second " + std::to_string(g.item()));
    return Tensor();
  });
  Tensors grads{tensor(1.0), tensor(2.0), Tensor()};
  step->run_hooks(grads);
  CHECK(calls == std::vector<std::string>{"first 1.000000", "second 10.000000"});
  CHECK(grads[0].item() == 10);
  CHECK(grads[1].item() == 2);
  CHECK_FALSE(grads[2].defined());
}

TEST_CASE("a leaf keeps its accumulator while the graph does, and makes another one afterwards") {
  Tensor leaf = tensor(1.0).requires_grad_();
  Edge first = leaf.gradient_edge();
  CHECK(first.node->name() == "Accumulate");
  CHECK(first.node->end() == Node::End::leaf);
  CHECK(static_cast<Accumulate&>(*first.node).leaf().is_same(leaf));
  CHECK(leaf.gradient_edge().node == first.node);
  CHECK(first.node->use_count() == 1);
  const uint64_t sequence = first.node->sequence();
  first = {};
  const Edge second = leaf.gradient_edge();
  CHECK(second.node->sequence() > sequence);
  CHECK(error_text(ErrorKind::failed, [&] { second.node->apply({}); }) ==
        "[autograd] an Accumulate node is for the engine's sink, not for apply()");
}

TEST_CASE("an accumulator keeps its leaf alive") {
  Edge edge = tensor(7.0).requires_grad_().gradient_edge();
  CHECK(static_cast<Accumulate&>(*edge.node).leaf().item() == 7);
}

TEST_CASE("threads that ask for a leaf's accumulator while others drop it always get a live one") {
  Tensor leaf = tensor(1.0).requires_grad_();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        const Edge edge = leaf.gradient_edge();
        if (!static_cast<Accumulate&>(*edge.node).leaf().is_same(leaf)) ++wrong;
      }
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(leaf.impl()->use_count() == 1);
}

TEST_CASE("the grad mode nests, and belongs to one thread") {
  CHECK(grad_enabled());
  {
    const NoGradGuard off;
    CHECK_FALSE(grad_enabled());
    {
      const GradMode on(true);
      CHECK(grad_enabled());
    }
    CHECK_FALSE(grad_enabled());
    bool there = false;
    std::thread([&] { there = grad_enabled(); }).join();
    CHECK(there);
  }
  CHECK(grad_enabled());
}
