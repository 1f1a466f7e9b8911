// Exact passes without threads: random graphs cut over several sites, messages in random order.
#include <catch2/catch.hpp>

#include <map>
#include <optional>
#include <set>

#include "autograd/add_gradient.h"
#include "autograd/distributed/send_receive_nodes.h"
#include "autograd/distributed/shared_subgraphs.h"
#include "autograd/hooks.h"
#include "autograd/region.h"
#include "core/base/generator.h"
#include "tests/support/error_of.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace troupe::autograd;
using testing::error_of;

namespace {

Tensor scalar(double v) { return tensor(v, DType::float64); }
Tensor leaf(double v) {
  Tensor t = scalar(v);
  t.requires_grad_();
  return t;
}

// A computation of small integers, so that sums are exact in any order. Values live on sites; one that is
// used elsewhere crosses, or does not if `cut` is false.
struct Model {
  struct Value {
    Tensor here;
    size_t site;
  };
  Model(uint64_t seed, bool cut, double step = 1) {
    Generator random(seed);
    const size_t sites = 2 + random.below(3), count = 1 + random.below(random.below(2) ? 3 : 30);
    auto pick = [&](size_t n) { return static_cast<size_t>(random.below(n)); };
    for (size_t i = 0; i < 4; ++i) {
      leaves.push_back(leaf(1 + step * static_cast<double>(pick(3))));
      values.push_back({leaves.back(), pick(sites)});
    }
    for (size_t i = 0; i < count; ++i) {
      const size_t site = pick(sites), near = values.size() > 6 ? 6 : values.size();
      Tensor a = fetch(values.size() - 1 - pick(near), site, cut), b = fetch(pick(values.size()), site, cut);
      Tensor y;
      switch (pick(3)) {
        case 0:
          y = ops::add(a, b);
          break;
        case 1:
          y = ops::sub(a, b);
          break;
        default:
          y = ops::mul(a, leaves[pick(4)]);
      }
      if (ops::abs(y).item() > 1e5) y = ops::sub(y, y.detach());
      values.push_back({y, site});
    }
    for (size_t i = 0; i < 1 + pick(3); ++i) {  // roots, where the pass starts
      roots.push_back(fetch(values.size() - 1 - pick(5), 0, cut));
      grads.push_back(scalar(1 + step * static_cast<double>(pick(3))));
    }
  }
  // One message for each use: several pairs may leave one value.
  Tensor fetch(size_t i, size_t site, bool cut) {
    if (!cut || values[i].site == site) return values[i].here;
    const uint64_t pair = sends.size();
    sends.push_back(
        {Ref<SendNode>(new SendNode(0, pair, {values[i].here.gradient_edge()}, {{DType::float64, {}}}, live)),
         values[i].site});
    Tensor t = values[i].here.detach().clone_data();
    t.set_grad_fn({make_ref<ReceiveNode>(0, 0, pair, pair, 1, live), 0});
    return t;
  }
  LiveCount live = std::make_shared<std::atomic<int64_t>>(0);
  Tensors leaves, roots, grads;
  std::vector<Value> values;
  std::vector<std::pair<Ref<SendNode>, size_t>> sends;  // by pair; the site
};

struct Sums : internal::autograd::Sink {
  explicit Sums(const Model& m) : model(m), sums(m.leaves.size()) {}
  void accumulate(const Tensor& l, const Tensor& grad) override {
    for (size_t i = 0; i < sums.size(); ++i)
      if (model.leaves[i].impl() == l.impl()) internal::autograd::add_gradient(sums[i], grad);
  }
  void leave(Node& node, Tensors grads) override {
    out.emplace_back(static_cast<ReceiveNode&>(node).pair(), std::move(grads));
  }
  const Model& model;
  Tensors sums;
  std::vector<std::pair<uint64_t, Tensors>> out;
};

template <class T>
T take_any(std::vector<T>& from, Generator& random) {
  std::swap(from[random.below(from.size())], from.back());
  T t = std::move(from.back());
  from.pop_back();
  return t;
}

std::vector<Edge> edges_of(const Model& m) { return internal::autograd::root_edges("backward", m.roots); }

}  // namespace

