// Pipelines over real actors: the gradients of the whole model, whatever the schedule.
#include "parallel/pipeline/micro_batch.h"
#include "parallel/pipeline/runner_report.h"
#include "tests/parallel/stages.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::parallel;

TEST_CASE("a step has the gradients of the whole model, under every schedule") {
  const Tensor x = wave({10, kWidth}, 1), y = wave({10, kWidth}, 2);
  for (const int p : {1, 2, 4}) {
    WholeModel whole(p);
    const double loss = whole.backward(x, y);
    Fixture f(p);
    for (const int m : {1, 2, 4, 7})  // 10 rows: uneven
      for (const std::string schedule :
           {"gpipe", "1f1b", "zb-h1", "zb-h2", "credits(1)", "credits(3)", "auto"})
        for (const Checkpoint checkpoint : {Checkpoint::never, Checkpoint::except_last, Checkpoint::always}) {
          INFO(p << " stages, " << m << " micro-batches, " << schedule << ", checkpoint " << int(checkpoint));
          Pipeline pipeline(f.cluster->here(), f.stages(),
                            {.schedule = schedule, .micro_batches = m, .checkpoint = checkpoint});
          std::vector<Tensors> grads;
          CHECK(f.step(pipeline, x, y, &grads) == Approx(loss).epsilon(1e-5));
          compare(grads, whole);
        }
    nothing_left(*f.cluster);
  }
}

TEST_CASE("interleaved stages have the gradients of the whole model") {
  const Tensor x = wave({8, kWidth}, 1), y = wave({8, kWidth}, 2);
  WholeModel whole(6);
  const double loss = whole.backward(x, y);
  Fixture f(6);
  for (const auto& [schedule, chunks, m] : {std::tuple("interleaved", 3, 2),
                                            {"interleaved", 3, 8},
                                            {"interleaved", 2, 6},
                                            {"interleaved", 6, 4},
                                            {"looped-bfs", 3, 4},
                                            {"zb-v", 2, 3},
                                            {"zb-v", 2, 8},
                                            {"dualpipe-v", 2, 3},
                                            {"dualpipe-v", 2, 8}}) {
    INFO(schedule << ", " << chunks << " chunks, " << m << " micro-batches");
    Pipeline pipeline(f.cluster->here(), f.stages(),
                      {.schedule = schedule, .micro_batches = m, .chunks = chunks});
    CHECK(pipeline.workers() == 6 / chunks);
    std::vector<Tensors> grads;
    CHECK(f.step(pipeline, x, y, &grads) == Approx(loss).epsilon(1e-5));
    compare(grads, whole);
  }
}

TEST_CASE("a table written by hand runs") {
  const Tensor x = wave({4, kWidth}, 1), y = wave({4, kWidth}, 2);
  WholeModel whole(2);
  const double loss = whole.backward(x, y);
  Fixture f(2);
  Pipeline pipeline(f.cluster->here(), f.stages(),
                    {.schedule = "w0: F1 F0 B1 I0 W0\nw1: F1 B1 F0 I0 W0\n", .micro_batches = 2});
  std::vector<Tensors> grads;
  CHECK(f.step(pipeline, x, y, &grads) == Approx(loss).epsilon(1e-5));
  compare(grads, whole);
  const StepReport report = pipeline.step_report();
  std::string row;
  for (const auto& e : report.events)
    if (e.worker == 0) row += e.action.str() + " ";
  CHECK(row == "F1 F0 B1 I0 W0 ");
}

TEST_CASE("the loss may be computed by the caller") {
  const Tensor x = wave({9, kWidth}, 1), y = wave({9, kWidth}, 2);
  WholeModel whole(4);
  const double loss = whole.backward(x, y);
  Fixture f(4);
  int calls = 0;
  for (const auto& [schedule, chunks] : {std::pair("1f1b", 1), {"zb-h1", 1}, {"zb-v", 2}}) {
    Pipeline pipeline(f.cluster->here(), f.stages(false),
                      {.schedule = schedule,
                       .micro_batches = 4,
                       .chunks = chunks,
                       .loss = [&](const Value& out, const Value& target) {
                         ++calls;
                         return mse_loss(*out.get_if<Tensor>(), *target.get_if<Tensor>());
                       }});
    std::vector<Tensors> grads;
    CHECK(f.step(pipeline, x, y, &grads) == Approx(loss).epsilon(1e-5));
    compare(grads, whole);
  }
  CHECK(calls == 12);
}

