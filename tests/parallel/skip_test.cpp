// Skip connections: from the stage that makes them to the stages that use them, past those in between.
#include "parallel/pipeline/skip_links.h"

#include "rref/ref_table.h"
#include "tests/parallel/stages.h"
#include "troupe/simulated/simulated_cluster.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::parallel;
using namespace std::chrono_literals;

namespace {

struct Fork : nn::ModuleActor<Dense> {
  explicit Fork(int64_t number) : ModuleActor(number) {}
  /// A skip that is a result of its own, and whole numbers besides, which have no gradient.
  std::tuple<Tensor, Tensor, Tensor> makes(Tensor x) {
    const Tensor y = net(x);
    return {y, full({x.size(0)}, 3, int64), mul(y, 2)};
  }
  Tensor numbered(Tensor x, Tensor number, Tensor skip) {
    return net(add(add(x, skip), number.reshape({-1, 1}).to(float32)));
  }
  std::pair<Tensor, Tensor> doubles(Tensor x) {
    const Tensor y = net(x);
    return {y, mul(y, 2)};
  }
  /// Its own input is the skip.
  std::vector<Tensor> passes(Tensor x) { return {net(x), x}; }
  Tensor takes(Tensor x, Tensor skip) { return net(add(x, skip)); }
  Tensor takes_masked(Tensor x, Tensor skip, Tensor mask) { return net(add(x, mul(skip, mask))); }
  Tensor forward(Tensor x) { return net(x); }
  Tensor loss(Tensor y, Tensor target) { return mse_loss(y, target); }
  static constexpr auto remote = methods<&Fork::makes, &Fork::doubles, &Fork::numbered, &Fork::passes,
                                         &Fork::takes, &Fork::takes_masked, &Fork::forward, &Fork::loss>;
};

// 0 gives "far", which 2 and 5 take; 1 gives its input, which 3 takes.
std::vector<Stage> forked(const std::vector<RRef<Fork>>& f) {
  return {stage<&Fork::doubles>(f[0]).gives({"far"}),
          stage<&Fork::passes>(f[1]).gives({"near"}),
          stage<&Fork::takes>(f[2]).takes({"far"}),
          stage<&Fork::takes>(f[3]).takes({"near"}),
          stage<&Fork::forward>(f[4]),
          stage<&Fork::takes_masked>(f[5]).takes({"far"}).with_loss<&Fork::loss>()};
}

}  // namespace

TEST_CASE("skips are connected by their names, and what cannot be is refused", "[schedule]") {
  const auto links = connect_skips({{{"a", "b"}, {}}, {{"c"}, {}}, {{}, {"b"}}, {{}, {"c", "a", "b"}}});
  CHECK(links[0].gives == std::vector<std::vector<SkipLink>>{{{3, 2}}, {{2, 1}, {3, 3}}});
  CHECK(links[1].gives == std::vector<std::vector<SkipLink>>{{{3, 1}}});
  CHECK(links[2].takes == std::vector<SkipLink>{{0, 2}});
  CHECK(links[3].takes == std::vector<SkipLink>{{1, 1}, {0, 1}, {0, 3}});
  CHECK(links[0].slots(true) == 1);
  CHECK(links[0].slots(false) == 4);
  CHECK(links[3].slots(true) == 4);
  CHECK(links[0].source(false, 1) == 3);
  CHECK(links[0].source(false, 2) == 2);
  CHECK(links[0].source(false, 3) == 3);
  CHECK(links[3].source(true, 1) == 1);
  const auto text = [](const std::vector<SkipNames>& names) {
    return invalid_text([&] { (void)connect_skips(names); });
  };
  CHECK(text({{{"a"}, {}}, {}}) ==
        "[pipeline] stage 0 gives the skip \"a\", and no stage behind it takes it");
  CHECK(text({{{}, {"a"}}, {{"a"}, {}}}).find("stage 0 takes the skip \"a\", and no stage before it") !=
        std::string::npos);
  CHECK(text({{{"a"}, {"a"}}}).find("no stage before it") != std::string::npos);
  CHECK(text({{{"a"}, {}}, {{}, {"a", "a"}}}) == "[pipeline] stage 1 takes the skip \"a\" twice");
  CHECK(text({{{"a"}, {}}, {{"a"}, {"a"}}}).find("stages 0 and 1 both give a skip \"a\"") !=
        std::string::npos);
}

