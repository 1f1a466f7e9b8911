// Reader of trajectories.json and maker of the data that it was computed on.
#include "tests/support/trajectory.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "core/base/error.h"
#include "core/base/generator.h"
#include "core/tensor/creation.h"
#include "data/datasets/idx.h"
#include "data/datasets/text.h"
#include "nn/init.h"
#include "tests/support/options.h"
#include "tests/support/oracle.h"
#include "tests/support/skip.h"

namespace troupe::testing {
namespace {

constexpr int kBatch = 64, kPixels = 784;
constexpr int64_t kSequences = 8, kContext = 64;

double unit(uint64_t i) { return static_cast<double>(splitmix64(i) >> 11) * 0x1p-53; }

// Sparse noise; the label is the brightest of ten bands of 78 pixels.
std::pair<Tensor, Tensor> generated(int step) {
  const Tensor x = empty({kBatch, kPixels}), y = empty({kBatch}, int64);
  for (int n = 0; n < kBatch; ++n) {
    double bands[11] = {};
    for (int k = 0; k < kPixels; ++k) {
      const double u = unit(static_cast<uint64_t>(kPixels) * static_cast<uint64_t>(step * kBatch + n) + k);
      const double pixel = u > 0.8 ? u : 0;
      x.data<float>()[n * kPixels + k] = static_cast<float>(pixel);
      bands[k / 78] += pixel;
    }
    y.data<int64_t>()[n] = std::max_element(bands, bands + 10) - bands;
  }
  return {x, y};
}

// The t10k files in file order.
std::pair<Tensor, Tensor> mnist(int step) {
  static const std::string folder = std::getenv("TROUPE_DATA");
  const auto path = [&](const std::string& name) {
    const std::string plain = folder + "/" + name;
    return std::filesystem::exists(plain) ? plain : plain + ".gz";
  };
  static const Tensor images = datasets::images(path("t10k-images-idx3-ubyte"));
  static const Tensor labels = datasets::labels(path("t10k-labels-idx1-ubyte"));
  const int64_t from = static_cast<int64_t>(step) * kBatch;
  return {images.alias({kBatch, kPixels}, {kPixels, 1}, from * kPixels), labels.alias({kBatch}, {1}, from)};
}

constexpr int64_t kMostSteps = 1000;

// Each token is a noisy function of the one before.
Tensor generated_tokens() {
  std::vector<int64_t> ids{0};
  for (uint64_t i = 0; i < kMostSteps * kSequences * kContext; ++i)
    ids.push_back((5 * ids.back() + 3 + static_cast<int64_t>(splitmix64(i) >> 62)) % 65);
  return tensor(ids);
}

Tensor shakespeare() {
  return datasets::read_text(std::string(std::getenv("TROUPE_DATA")) + "/tinyshakespeare.txt").ids;
}

// Sequence j of step s starts at token (8 s + j) 64.
std::pair<Tensor, Tensor> sequences(const Tensor& tokens, int step) {
  const auto [x, y] = datasets::rows(datasets::windows(tokens, kContext), kSequences * step, kSequences);
  return {x.clone_data(), y.clone_data()};
}

std::pair<Tensor, Tensor> transformer_batch(const std::string& data, int step) {
  if (data == "shakespeare") {
    static const Tensor tokens = shakespeare();
    return sequences(tokens, step);
  }
  static const Tensor tokens = generated_tokens();
  return sequences(tokens, step);
}

}  // namespace

std::string Run::str() const {
  std::string text = model + " on " + data + " with " + optimizer;
  for (const auto& [name, value] : options) {
    char number[32];
    std::snprintf(number, sizeof number, "%g", *value.get_if<double>());
    text += " " + name + " " + number;
  }
  return text;
}

namespace {

// The file's name of a block's part, and ours.
std::string name_here(std::string name) {
  static const std::map<std::string, std::string> ours{{".qkv.", ".self_attn.in_proj_"},
                                                       {".proj.", ".self_attn.out_proj."},
                                                       {".up.", ".linear1."},
                                                       {".down.", ".linear2."}};
  for (const auto& [there, here] : ours)
    if (const size_t at = name.find(there); at != std::string::npos)
      return name.replace(at, there.size(), here);
  return name;
}

std::vector<Run> runs_of(const std::string& model, const std::string& data,
                         const std::string& name = "trajectories.json") {
  std::vector<Run> runs;
  const auto file = read_oracle(name);
  for (const auto& json : file.at("runs")) {
    if (json.at("model") != model || json.at("data") != data) continue;
    Run run{json.at("model"),
            json.at("data"),
            json.at("optimizer"),
            to_options(json.at("options")),
            {},
            json.at("losses").get<std::vector<double>>(),
            json.at("losses64").get<std::vector<double>>(),
            json.value("capacity", 0.0)};
    for (const auto& p : json.at("parameters")) {
      const auto dims = p.at("shape").get<std::vector<int64_t>>();
      Param param{name_here(p.at("name")), Shape(std::span<const int64_t>(dims)), {}, 0};
      if (p.contains("scale"))
        param.scale = p.at("scale").get<double>();
      else
        param.fill = p.at("fill").get<double>();
      run.parameters.push_back(std::move(param));
    }
    runs.push_back(std::move(run));
  }
  if (runs.empty()) throw_invalid("[trajectory] no " + model + " on " + data);
  return runs;
}

}  // namespace

std::vector<Run> mlp_runs(const std::string& data) { return runs_of("mlp", data); }
std::vector<Run> transformer_runs(const std::string& data) { return runs_of("transformer", data); }

std::vector<Run> mixture_runs() { return runs_of("mixture", "generated", "mixture.json"); }

bool has_data(const std::string& data) {
  if (data == "generated" || std::getenv("TROUPE_DATA")) return true;
  skip_test("TROUPE_DATA does not name a folder with " + data);
  return false;
}

Tensor initial(const Param& param, int index) {
  const Tensor t = full(param.shape, param.fill, float32);
  if (param.scale) nn::init::splitmix_(t, static_cast<uint64_t>(index), *param.scale);
  return t;
}

std::pair<Tensor, Tensor> batch(const Run& run, int step) {
  const bool generated_data = run.data == "generated";
  if (run.model == "mixture") return transformer_batch(run.data, step);
  if (run.model == "transformer" && (generated_data || run.data == "shakespeare"))
    return transformer_batch(run.data, step);
  if (run.model == "mlp" && generated_data) return generated(step);
  if (run.model == "mlp" && run.data == "mnist") return mnist(step);
  throw_invalid("[trajectory] no data for " + run.model + " called " + run.data);
}

const std::vector<double>& recorded(const Run& run, DType dtype) {
  return dtype == float64 ? run.losses64 : run.losses;
}

double tolerance(const Run& run, DType dtype) {
  if (dtype == float64) return 1e-9;
  return run.data == "mnist" ? 2e-3 : 1e-4;
}

std::pair<double, int> farthest(const Run& run, const std::vector<double>& losses, DType dtype) {
  std::pair<double, int> worst{-1, 0};
  for (size_t step = 0; step < losses.size(); ++step) {
    const double distance = std::abs(losses[step] - recorded(run, dtype).at(step));
    if (!(distance <= worst.first)) worst = {distance, static_cast<int>(step)};
    if (std::isnan(distance)) break;
  }
  return worst;
}

}  // namespace troupe::testing
