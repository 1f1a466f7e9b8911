// Slices of a sequence as micro-batches: what stages carry from one to the next, and its gradients.
#include "tests/parallel/stages.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::parallel;

namespace {

constexpr int64_t kTime = 7;

// Causal attention of one head over this slice and all before it, then a state that goes from each position
// to the next.
struct LookBack : nn::Module {
  explicit LookBack(int64_t number) {
    const auto fill = [&](nn::Linear& linear, double start) {
      linear.load_state_dict({{"weight", wave({kWidth, kWidth}, start + static_cast<double>(number))},
                              {"bias", wave({kWidth}, start)}});
    };
    fill(query, 1), fill(key, 2), fill(value, 3), fill(state, 4);
  }
  // x: [batch, time, width]; before: keys, values and the last state of what is before.
  std::tuple<Tensor, Tensors> operator()(const Tensor& x, const Tensors& before) {
    Tensor k = key(x), v = value(x);
    const int64_t past = before.empty() ? 0 : before[0].size(1), time = x.size(1);
    if (past > 0) k = ops::cat({before[0], k}, 1), v = ops::cat({before[1], v}, 1);
    const Tensor later = ops::triu(ones({time, past + time}), past + 1).to(boolean);
    const Tensor scores = ops::masked_fill(ops::matmul(query(x), k.transpose(1, 2)), later, -1e9);
    const Tensor seen = ops::matmul(ops::softmax(scores, -1), v);
    Tensor last = past > 0 ? before[2] : zeros({x.size(0), kWidth});
    Tensors states;
    for (int64_t t = 0; t < time; ++t)
      states.push_back(last = ops::tanh(ops::select(seen, 1, t) + state(last)));
    return {ops::stack(states, 1), {k, v, last}};
  }
  void members(nn::Members& m) override {
    m("query", query), m("key", key), m("value", value), m("state", state);
  }
  nn::Linear query{kWidth, kWidth}, key{kWidth, kWidth}, value{kWidth, kWidth}, state{kWidth, kWidth};
};

struct Looking : nn::ModuleActor<LookBack> {
  explicit Looking(int64_t number) : ModuleActor(number) {}
  std::tuple<Tensor, Tensors> forward(Tensor x, Tensors before) { return net(x, before); }
  Tensor apart(Tensor x) { return x; }
  std::tuple<Tensor, Tensor> wrong(Tensor x, Tensors) { return {x, x}; }
  Tensor loss(Tensor y, Tensor target) { return mse_loss(y, target); }
  static constexpr auto remote = methods<&Looking::forward, &Looking::apart, &Looking::wrong, &Looking::loss>;
};

struct Sequences : Fixture<Looking> {
  explicit Sequences(int count) : Fixture(count) {
    for (int s = 0; s < count; ++s) whole.push_back(std::make_unique<LookBack>(s));
  }
  std::vector<Stage> stages() const {
    std::vector<Stage> all;
    for (const auto& b : blocks) all.push_back(stage<&Looking::forward>(b).carries());
    all.back() = all.back().with_loss<&Looking::loss>();
    return all;
  }
  Tensor forward(Tensor h) {
    for (auto& layer : whole) h = std::get<0>((*layer)(h, {}));
    return h;
  }
  double backward(const Tensor& weight = {}) {
    for (auto& layer : whole) layer->zero_grad();
    Tensor loss = mse_loss(forward(x), y);
    if (weight.defined()) loss = mean(ops::square(forward(x) - y) * weight) * (1 / mean(weight).item());
    autograd::backward(loss);
    return loss.item();
  }
  void check(const std::vector<Tensors>& grads) {
    for (size_t s = 0; s < whole.size(); ++s) {
      std::map<std::string, Tensor> own;  // in the order of the state
      for (const auto& [name, t] : whole[s]->named_parameters()) own[name] = t;
      REQUIRE(grads[s].size() == own.size());
      size_t at = 0;
      for (const auto& [name, t] : own) {
        CAPTURE(s, name);
        CHECK(difference(grads[s][at++], t.grad(), 1e-4, 1e-5) == "");
      }
    }
  }
  std::vector<std::unique_ptr<LookBack>> whole;
  Tensor x = wave({5, kTime, kWidth}, 1), y = wave({5, kTime, kWidth}, 2);
};

}  // namespace

TEST_CASE("slices of a sequence have the gradients of the whole, under every schedule of tables") {
  Sequences f(4);
  const double loss = f.backward();
  const Tensor expected = f.forward(f.x).detach();
  for (const auto& [schedule, chunks] : {std::pair("gpipe", 1),
                                         {"1f1b", 1},
                                         {"zb-h1", 1},
                                         {"zb-h2", 1},
                                         {"interleaved", 2},
                                         {"looped-bfs", 2},
                                         {"zb-v", 2},
                                         {"dualpipe-v", 2}})
    for (const auto& [micro_batches, slices] : {std::pair(1, 7), {2, 3}, {4, 2}}) {
      if (std::string(schedule) == "interleaved" && micro_batches % 2 != 0) continue;
      CAPTURE(schedule, micro_batches, slices);
      Pipeline pipeline(
          f.cluster->here(), f.stages(),
          {.schedule = schedule, .micro_batches = micro_batches, .chunks = chunks, .slices = slices});
      std::vector<Tensors> grads;
      REQUIRE(f.step(pipeline, f.x, f.y, &grads) == Approx(loss).epsilon(1e-5));
      f.check(grads);
      CHECK(pipeline.step_report().micro_batches == micro_batches * slices);
      Tensors outputs, rows;
      for (const Value& v : pipeline.forward(Value(f.x))) outputs.push_back(*v.get_if<Tensor>());
      for (int m = 0; m < micro_batches; ++m)
        rows.push_back(
            ops::cat(Tensors(outputs.begin() + m * slices, outputs.begin() + (m + 1) * slices), 1));
      CHECK(difference(ops::cat(rows, 0), expected, 1e-5, 1e-6) == "");
    }
  nothing_left(*f.cluster);
}