TEST_CASE("an action waits for all that it needs, in any order", "[schedule]") {
  for (const std::vector<int64_t>& order :
       std::vector<std::vector<int64_t>>{{0, 1, 2}, {2, 0, 1}, {1, 2, 0}}) {
    parallel::JoinBuffer arrivals;
    for (size_t i = 0; i < 3; ++i) {
      CHECK(arrivals.put(true, {4, order[i]}, 7, 3, Value(10 * order[i])) == (i == 2));
      CHECK_FALSE(arrivals.put(false, {4, order[i]}, 7, 4, Value()));  // of another action
    }
    CHECK(invalid_text([&] { arrivals.put(true, {4, 1}, 7, 3, Value()); }).find("twice") !=
          std::string::npos);
    CHECK(invalid_text([&] { arrivals.put(true, {4, 3}, 7, 3, Value()); }) ==
          "[pipeline] value 3 of 3 came for the forward of micro-batch 7 in stage 4");
    const ValueList all = arrivals.take(true, 4, 7);
    REQUIRE(all.size() == 3);
    for (int64_t i = 0; i < 3; ++i) CHECK(*all[size_t(i)].get_if<int64_t>() == 10 * i);
    CHECK(arrivals.take(true, 4, 7).empty());
  }
}

TEST_CASE("a model with skip connections has the gradients of the whole, under every schedule") {
  const Tensor x = wave({9, kWidth}, 1), y = wave({9, kWidth}, 2), mask = wave({9, kWidth}, 3);
  WholeModel whole(6);
  for (auto& layer : whole.layers) layer->zero_grad();
  const auto net = [&](size_t i, const Tensor& in) { return (*whole.layers[i])(in); };
  const Tensor h0 = net(0, x), far = mul(h0, 2), h1 = net(1, h0), h2 = net(2, add(h1, far));
  const Tensor h4 = net(4, net(3, add(h2, h0))), out = net(5, add(h4, mul(far, mask)));
  const Tensor loss = mse_loss(out, y);
  autograd::backward(loss);

  Fixture<Fork> f(6);
  const std::vector<Stage> stages = forked(f.blocks);
  for (const auto& [schedule, chunks] : {std::pair("gpipe", 1),
                                         {"1f1b", 1},
                                         {"zb-h1", 1},
                                         {"zb-h2", 1},
                                         {"credits(2)", 1},
                                         {"interleaved", 2},
                                         {"interleaved", 6},
                                         {"zb-v", 2},
                                         {"dualpipe-v", 2}})
    for (const int m : {1, 4, 6})
      for (const Checkpoint checkpoint : {Checkpoint::never, Checkpoint::except_last, Checkpoint::always}) {
        if (std::string(schedule) == "interleaved" && m % (6 / chunks) != 0) continue;
        INFO(schedule << ", " << chunks << " chunks, " << m << " micro-batches, checkpoint "
                      << int(checkpoint));
        Pipeline pipeline(
            f.cluster->here(), stages,
            {.schedule = schedule, .micro_batches = m, .chunks = chunks, .checkpoint = checkpoint});
        std::vector<Tensors> grads;
        CHECK(f.step(pipeline, x, y, &grads, {.inputs = {{5, Value(mask)}}}) ==
              Approx(loss.item()).epsilon(1e-5));
        compare(grads, whole);
        Tensors outputs;
        for (const Value& v : pipeline.forward(Value(x), {.inputs = {{5, Value(mask)}}}))
          outputs.push_back(*v.get_if<Tensor>());
        CHECK(difference(ops::cat(outputs, 0), out.detach(), 1e-5, 1e-6) == "");
      }
  nothing_left(*f.cluster);
}

