// A transformer learns a text file character by character, in stages over the workers: alone, or with
// `troupe run -n 3 char_pipeline FILE`; as `troupe plan` says, in replicas of them, too. The first stage's
// embedding is the last one's matrix.
#include <troupe/data.h>
#include <troupe/layout.h>
#include <troupe/pipeline.h>
#include <troupe/plan.h>
#include <troupe/tools/draw/timeline.h>
#include <troupe/tools/program.h>
#include <troupe/troupe.h>
using namespace troupe;

struct Sizes {
  int64_t vocabulary, width, blocks, context, heads = 4;
};

// The whole model: its embedding, its blocks, and the norm and the matrix behind them.
ValueList layers_of(const Sizes& s) {
  ValueList layers{nn::spec_of("embedding", {s.vocabulary, s.width})};
  for (int64_t b = 0; b < s.blocks; ++b)
    layers.push_back(nn::spec_of("transformer_encoder_layer", {},
                                 {{"width", s.width},
                                  {"heads", s.heads},
                                  {"dim_feedforward", 4 * s.width},
                                  {"dropout", 0.0},
                                  {"activation", std::string("gelu")},
                                  {"norm_first", true},
                                  {"causal", true}}));
  layers.push_back(ValueList{nn::spec_of("layer_norm", {s.width}),
                             nn::spec_of("linear", {s.width, s.vocabulary}, {{"bias", false}})});
  return layers;
}

struct Blocks : nn::Layer {  // layers [begin, end): ids or activations in, activations or logits out
  Blocks(const Sizes& sizes, size_t begin, size_t end)
      : first(begin == 0),
        last(end == layers_of(sizes).size()),
        tokens(sizes.vocabulary, sizes.width),
        positions(sizes.context, sizes.width),
        norm(sizes.width) {
    const ValueList layers = layers_of(sizes);
    for (size_t i = begin + first; i < end - last; ++i) blocks.add(nn::make(layers[i]));
    Generator random(first ? 0 : begin - 1);
    reset(random);
    // Small, since the matrix also ends the model; both, or the positions drown the characters.
    for (const Tensor& table : {tokens.weight, positions.weight}) table.detach().mul_(0.1);
  }
  Tensor forward(const Tensor& in) override {
    const Tensor x = blocks(first ? tokens(in) + positions.weight.slice(0, 0, in.size(1)) : in);
    return last ? matmul(norm(x), transpose(tokens.weight, 0, 1)) : x;
  }
  void members(nn::Members& m) override {
    first || last ? m("tokens", tokens) : m.without(tokens);
    first ? m("positions", positions) : m.without(positions);
    m("blocks", blocks);
    last ? m("norm", norm) : m.without(norm);
  }
  bool first, last;
  nn::Embedding tokens, positions;
  nn::Sequential blocks;
  nn::LayerNorm norm;
};

struct Part : nn::ModuleActor<Blocks> {
  using ModuleActor::ModuleActor;
  Tensor forward(Tensor x) { return net(x); }
  Tensor loss(Tensor logits, Tensor next) { return cross_entropy(logits.flatten(0, 1), next.flatten()); }
  static constexpr auto remote = methods<&Part::forward, &Part::loss>;
};

