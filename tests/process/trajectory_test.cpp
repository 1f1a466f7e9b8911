// Training split over actors gives the bits of the whole model, in memory and over processes, and follows
// PyTorch.
#include "autograd/engine.h"
#include "tests/process/launcher.h"
#include "tests/process/programs/split_mlp.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

using Lines = std::vector<std::string>;

Lines in_memory(const Run& run, int steps) {
  Lines lines;
  const auto cluster = Cluster::in_process(3, hosting<Stage>());
  train_split(*cluster, run, steps, [&](const std::string& line) { lines.push_back(line); });
  return lines;
}

Lines over_processes(const std::string& data, size_t index, int steps) {
  Launcher job({"-n", "3", program("trajectory_worker"), "--data", data, "--run", std::to_string(index),
                "--steps", std::to_string(steps)});
  const int code = job.exit_code();
  INFO(job.output << job.errors);
  REQUIRE(code == 0);
  CHECK(job.errors == "");
  CHECK(job.nothing_left());
  return job.lines("");
}

// The same lines from one model in one thread, without any actor.
Lines whole(const Run& run, int steps) {
  Lines lines;
  const Say say = [&](const std::string& line) { lines.push_back(line); };
  std::vector<nn::Linear> layers;
  Tensors parameters;
  for (size_t i = 0; i < 3; ++i) {
    const auto &weight = run.parameters[2 * i], &bias = run.parameters[2 * i + 1];
    nn::Linear& layer = layers.emplace_back(weight.shape[1], weight.shape[0]);
    layer.load_state_dict({{"weight", initial(weight, static_cast<int>(2 * i))},
                           {"bias", initial(bias, static_cast<int>(2 * i + 1))}});
    parameters.push_back(layer.weight), parameters.push_back(layer.bias);
  }
  const auto optimizer = optim::make(run.optimizer, run.options, parameters);
  for (int step = 0; step < steps; ++step) {
    const auto [x, y] = batch(run, step);
    optimizer->zero_grad();
    const Tensor loss = ops::cross_entropy(layers[2](ops::relu(layers[1](ops::relu(layers[0](x))))), y);
    say(loss_line(step, loss.item()));
    autograd::backward(loss);
    if (step == 0) {
      Tensors grads;
      for (const Tensor& p : parameters) grads.push_back(p.grad());
      say_tensors(say, "gradient", run, grads);
    }
    optimizer->step();
  }
  Tensors values;
  for (const Tensor& p : parameters) values.push_back(p.detach());
  say_tensors(say, "parameter", run, values);
  return lines;
}

std::vector<double> losses_of(const Lines& lines) {
  std::vector<double> losses;
  for (const auto& line : lines)
    if (line.starts_with("loss ")) losses.push_back(std::strtod(line.c_str() + line.rfind(' '), nullptr));
  return losses;
}

void one_step(const std::string& data, size_t count) {
  const auto runs = mlp_runs(data);
  REQUIRE(runs.size() == count);
  for (size_t i = 0; i < count; ++i) {
    INFO(runs[i].str());
    const Lines expected = whole(runs[i], 1);
    REQUIRE(expected.size() == 13);  // one loss, six gradients, six parameters
    CHECK(in_memory(runs[i], 1) == expected);
    CHECK(over_processes(data, i, 1) == expected);
  }
}

void whole_runs(const std::string& data, size_t count) {
  const auto runs = mlp_runs(data);
  REQUIRE(runs.size() == count);
  for (size_t i = 0; i < count; ++i) {
    INFO(runs[i].str());
    const int steps = static_cast<int>(runs[i].losses.size());
    REQUIRE(steps == 120);
    const Lines lines = over_processes(data, i, steps);
    CHECK(lines == in_memory(runs[i], steps));
    CHECK(lines == whole(runs[i], steps));
    const auto losses = losses_of(lines);
    REQUIRE(losses.size() == runs[i].losses.size());
    const auto [distance, step] = farthest(runs[i], losses);
    INFO("largest difference at step " << step);
    CHECK(distance <= tolerance(runs[i], float32));
  }
}

}  // namespace

TEST_CASE(
    "one step over three workers gives the loss, gradients and parameters of the whole model, bit for bit",
    "[process][trajectory]") {
  one_step("generated", 2);
}

TEST_CASE("one step on mnist over three workers gives the bits of the whole model", "[process][trajectory]") {
  if (!has_data("mnist")) return;
  one_step("mnist", 3);
}

TEST_CASE(
    "a run over three processes has the bits of the run in memory and of the whole model, and follows "
    "PyTorch",
    "[process][trajectory][oracle]") {
  whole_runs("generated", 2);
}

TEST_CASE("a run on mnist over three processes has the bits of the whole model, and follows PyTorch",
          "[process][trajectory][oracle]") {
  if (!has_data("mnist")) return;
  whole_runs("mnist", 3);
}