TEST_CASE("skips may be any trees, with tensors that have no gradient") {
  const Tensor x = wave({4, kWidth}, 1), y = wave({4, kWidth}, 2);
  WholeModel whole(3);
  for (auto& layer : whole.layers) layer->zero_grad();
  const Tensor h0 = (*whole.layers[0])(x), h1 = (*whole.layers[1])(h0);
  const Tensor loss = mse_loss((*whole.layers[2])(add(add(h1, mul(h0, 2)), 3.0)), y);
  autograd::backward(loss);
  Fixture<Fork> f(3);
  for (const std::string schedule : {"1f1b", "zb-h1"}) {
    Pipeline pipeline(
        f.cluster->here(),
        {stage<&Fork::makes>(f.blocks[0]).gives({"number", "twice"}), stage<&Fork::forward>(f.blocks[1]),
         stage<&Fork::numbered>(f.blocks[2]).takes({"number", "twice"}).with_loss<&Fork::loss>()},
        {.schedule = schedule, .micro_batches = 2});
    std::vector<Tensors> grads;
    CHECK(f.step(pipeline, x, y, &grads) == Approx(loss.item()).epsilon(1e-5));
    compare(grads, whole);
  }
}

TEST_CASE("skips cross no stage in between: counted bytes on every link") {
  auto types = hosting<Fork>();
  for (auto& type : builtin_actors()) types.push_back(type);
  const int64_t rows = 512, m = 4;
  const auto tensor = static_cast<uint64_t>(rows * kWidth * 4);  // bytes of one activation of the whole batch
  const Tensor x = wave({rows, kWidth}, 1), y = wave({rows, kWidth}, 2);
  SimulatedCluster cluster(1, 5, types);
  std::vector<RRef<Fork>> f;
  for (size_t s = 0; s < 4; ++s) f.push_back(cluster.here(0).spawn<Fork>(1 + s, static_cast<int64_t>(s)));
  Pipeline pipeline(
      Here(internal::rref::RefTable::of(cluster.worker(0))),
      {stage<&Fork::doubles>(f[0]).gives({"far"}), stage<&Fork::forward>(f[1]), stage<&Fork::forward>(f[2]),
       stage<&Fork::takes>(f[3]).takes({"far"}).with_loss<&Fork::loss>()},
      {.micro_batches = static_cast<int>(m)});
  autograd::Context context(cluster.worker(0));
  REQUIRE(cluster.await(pipeline.step_async(Value(x), Value(y))).ok());
  const auto bytes = [&](size_t from, size_t to) {
    return cluster.network().counters("w" + std::to_string(from), "w" + std::to_string(to)).bytes;
  };
  // Each way one activation; between the first and the last stage it is the skip. Headers take some more.
  for (const auto& [a, b] : {std::pair(1, 2), {2, 3}, {3, 4}, {1, 4}})
    for (const auto& [from, to] : {std::pair(a, b), {b, a}}) {
      INFO("from w" << from << " to w" << to);
      CHECK(bytes(size_t(from), size_t(to)) >= tensor);
      CHECK(bytes(size_t(from), size_t(to)) < tensor + 8000);
    }
  CHECK(bytes(1, 3) + bytes(2, 4) + bytes(3, 1) + bytes(4, 2) == 0);
  std::map<std::pair<int, int>, int64_t> reported;
  const StepReport report = pipeline.step_report();
  for (const auto& message : report.messages) reported[{message.from, message.to}] += message.bytes;
  CHECK(reported.size() == 8);
  for (const auto& [way, count] : reported) CHECK(count == static_cast<int64_t>(tensor));
}

TEST_CASE("a method that gives too little for its skips is named") {
  const Tensor x = wave({4, kWidth}, 1), y = wave({4, kWidth}, 2);
  Fixture<Fork> f(3);
  Pipeline none(f.cluster->here(),
                {stage<&Fork::forward>(f.blocks[0]).gives({"far"}), stage<&Fork::forward>(f.blocks[1]),
                 stage<&Fork::takes>(f.blocks[2]).takes({"far"}).with_loss<&Fork::loss>()},
                {.micro_batches = 2});
  autograd::Context context(*f.cluster);
  const std::string said = error_of([&] { none.step(Value(x), Value(y)); }).what();
  CHECK(said.find(
            "forward of stage 0 gave tensor float32 [2, 6]: expected a list of its output and, behind it, "
            "the 1 skips that it gives") != std::string::npos);
  CHECK(invalid_text([&] {
          Pipeline p(f.cluster->here(), {stage<&Fork::takes>(f.blocks[0]).takes({"far"})}, {});
        }).find("no stage before it gives one") != std::string::npos);
}