TEST_CASE("weights are of micro-batches, of which slices have their parts, and few rows are cut into few") {
  Sequences f(2);
  Pipeline pipeline(f.cluster->here(), f.stages(), {.micro_batches = 5, .slices = 3});
  const Tensor weight =
      tensor(std::vector<float>{3, 0, 1, 2, 0.5}).reshape({5, 1, 1}).expand({5, kTime, kWidth});
  const double loss = f.backward(weight);
  std::vector<Tensors> grads;
  CHECK(f.step(pipeline, f.x, f.y, &grads, {.weights = {3, 0, 1, 2, 0.5}}) == Approx(loss).epsilon(1e-5));
  f.check(grads);
  f.x = slice(f.x, 0, 0, 2), f.y = slice(f.y, 0, 0, 2);
  const double few = f.backward();
  grads.clear();
  CHECK(f.step(pipeline, f.x, f.y, &grads) == Approx(few).epsilon(1e-5));
  f.check(grads);
}

TEST_CASE("steps of any number of rows have slices, one after another") {
  Sequences f(4);
  const Tensor x = f.x, y = f.y;
  const std::string table =
      "w0: F1 F0 B1 B0 F2 F3 B2 B3\nw1: F1 B1 F0 B0 F2 B2 F3 B3\n"
      "w2: F1 B1 F0 B0 F2 B2 F3 B3\nw3: F1 B1 F0 B0 F2 B2 F3 B3\n";
  for (const auto& [schedule, chunks] : {std::pair(std::string("1f1b"), 1), {table, 1}, {"interleaved", 2}}) {
    Pipeline pipeline(f.cluster->here(), f.stages(),
                      {.schedule = schedule, .micro_batches = 4, .chunks = chunks, .slices = 2});
    for (const int64_t rows : {5, 2, 1, 4, 3, 2}) {
      CAPTURE(schedule, rows);
      f.x = slice(x, 0, 0, rows), f.y = slice(y, 0, 0, rows);
      std::vector<Tensors> grads;
      const double loss = f.backward();
      REQUIRE(f.step(pipeline, f.x, f.y, &grads) == Approx(loss).epsilon(1e-5));
      f.check(grads);
    }
  }
}

TEST_CASE("slices that cannot be are refused before anything has changed") {
  Sequences f(2);
  const auto text = [&](const std::vector<Stage>& stages, const PipelineOptions& options) {
    return invalid_text([&] { const Pipeline p(f.cluster->here(), stages, options); });
  };
  std::vector<Stage> apart;
  for (const auto& b : f.blocks) apart.push_back(stage<&Looking::apart>(b));
  CHECK(text(apart, {.slices = 2}) ==
        "[pipeline] 2 slices, and no stage carries anything from one to the next: a sequence in slices, 2 or "
        "more, goes with stages that look back, stage<...>(a).carries()");
  CHECK(text(f.stages(), {}).find("1 slices, and a stage carries") != std::string::npos);
  CHECK(text(f.stages(), {.checkpoint = Checkpoint::always, .slices = 2}).find("Checkpoint::never") !=
        std::string::npos);
  CHECK(text(f.stages(), {.schedule = "credits(2)", .slices = 2}).find("use 1f1b") != std::string::npos);
  CHECK(text(f.stages(), {.schedule = "auto", .slices = 2}).find("name a schedule") != std::string::npos);

  Pipeline pipeline(f.cluster->here(), f.stages(), {.micro_batches = 2, .slices = 4});
  autograd::Context context(*f.cluster);
  const auto refused = [&](const Tensor& x, const Tensor& y) {
    return invalid_text([&] { (void)pipeline.step(Value(x), Value(y)); });
  };
  CHECK(refused(slice(f.x, 1, 0, 3), slice(f.y, 1, 0, 3)) ==
        "[pipeline] the batch: 3 positions, fewer than the 4 slices");
  CHECK(refused(f.x, wave({5}, 1)).find("the targets (") != std::string::npos);
  CHECK(refused(f.x, wave({5, 5}, 1)) ==  // classes of a row, say
        "[pipeline] a slice has 2 positions and its targets have 1: with slices the second dimension of both "
        "is "
        "that of the sequence, a target for each position");
  CHECK(invalid_text([&] { (void)pipeline.step(ValueList{Value(f.x)}, ValueList{Value(f.y)}); }) ==
        "[pipeline] 1 parts of a batch are no multiple of 4 slices");
  CHECK(invalid_text([&] { (void)pipeline.step(Value(f.x), Value(f.y), {.weights = {1, 2, 3}}); }) ==
        "[pipeline] 3 weights for 2 micro-batches");
  std::vector<Stage> wrong{stage<&Looking::wrong>(f.blocks[0]).carries().with_loss<&Looking::loss>()};
  Pipeline other(f.cluster->here(), wrong, {.micro_batches = 2, .slices = 2});
  CHECK(invalid_text([&] {
          (void)other.step(Value(f.x), Value(f.y));
        }).find("a list of its output and, last, a list of tensors (Tensors) for the next slice") !=
        std::string::npos);
  std::vector<Tensors> grads;
  CHECK(f.step(pipeline, f.x, f.y, &grads) == Approx(f.backward()).epsilon(1e-5));
  f.check(grads);
}