TEST_CASE("weights make the step a weighted mean") {
  const Tensor x = wave({4, kWidth}, 1), y = wave({4, kWidth}, 2);
  Fixture f(2);
  Pipeline pipeline(f.cluster->here(), f.stages(), {.micro_batches = 2});
  WholeModel whole(2);
  const double last = whole.backward(ops::slice(x, 0, 2, 4), ops::slice(y, 0, 2, 4));
  std::vector<Tensors> grads;
  CHECK(f.step(pipeline, x, y, &grads, {.weights = {0, 5}}) == Approx(last).epsilon(1e-5));
  compare(grads, whole);
}

TEST_CASE("what counts for nothing may have a NaN loss, and leaves no trace") {
  const Tensor x = wave({8, kWidth}, 1);
  Tensor y = wave({8, kWidth}, 2);
  slice(y, 0, 2, 4).fill_(std::nan(""));  // no targets in piece 1
  const std::vector<double> weights{1, 0, 2, 2};
  WholeModel whole(2);
  double loss = 0;
  for (auto& layer : whole.layers) layer->zero_grad();
  for (const int64_t piece : {0, 2, 3}) {
    const auto part = [&](const Tensor& t) { return slice(t, 0, 2 * piece, 2 * piece + 2); };
    const Tensor mean = mul(mse_loss(whole.forward(part(x)), part(y)), weights[size_t(piece)] / 5);
    autograd::backward(mean);
    loss += mean.item();
  }
  Fixture f(2);
  const auto mean = [](const Value& out, const Value& target) {
    return mse_loss(*out.get_if<Tensor>(), *target.get_if<Tensor>());
  };
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2", "credits(3)"})
    for (const bool at_caller : {false, true})
      for (const Checkpoint checkpoint : {Checkpoint::never, Checkpoint::always}) {
        INFO(schedule << (at_caller ? ", loss at the caller" : "") << ", checkpoint " << int(checkpoint));
        PipelineOptions options{.schedule = schedule, .micro_batches = 4, .checkpoint = checkpoint};
        if (at_caller) options.loss = mean;
        Pipeline pipeline(f.cluster->here(), f.stages(!at_caller), options);
        std::vector<Tensors> grads;
        CHECK(f.step(pipeline, x, y, &grads, {.weights = weights}) == Approx(loss).epsilon(1e-5));
        compare(grads, whole);
      }
  Pipeline pipeline(f.cluster->here(), f.stages(), {.micro_batches = 4});
  autograd::Context context(*f.cluster);
  const StepResult result = pipeline.step(Value(x), Value(y), {.weights = weights});
  CHECK(std::isnan(result.losses.at(1)));
  CHECK(std::isfinite(result.losses.at(0)));
  CHECK(result.weight == 5);
}