int main(int argc, char** argv) {
  tools::Flags flags("char_pipeline", "Trains a small transformer on a UTF-8 text file, as a pipeline.");
  auto& steps = flags.whole("--steps", 500, "training steps", {1, 1e7});
  auto& batch = flags.whole("--batch", 16, "sequences per step", {1, 1e5});
  auto& micro_batches = flags.whole("--micro-batches", 4, "that a batch is cut into", {1, 1e4});
  auto& plans = flags.layouts();
  auto& context = flags.whole("--context", 64, "characters that it sees", {1, 65536});
  auto& width = flags.whole("--width", 64, "of the model", {1, 65536});
  auto& blocks = flags.whole("--blocks", 4, "of the transformer", {1, 1000});
  auto& lr = flags.number("--lr", 3e-3, "highest learning rate; a warm-up, then a cosine to zero", {0, 100});
  auto& seed = flags.seed("of the windows");
  auto& picture = flags.picture("--chart", "char_pipeline.svg", "picture of the loss (SVG)");
  auto& timeline = flags.picture("--timeline", "char_pipeline_step.svg", "picture of the last step (SVG)");
  auto& file = flags.file("FILE", "the text");
  auto& saved = flags.checkpoints();
  if (auto code = flags.reaches("perplexity <= 11", "on 1 MB of English").parse(argc, argv)) return *code;

  const auto train = [&](Cluster& cluster) {
    flags.check_outputs();
    const datasets::Text text = datasets::read_text(file);
    const Sizes sizes{text.vocabulary.size(), width, blocks, context};
    Generator random(seed);
    const auto windows = [&] { return datasets::random_windows(text.ids, context, batch, random); };
    if (!plans.measure.empty()) {
      parallel::ModelProfile profile = parallel::measure(cluster.here(), layers_of(sizes), windows().x);
      profile.cuts_layers = false;  // Stages have whole layers.
      parallel::write_profile(profile, plans.measure);
      return void(std::printf("%s: %zu layers on %zu workers\n", plans.measure.c_str(), profile.layers.size(),
                              profile.workers.size()));
    }

    auto layout = plans.layout.empty() ? parallel::Layout() : parallel::read_layout(plans.layout);
    parallel::PipelineOptions options{.micro_batches = static_cast<int>(micro_batches)};
    std::vector<MeshDim> dims;
    std::vector<Place> places;
    const bool on_mesh = layout.has("mesh");
    if (on_mesh) {
      const Mesh mesh = layout.mesh(cluster.here());
      layout.check_dims({"dp", "pp"});
      dims = mesh.dims(), options = layout.pipelines(mesh, options);
      for (const WorkerId w : parallel::workers_of(mesh)) places.emplace_back(w);
    } else {  // one pipeline, on all workers but the driver's, unless the file says otherwise
      auto names = cluster.workers();
      if (names.size() > 1) names.erase(names.begin());
      names = layout.stages(names);
      dims = {{"pp", names.size()}}, options = layout.pipeline(names.size(), options);
      places.assign(names.begin(), names.end());
    }
    const MeshPoints points(dims);
    const auto count = static_cast<int64_t>(points.size("pp"));
    auto cuts = layout.cuts(points.size("pp"));
    layout.check_all_read();
    if (cuts.empty() && count > sizes.blocks)
      throw_invalid("more stages than blocks: give more --blocks, or fewer workers");
    for (int64_t s = 1; std::ssize(cuts) < count - 1; ++s)
      cuts.push_back(static_cast<size_t>(1 + s * sizes.blocks / count));
    if (!plans.check.empty() && (!on_mesh || layout.has("workers")))
      throw_invalid(
          "[char_pipeline] --check is about a \"mesh\" of all workers, as `troupe plan` writes it: "
          "give its file by --layout");

    const auto at = parallel::borders(layers_of(sizes).size(), cuts);
    std::vector<parallel::Stage> stages;
    for (size_t p = 0; p < places.size(); ++p) {
      const size_t s = points.coordinate(p, "pp");
      stages.push_back(
          parallel::stage<&Part::forward>(cluster.spawn<Part>(places[p], sizes, at[s], at[s + 1])));
    }
    stages.back() = stages.back().with_loss<&Part::loss>();
    const auto parts = parallel::actors_of(stages);
    if (count > 1) options.tied = {{{0, "tokens.weight"}, {static_cast<int>(count) - 1, "tokens.weight"}}};
    std::optional<parallel::Pipeline> one;
    std::optional<parallel::Pipelines> replicas;
    if (on_mesh)
      replicas.emplace(cluster.here(), points, parts, stages.back(), options, parallel::PipelinesDims());
    else
      one.emplace(cluster.here(), stages, options);
    const parallel::Pipeline& pipeline = on_mesh ? replicas->pipeline(0) : *one;
    optim::Distributed<optim::AdamW> optimizer(parts, {.lr = lr});
    optim::Scheduler rate(optimizer, optim::warm_up(std::max<int64_t>(1, steps / 20), optim::cosine(steps)));
    const auto train_step = [&] {
      const auto [x, y] = windows();
      autograd::Context gradients(cluster);
      const double loss = (on_mesh ? replicas->step(Value(x), Value(y)) : one->step(Value(x), Value(y))).loss;
      optimizer.clip_grad_norm(gradients, 1.0), optimizer.step(gradients);
      return loss;
    };
    if (!plans.check.empty()) {
      const Tensor x = windows().x;
      const auto profile = parallel::read_profile_of(layers_of(sizes), x, plans.check);
      const auto planned = parallel::planned(dims, options, cuts, batch);
      const auto checked =
          parallel::check_plan(cluster.here(), profile, planned, layers_of(sizes), x, train_step);
      return void(std::printf("%s", checked.str().c_str()));
    }

    tools::Training training(picture, "Characters of " + file, steps, {.smooth = 16});
    Keep keep("random", random);
    Job job(cluster);
    for ([[maybe_unused]] const int64_t step : job.steps(steps)) {
      const double loss = train_step();
      rate.step();
      training.step(loss, batch * context, {{"perplexity", std::exp(loss)}});
    }
    training.print(pipeline.step_report().str());
    training.finish("loss %.9f, perplexity %.2f in the last 20 steps, the last one in %s", training.loss(20),
                    std::exp(training.loss(20)), timeline.c_str());
    tools::write_timeline(timeline, pipeline.step_report());
  };
  return launch(train, {.checkpoints = saved});
}