TEST_CASE("an exact pass over a graph cut in pieces has the gradients of the whole, one message per pair") {
  int shared = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    INFO("seed " << seed);
    Model cut(seed, true), whole(seed, false);
    Generator random(seed + 7);
    if (!std::all_of(cut.roots.begin(), cut.roots.end(), [](const Tensor& t) { return t.requires_grad(); }))
      continue;
    std::map<size_t, internal::autograd::Region> regions;
    Sums sink(cut);
    auto region = [&](size_t site) -> internal::autograd::Region& {
      return regions.try_emplace(site, RunOptions{}).first->second;
    };

    // The wave, in random order.
    std::vector<uint64_t> wave;
    std::set<uint64_t> reached;
    auto go_on = [&](const std::vector<Node*>& exits) {
      for (Node* n : exits) {
        const uint64_t pair = static_cast<ReceiveNode*>(n)->pair();
        REQUIRE(reached.insert(pair).second);
        wave.push_back(pair);
      }
    };
    go_on(region(0).expect(edges_of(cut)));
    while (!wave.empty()) {
      const uint64_t pair = take_any(wave, random);
      go_on(region(cut.sends[pair].second).expect({{cut.sends[pair].first, 0}}, pair));
    }
    // The gradients.
    region(0).supply(edges_of(cut), cut.grads, sink);
    std::set<uint64_t> arrived;
    while (!sink.out.empty()) {
      auto [pair, grads] = take_any(sink.out, random);
      REQUIRE(arrived.insert(pair).second);
      grads.resize(1);
      region(cut.sends[pair].second).supply({{cut.sends[pair].first, 0}}, std::move(grads), sink, pair);
    }
    REQUIRE(arrived == reached);
    for (auto& [site, r] : regions) REQUIRE(r.done());

    Sums local(whole);
    internal::autograd::run(edges_of(whole), whole.grads, local);
    for (size_t i = 0; i < local.sums.size(); ++i) {
      const bool has = sink.sums[i].defined() && sink.sums[i].item() != 0;
      const bool wants = local.sums[i].defined() && local.sums[i].item() != 0;
      REQUIRE(has == wants);
      if (has) REQUIRE(sink.sums[i].item() == local.sums[i].item());
    }

    // Where nothing overlaps, the fast way is right as well, and takes no more messages.
    Model again(seed, true);
    std::vector<SharedSubgraphs> overlaps(5);
    for (const auto& [send, site] : again.sends) overlaps[site].add(send->next());
    bool found = overlaps[0].met_by(edges_of(again));
    for (const SharedSubgraphs& o : overlaps) found |= o.found();
    if (found) {
      ++shared;
      continue;
    }
    Sums fast(again);
    internal::autograd::run(edges_of(again), again.grads, fast);
    size_t messages = 0;
    while (!fast.out.empty()) {
      ++messages;
      auto [pair, grads] = take_any(fast.out, random);
      run({{again.sends[pair].first, 0}}, std::move(grads), fast);
    }
    REQUIRE(messages <= reached.size());
    for (size_t i = 0; i < local.sums.size(); ++i)
      if (local.sums[i].defined() && local.sums[i].item() != 0)
        REQUIRE(fast.sums[i].item() == local.sums[i].item());
  }
  CHECK(shared > 100);
  CHECK(shared < 1400);
}

TEST_CASE("a selecting pass over a graph cut in pieces gives the gradients of its inputs, and runs no more") {
  size_t found = 0, pruned = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    INFO("seed " << seed);
    Model cut(seed, true), whole(seed, false);
    Generator random(seed + 7);
    if (!std::all_of(cut.roots.begin(), cut.roots.end(), [](const Tensor& t) { return t.requires_grad(); }))
      continue;
    Tensors inputs, same;  // results on the site of the roots
    for (size_t i = 4; i < cut.values.size(); ++i)
      if (cut.values[i].site == 0 && cut.values[i].here.requires_grad() && random.below(3) == 0) {
        inputs.push_back(cut.values[i].here);
        same.push_back(whole.values[i].here);
      }
    if (inputs.empty()) continue;
    std::map<size_t, internal::autograd::Region> regions;
    Sums sink(cut);
    regions.try_emplace(0, RunOptions{}, internal::autograd::root_edges("grad", inputs));
    auto region = [&](size_t site) -> internal::autograd::Region& {
      return regions.try_emplace(site, RunOptions{}, std::vector<Edge>{}).first->second;
    };
    // From the roots; where each pair leaves from is noted.
    std::vector<uint64_t> wave;
    std::map<uint64_t, std::pair<size_t, Node*>> exits;
    auto go_on = [&](size_t site, const std::vector<Node*>& nodes) {
      for (Node* n : nodes) {
        wave.push_back(static_cast<ReceiveNode*>(n)->pair());
        REQUIRE(exits.try_emplace(wave.back(), site, n).second);
      }
    };
    go_on(0, region(0).expect(edges_of(cut)));
    while (!wave.empty()) {
      const uint64_t pair = take_any(wave, random);
      const auto& [send, site] = cut.sends[pair];
      go_on(site, region(site).expect({{send, 0}}, pair));
    }
    // Back from the inputs.
    std::set<uint64_t> wanted;
    auto go_back = [&](const std::vector<Node*>& nodes) {
      for (Node* n : nodes)
        if (auto* s = dynamic_cast<SendNode*>(n)) {
          REQUIRE(wanted.insert(s->pair()).second);
          wave.push_back(s->pair());
        }
    };
    go_back(region(0).wanted());
    while (!wave.empty()) {
      const auto& [site, node] = exits.at(take_any(wave, random));
      go_back(region(site).want(node));
    }
    // The gradients.
    region(0).supply(edges_of(cut), cut.grads, sink);
    std::set<uint64_t> arrived;
    while (!sink.out.empty()) {
      auto [pair, grads] = take_any(sink.out, random);
      REQUIRE(arrived.insert(pair).second);
      grads.resize(1);
      region(cut.sends[pair].second).supply({{cut.sends[pair].first, 0}}, std::move(grads), sink, pair);
    }
    REQUIRE(arrived == wanted);
    found += !arrived.empty();
    pruned += arrived.size() < exits.size();
    for (const Tensor& sum : sink.sums) REQUIRE_FALSE(sum.defined());  // no leaf has got anything

    const Tensors got = region(0).captured(), want = autograd::grad(whole.roots, same, whole.grads);
    for (size_t i = 0; i < want.size(); ++i) {
      const double w = want[i].defined() ? want[i].item() : 0;
      REQUIRE((got[i].defined() ? got[i].item() : 0) == w);
    }
  }
  CHECK(found > 100);
  CHECK(pruned > 100);
}