TEST_CASE("a batch with fewer rows than micro-batches is cut into as many as it has") {
  const std::string table = "w0: F1 F0 F2 F3 B1 B0 B2 I3 W3\nw1: F1 B1 F0 B0 F2 B2 F3 I3 W3\n";
  for (const int64_t rows : {1, 2, 3}) {
    const Tensor x = wave({rows, kWidth}, 1), y = wave({rows, kWidth}, 2);
    for (const auto& [stages, chunks] : {std::pair(2, 1), {4, 2}}) {
      WholeModel whole(stages);
      const double loss = whole.backward(x, y);
      const Tensor expected = whole.forward(x).detach();
      Fixture f(stages);
      const std::string own =
          "w0=1,2: F3 F0 F0.1 F1 F1.1 F2 F2.1 F3.1 B0.1 B0 B1.1 B1 B2.1 B2 I3.1 I3 W3.1 W3\n"
          "w1=0,3: F3 F0 F1 F2 F0.1 B0.1 B0 F1.1 B1.1 F2.1 B1 B2.1 B2 F3.1 I3.1 W3.1 B3\n";
      const auto schedules = chunks > 1 ? std::vector<std::string>{"interleaved", "zb-v", "dualpipe-v", own}
                                        : std::vector<std::string>{"gpipe",      "1f1b", "zb-h1", "zb-h2",
                                                                   "credits(2)", "auto", table};
      for (const std::string& schedule : schedules) {
        INFO(rows << " rows, " << schedule);
        Pipeline pipeline(f.cluster->here(), f.stages(),
                          {.schedule = schedule, .micro_batches = 4, .chunks = chunks});
        std::vector<Tensors> grads;
        CHECK(f.step(pipeline, x, y, &grads) == Approx(loss).epsilon(1e-5));
        compare(grads, whole);
        Tensors outputs;
        for (const Value& v : pipeline.forward(Value(x))) outputs.push_back(*v.get_if<Tensor>());
        CHECK(std::ssize(outputs) == rows);
        CHECK(difference(ops::cat(outputs, 0), expected, 1e-5, 1e-6) == "");
        const Tensor big = wave({8, kWidth}, 3);  // whole batches as before
        autograd::Context context(*f.cluster);
        CHECK(pipeline.step(Value(big), Value(big)).losses.size() == 4);
      }
    }
  }
}

TEST_CASE("forward alone gives the outputs and records nothing") {
  const Tensor x = wave({5, kWidth}, 1);
  WholeModel whole(4);
  const Tensor expected = whole.forward(x).detach();
  Fixture f(4);
  for (const auto& [schedule, chunks] : {std::pair("1f1b", 1), {"interleaved", 2}, {"zb-v", 2}}) {
    Pipeline pipeline(f.cluster->here(), f.stages(),
                      {.schedule = schedule, .micro_batches = 2, .chunks = chunks});
    Tensors outputs;
    for (const Value& v : pipeline.forward(Value(x))) outputs.push_back(*v.get_if<Tensor>());
    CHECK(difference(ops::cat(outputs, 0), expected, 1e-5, 1e-6) == "");
  }
  nothing_left(*f.cluster);
}

TEST_CASE("micro-batches may be of any shapes, and inputs and outputs of any nesting") {
  Fixture f(2);
  const auto first = stage<&Block::both>(f.blocks[0]),
             second = stage<&Block::added>(f.blocks[1]).with_loss<&Block::loss>();
  Pipeline pipeline(f.cluster->here(), {first, second}, {.schedule = "zb-h1", .micro_batches = 2});
  const Tensor a = wave({3, kWidth}, 1), b = wave({2, 4, kWidth}, 2);
  Dense one(0), two(1);
  const Tensor la = mse_loss(two(add(one(a), a)), a), lb = mse_loss(two(add(one(b), b)), b);
  autograd::Context context(*f.cluster);
  const StepResult result = pipeline.step(std::vector<Value>{Value(a), Value(b)},
                                          std::vector<Value>{Value(a), Value(b)}, {.weights = {1, 3}});
  CHECK(result.losses.at(0) == Approx(la.item()).epsilon(1e-5));
  CHECK(result.losses.at(1) == Approx(lb.item()).epsilon(1e-5));
  CHECK(result.loss == Approx(0.25 * la.item() + 0.75 * lb.item()).epsilon(1e-5));
}

TEST_CASE("inputs are delivered to the stage that takes them") {
  const Tensor x = wave({5, kWidth}, 1), y = wave({5, kWidth}, 2), z = wave({5, kWidth}, 3);
  Fixture f(3);
  std::vector<Stage> stages = f.stages();
  stages[1] = stage<&Block::added>(f.blocks[1]);
  Pipeline pipeline(f.cluster->here(), stages, {.micro_batches = 2});
  Dense one(0), two(1), three(2);
  const double loss = mse_loss(three(two(add(one(x), z))), y).item();
  autograd::Context context(*f.cluster);
  CHECK(pipeline.step(Value(x), Value(y), {.inputs = {{1, Value(z)}}}).loss == Approx(loss).epsilon(1e-5));
}

TEST_CASE("a stage that throws is named with its micro-batch, and the next step works") {
  const Tensor x = wave({8, kWidth}, 1), y = wave({8, kWidth}, 2);
  WholeModel whole(3);
  const double loss = whole.backward(x, y);
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h2", "credits(2)"}) {
    INFO(schedule);
    Fixture f(3);
    std::vector<Stage> stages = f.stages();
    stages[1] = stage<&Block::fails>(f.blocks[1]);
    Pipeline pipeline(f.cluster->here(), stages, {.schedule = schedule, .micro_batches = 8});
    f.blocks[1].call<&Block::fail_in>(6).get();
    {
      autograd::Context context(*f.cluster);
      const Error e = error_of([&] { pipeline.step(Value(x), Value(y)); });
      CHECK(e.kind() == ErrorKind::failed);
      CHECK(std::string(e.what()).find("out of paper") != std::string::npos);
      CHECK(std::string(e.what()).find("forward of micro-batch 5 in stage 1") != std::string::npos);
    }
    std::vector<Tensors> grads;
    CHECK(f.step(pipeline, x, y, &grads) == Approx(loss).epsilon(1e-5));
    compare(grads, whole);
    nothing_left(*f.cluster);
  }
}

TEST_CASE("a loss that is no number stops the step") {
  const Tensor x = wave({4, kWidth}, 1), y = wave({4, kWidth}, 2);
  Fixture f(2);
  std::vector<Stage> stages = f.stages(false);
  stages[1] = stages[1].with_loss<&Block::nan_loss>();
  Pipeline pipeline(f.cluster->here(), stages, {});
  autograd::Context context(*f.cluster);
  const std::string text = error_of([&] { pipeline.step(Value(x), Value(y)); }).what();
  CHECK(text.find("the loss is nan") != std::string::npos);
  CHECK(text.find("micro-batch 0 in stage 1") != std::string::npos);
}

TEST_CASE("a coroutine may be a stage, but not one that is run again") {
  const Tensor x = wave({4, kWidth}, 1), y = wave({4, kWidth}, 2);
  WholeModel whole(2);
  const double loss = whole.backward(x, y);
  Fixture f(2);
  std::vector<Stage> stages = f.stages();
  stages[0] = stage<&Block::waits>(f.blocks[0]);
  Pipeline pipeline(f.cluster->here(), stages, {.micro_batches = 2});
  std::vector<Tensors> grads;
  CHECK(f.step(pipeline, x, y, &grads) == Approx(loss).epsilon(1e-5));
  compare(grads, whole);

  stages[0] = stage<&Block::never>(f.blocks[0]);
  Pipeline again(f.cluster->here(), stages, {.micro_batches = 2, .checkpoint = Checkpoint::always});
  autograd::Context context(*f.cluster);
  const Error e = error_of([&] { again.step(Value(x), Value(y)); });
  CHECK(e.kind() == ErrorKind::unimplemented);
  CHECK(e.message().find("never waits for something: a coroutine cannot be run again") != std::string::npos);
}

TEST_CASE("a stage may call other actors, whose parameters get their gradients too") {
  const Tensor x = wave({6, kWidth}, 1), y = wave({6, kWidth}, 2);
  // Blocks 0, 2 and 3 are stages; 2 asks 1.
  WholeModel whole(4);
  const Tensor h = (*whole.layers[0])(x);
  const Tensor loss = mse_loss((*whole.layers[3])((*whole.layers[2])(add(h, (*whole.layers[1])(h)))), y);
  autograd::backward(loss);
  for (const std::string schedule : {"1f1b", "zb-h1"}) {
    INFO(schedule);
    Fixture f(4);
    f.blocks[2].call<&Block::ask>(f.blocks[1]).get();
    Pipeline pipeline(f.cluster->here(),
                      {stage<&Block::forward>(f.blocks[0]), stage<&Block::asks>(f.blocks[2]),
                       stage<&Block::forward>(f.blocks[3]).with_loss<&Block::loss>()},
                      {.schedule = schedule, .micro_batches = 3});
    std::vector<Tensors> grads;
    CHECK(f.step(pipeline, x, y, &grads) == Approx(loss.item()).epsilon(1e-5));
    compare(grads, whole);
    nothing_left(*f.cluster);
  }
}