TEST_CASE("an exact pass has the same bits, whatever comes first") {
  // What each site has of each leaf, after gradients came in random order.
  const auto sums_of = [](uint64_t seed, uint64_t order) {
    Model m(seed, true, 0.1);
    Generator random(order);
    struct Sink : Sums {
      using Sums::Sums;
      void accumulate(const Tensor& l, const Tensor& grad) override {
        internal::autograd::add_gradient(at[{site, l.impl()}], grad);
      }
      std::map<std::pair<size_t, const TensorImpl*>, Tensor> at;
      size_t site = 0;
    } sink(m);
    std::map<size_t, internal::autograd::Region> regions;
    const auto region = [&](size_t site) -> internal::autograd::Region& {
      return regions.try_emplace(site, RunOptions{}).first->second;
    };
    std::vector<Node*> wave = region(0).expect(edges_of(m));
    while (!wave.empty()) {
      const auto pair = static_cast<ReceiveNode*>(take_any(wave, random))->pair();
      const auto& [send, site] = m.sends[pair];
      for (Node* exit : region(site).expect({{send, 0}}, pair)) wave.push_back(exit);
    }
    region(0).supply(edges_of(m), m.grads, sink);
    while (!sink.out.empty()) {
      auto [pair, grads] = take_any(sink.out, random);
      grads.resize(1);
      sink.site = m.sends[pair].second;
      region(sink.site).supply({{m.sends[pair].first, 0}}, std::move(grads), sink, pair);
    }
    for (auto& [site, r] : regions) REQUIRE(r.done());
    std::vector<std::optional<double>> out;
    for (size_t site = 0; site < 5; ++site)
      for (const Tensor& l : m.leaves) {
        const auto found = sink.at.find({site, l.impl()});
        out.push_back(found == sink.at.end() ? std::nullopt : std::optional(found->second.item()));
      }
    return out;
  };
  int several = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    INFO("seed " << seed);
    Model m(seed, true);
    if (!std::all_of(m.roots.begin(), m.roots.end(), [](const Tensor& t) { return t.requires_grad(); }))
      continue;
    several += m.sends.size() > 2;
    REQUIRE(sums_of(seed, 2 * seed) == sums_of(seed, 2 * seed + 1));
  }
  CHECK(several > 400);
}

TEST_CASE("a region refuses gradients that it does not expect") {
  internal::autograd::Region region({});
  Model m(1, true);
  Sums sink(m);
  CHECK(region.done());
  CHECK(error_of([&] { region.supply(edges_of(m), m.grads, sink); }).kind() == ErrorKind::invalid);
  internal::autograd::Region selecting({}, {});
  Node* unknown = m.roots[0].gradient_edge().node.get();
  CHECK(error_of([&] { selecting.want(unknown); }).kind() == ErrorKind::invalid);
}

TEST_CASE("parts overlap in nodes, and in leaves with hooks, not in other leaves") {
  Tensor w = leaf(2), x = leaf(3);
  Tensor a = ops::mul(w, x), b = ops::mul(w, x), c = ops::add(a, b);
  auto edges = [](const Tensor& t) { return std::vector<Edge>{t.gradient_edge()}; };
  SharedSubgraphs overlap;
  CHECK_FALSE(overlap.met_by(edges(c)));
  overlap.add(edges(a));
  overlap.add(edges(b));
  overlap.add(edges(w));
  overlap.add(edges(w));
  CHECK_FALSE(overlap.found());
  CHECK_FALSE(overlap.met_by(edges(ops::mul(w, x))));
  CHECK(overlap.met_by(edges(c)));
  CHECK_FALSE(overlap.found());  // only asked
  overlap.add({{a.gradient_edge(), a.gradient_edge()}});
  CHECK(overlap.found());

  SharedSubgraphs twice;  // inside one part nodes may meet
  twice.add(edges(c));
  CHECK_FALSE(twice.found());

  SharedSubgraphs hooked;
  auto hook = register_hook(w, [](const Tensor& g) { return g; });
  hooked.add(edges(w));
  hooked.add(edges(x));
  CHECK_FALSE(hooked.found());
  hooked.add(edges(ops::mul(w, x)));
  CHECK(hooked.found());

  SharedSubgraphs many;  // more than a few nodes
  Tensors chain;
  for (int i = 0; i < 5000; ++i) chain.push_back(ops::mul(ops::mul(w, x), x));
  SharedSubgraphs parts;
  for (const Tensor& t : chain) parts.add(edges(t));
  CHECK(parts.found());  // all of them reach w, which has a hook
}