TEST_CASE("what cannot be a pipeline, or a step, is refused") {
  Fixture f(2);
  const Here here = f.cluster->here();
  const auto text = [&](std::vector<Stage> stages, PipelineOptions options) {
    return invalid_text([&] { Pipeline pipeline(here, std::move(stages), std::move(options)); });
  };
  CHECK(text({}, {}) == "[pipeline] there are no stages");
  CHECK(text(f.stages(), {.chunks = 3}) == "[pipeline] 2 stages cannot be 3 chunks for each worker");
  CHECK(text({f.stages()[0], Stage{}}, {}) == "[pipeline] stage 1 is an empty reference");
  CHECK(text({f.stages()[1], f.stages()[0]}, {}) ==
        "[pipeline] stage 0 has a loss: only the last one, 1, may");
  CHECK(text(f.stages(), {.micro_batches = 0}).find("0 micro-batches") != std::string::npos);
  CHECK(text(f.stages(), {.schedule = "1f2b"}).find("did you mean \"1f1b\"") != std::string::npos);
  CHECK(text(f.stages(), {.schedule = "w0: F0 B0\nw1: F0", .micro_batches = 1}) ==
        "[schedule] custom: B0 is missing in the row of w1");
  CHECK(text(f.stages(), {.loss = [](const Value&, const Value&) { return Tensor(); }})
            .find("give one of them") != std::string::npos);

  const Tensor x = wave({3, kWidth}, 1);
  Pipeline pipeline(here, f.stages(), {.micro_batches = 4}),
      no_loss(here, f.stages(false), {.micro_batches = 2});
  const auto step = [&](Pipeline& p, const Value& a, const Value& b, const StepOptions& o = {}) {
    return invalid_text([&] { p.step(a, b, o); });
  };
  CHECK(step(pipeline, Value(zeros({0, kWidth})), Value(x)) == "[pipeline] the batch has no rows");
  CHECK(step(pipeline, Value(wave({4, kWidth}, 1)), Value(x)) ==
        "[pipeline] the batch has 4 rows and the targets have 3: expected a target for each row");
  CHECK(step(pipeline, Value(wave({6, kWidth}, 1)), Value(wave({12, kWidth}, 1))) ==
        "[pipeline] the batch has 6 rows and the targets have 12: expected a target for each row");
  const Tensor big = wave({8, kWidth}, 1);
  CHECK(step(pipeline, Value(big), Value(big)).find("none is alive here") != std::string::npos);
  autograd::Context context(*f.cluster);
  CHECK(step(no_loss, Value(big), Value(big)).find("there is no loss") != std::string::npos);
  CHECK(step(pipeline, Value(int64_t{7}), Value(big)).find("no tensor that could be cut") !=
        std::string::npos);
  CHECK(step(pipeline, Value(big), Value(big), {.weights = {1, 1}}) ==
        "[pipeline] 2 weights for 4 micro-batches");
  CHECK(step(pipeline, Value(x), Value(x), {.weights = {1, 1, 1, 1}}) ==
        "[pipeline] 4 weights for 3 micro-batches");
  CHECK(step(pipeline, Value(big), Value(big), {.weights = {1, -1, 2, 2}}) ==
        "[pipeline] micro-batch 1 has a weight of -1; expected 0 or more");
  CHECK(step(pipeline, Value(x), Value(x), {.inputs = {{1, Value(slice(x, 0, 0, 2))}}}) ==
        "[pipeline] an input: 2 rows, fewer than the 3 micro-batches");
  CHECK(step(pipeline, Value(big), Value(big), {.weights = {0, 0, 0, 0}}).find("add up to 0") !=
        std::string::npos);
  CHECK(step(pipeline, Value(big), Value(big), {.inputs = {{5, Value(big)}}}).find("there are 2 stages") !=
        std::string::npos);
  // A stage that gives another number of outputs than the next takes.
  std::vector<Stage> wrong = f.stages();
  wrong[1] = stage<&Block::added>(f.blocks[1]).with_loss<&Block::loss>();
  Pipeline mismatch(here, wrong, {.micro_batches = 2});
  const std::string said = error_of([&] { mismatch.step(Value(big), Value(big)); }).what();
  CHECK(said.find("added of stage 1 takes 2 arguments") != std::string::npos);
  CHECK(said.find("stage 0, which gave tensor float32 [4, 6]") != std::string::npos);
}

TEST_CASE("the report of a step says what ran, and how many micro-batches were alive") {
  const int p = 3, m = 6;
  const Tensor x = wave({m, kWidth}, 1);
  Fixture f(p);
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2", "credits(2)", "credits(5)"}) {
    INFO(schedule);
    Pipeline pipeline(f.cluster->here(), f.stages(), {.schedule = schedule, .micro_batches = m});
    autograd::Context context(*f.cluster);
    pipeline.step(Value(x), Value(x));
    const StepReport report = pipeline.step_report();
    const Policy policy = pipeline.policy(m);
    CHECK(report.schedule == schedule);
    if (const auto* table = std::get_if<Schedule>(&policy)) {
      CHECK(report.peak_live == simulate(policy).peak_live);
      std::vector<Actions> ran(p);
      for (const auto& e : report.events) ran.at(static_cast<size_t>(e.worker)).push_back(e.action);
      CHECK(ran == table->rows);
    } else {
      for (const int live : report.peak_live) CHECK(live <= std::get<Credits>(policy).of_worker[0]);
      CHECK(report.events.size() == size_t(3 * p * m));
    }
    CHECK(report.messages.size() == size_t(2 * (p - 1) * m));
    for (const auto& message : report.messages) CHECK(message.arrived >= message.sent);
    for (const auto& e : report.events) CHECK(e.end >= e.begin);
    CHECK(report.bubble() > 0);
    CHECK(report.bubble() < 1);
    CHECK(report.exposed_communication() >= 0);
    CHECK(report.exposed_communication() <= report.bubble() + 1e-9);
  }
}

TEST_CASE("waiting counts once where several messages are on their way") {
  const auto on_its_way = [](int64_t sent, int64_t arrived) {
    Came came;
    came.sent = sent, came.arrived = arrived;
    return came;
  };
  CHECK(waited_for({}, 5) == 0);
  CHECK(waited_for({on_its_way(7, 9)}, 5) == 2);
  CHECK(waited_for({on_its_way(3, 9)}, 5) == 4);
  CHECK(waited_for({on_its_way(3, 9), on_its_way(4, 9), on_its_way(6, 10)}, 5) == 4);
  CHECK(waited_for({on_its_way(8, 9), on_its_way(6, 12)}, 5) == 3);
  CHECK(waited_for({on_its_way(1, 4)}, 5) == 0);
}

TEST_CASE("hooks that wait for gradients run once for each step, with the sum over its micro-batches") {
  struct Said {
    std::mutex mutex;
    std::vector<std::pair<size_t, double>> all;
  };
  const Tensor x = wave({8, kWidth}, 1), y = wave({8, kWidth}, 2);
  WholeModel whole(2);
  whole.backward(x, y);
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2", "credits(3)"}) {
    INFO(schedule);
    Fixture f(2, 1);  // all on the driver's worker, whose actors local() reaches
    Said said;
    std::vector<autograd::WatchHandle> hooks(1);
    f.blocks[0]
        .local([&](Block& b) {
          hooks[0] = autograd::register_ready_hook(b.parameters(), [&](size_t i, const Tensor& grad) {
            std::lock_guard lock(said.mutex);
            said.all.emplace_back(i, ops::sum(grad).item());
          });
        })
        .get();
    Pipeline pipeline(f.cluster->here(), f.stages(), {.schedule = schedule, .micro_batches = 4});
    autograd::Context context(*f.cluster);
    pipeline.step(Value(x), Value(y));
    REQUIRE(said.all.size() == 2);
    const auto params = whole.layers[0]->parameters();
    for (const auto& [i, total] : said.all)
      CHECK(total == Approx(ops::sum(params[i].grad()).item()).margin(1e-5));
    hooks.clear();
  }
}

TEST_CASE("kept hooks run once a piece on what a stage receives, and once a step on its parameters") {
  const Tensor x = wave({8, kWidth}, 1), y = wave({8, kWidth}, 2);
  WholeModel whole(2);
  whole.backward(x, y);
  const auto check = [&](const Fixture<>& f, const std::vector<Tensors>& grads, int64_t pieces) {
    const auto& [first, last] = std::pair(whole.layers[0]->linear, whole.layers[1]->linear);
    CHECK(difference(grads[0][0], mul(first.bias.grad(), 0.5), 1e-4, 1e-5) == "");
    CHECK(difference(grads[0][1], mul(first.weight.grad(), 0.5), 1e-4, 1e-5) == "");
    CHECK(difference(grads[1][0], last.bias.grad(), 1e-4, 1e-5) == "");
    CHECK(difference(grads[1][1], mul(last.weight.grad(), 0.5), 1e-4, 1e-5) == "");
    CHECK(f.blocks[1].call<&Block::times>().get() == std::vector<int64_t>{pieces, 1});
  };
  {
    INFO("in plain calls");
    Fixture f(2);
    f.blocks[1].call<&Block::hook_weight>().get();
    optim::Distributed<optim::SGD> sgd({f.blocks[0], f.blocks[1]}, {.lr = 1});
    std::vector<std::map<std::string, Tensor>> before;
    for (const auto& b : f.blocks) before.push_back(nn::remote_state_dict(b).get());
    autograd::Context context(*f.cluster);
    const Tensor out = f.blocks[1].call<&Block::hooked>(f.blocks[0].call<&Block::forward>(x)).get();
    context.backward(mse_loss(out, y));
    sgd.step(context);
    std::vector<Tensors> grads;
    for (size_t i = 0; i < 2; ++i) {
      const auto after = nn::remote_state_dict(f.blocks[i]).get();
      grads.emplace_back();
      for (const auto& [name, value] : before[i]) grads.back().push_back(sub(value, after.at(name)));
    }
    check(f, grads, 1);
  }
  Fixture f(2);
  f.blocks[1].call<&Block::hook_weight>().get();
  std::vector<Stage> stages = f.stages();
  stages[1] = stage<&Block::hooked>(f.blocks[1]).with_loss<&Block::loss>();
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2", "credits(3)"})
    for (const Checkpoint checkpoint : {Checkpoint::never, Checkpoint::except_last, Checkpoint::always}) {
      INFO(schedule << ", checkpoint " << int(checkpoint));
      Pipeline pipeline(f.cluster->here(), stages,
                        {.schedule = schedule, .micro_batches = 4, .checkpoint = checkpoint});
      std::vector<Tensors> grads;
      f.step(pipeline, x, y, &grads);
      check(f, grads, 4);
    }
}

TEST_CASE("a batch is cut into parts as even as can be, without copies") {
  const Tensor x = wave({7, 2}, 1);
  const auto parts = split_batch(Value(ValueList{Value(x), Value(int64_t{3})}), 3, "the batch");
  REQUIRE(parts.size() == 3);
  std::vector<int64_t> rows;
  Tensors all;
  for (const Value& part : parts) {
    const auto& list = *part.get_if<ValueList>();
    all.push_back(*list[0].get_if<Tensor>());
    rows.push_back(all.back().size(0));
    CHECK(all.back().storage() == x.storage());
    CHECK(*list[1].get_if<int64_t>() == 3);
  }
  CHECK(rows == std::vector<int64_t>{3, 2, 2});
  CHECK(bit_equal(ops::cat(all, 0), x));
}
