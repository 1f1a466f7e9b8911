// Parameters that several stages share: by being one actor, or by ties between copies.
#include "parallel/pipeline/tied_parameters.h"

#include "parallel/pipeline/pipelines.h"
#include "tests/parallel/stages.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::parallel;

namespace {

// Ids in, logits out: the embedding is the head's matrix too.
struct Ends : nn::ModuleActor<nn::Embedding> {
  explicit Ends(int64_t number) : ModuleActor(8, kWidth) {
    net.load_state_dict({{"weight", wave({8, kWidth}, static_cast<double>(number))}});
  }
  Tensor embed(Tensor ids) { return net(ids); }
  Tensor head(Tensor x) { return matmul(x, transpose(net.weight, 0, 1)); }
  Tensor loss(Tensor logits, Tensor ids) { return cross_entropy(logits, ids); }
  static constexpr auto remote = methods<&Ends::embed, &Ends::head, &Ends::loss>;
};

// Both ends of a model of two stages.
struct TiedEnds : nn::ModuleActor<nn::Embedding> {
  explicit TiedEnds(const Mesh& mesh) : ModuleActor(8, kWidth), is_first(mesh.coordinate("pp") == 0) {
    net.load_state_dict({{"weight", wave({8, kWidth}, is_first ? 0 : 5)}});
  }
  Tensor forward(Tensor x) { return is_first ? net(x) : matmul(x, transpose(net.weight, 0, 1)); }
  Tensor loss(Tensor logits, Tensor ids) { return cross_entropy(logits, ids); }
  static constexpr auto remote = methods<&TiedEnds::forward, &TiedEnds::loss>;
  const bool is_first;
};

// The same with a parameter that has no name.
struct Bare : Actor {
  explicit Bare(int64_t) : weight(wave({8, kWidth}, 0)) { weight.requires_grad_(); }
  Tensor head(Tensor x) { return matmul(x, transpose(weight, 0, 1)); }
  Tensor loss(Tensor logits, Tensor ids) { return cross_entropy(logits, ids); }
  Tensor value() { return weight.detach().clone_data(); }
  Tensors parameters() override { return {weight}; }
  Tensor weight;
  static constexpr auto remote = methods<&Bare::head, &Bare::loss, &Bare::value>;
};

struct Model {
  nn::Embedding ends{8, kWidth};
  Dense middle{1};
  Model() { ends.load_state_dict({{"weight", wave({8, kWidth}, 0)}}); }
  Tensor loss(const Tensor& ids, const Tensor& next) {
    return cross_entropy(matmul(middle(ends(ids)), transpose(ends.weight, 0, 1)), next);
  }
  Tensors parameters() {
    Tensors all = ends.parameters();
    for (const Tensor& p : middle.parameters()) all.push_back(p);
    return all;
  }
};

const std::vector<int64_t> kIds{3, 1, 4, 1, 5, 2, 6, 5, 3, 5}, kNext{1, 4, 1, 5, 2, 6, 5, 3, 5, 0};

Tensor value(const AnyRef& actor) { return nn::remote_state_dict(actor).get().at("weight"); }

}  // namespace

TEST_CASE("ties are lists of copies, and what cannot be tied is refused", "[schedule]") {
  const auto cluster = Cluster::in_process(1, hosting<Block>());
  std::vector<AnyRef> actors;
  for (int64_t i = 0; i < 4; ++i) actors.push_back(cluster->spawn<Block>(0, i));
  const auto ties = connect_ties({{{0, "a"}, {3, "b"}, {1, "c"}}, {{3, "x"}, {1, "y"}}}, actors);
  CHECK(ties[0][0].others == std::vector<SkipLink>{{3, 0}, {1, 0}});
  CHECK(ties[3][0].others == std::vector<SkipLink>{{0, 0}, {1, 1}});
  CHECK(ties[1][0].others == std::vector<SkipLink>{{0, 1}, {3, 1}});
  CHECK(ties[3][1].others == std::vector<SkipLink>{{1, 2}});
  CHECK(ties[1][1].others == std::vector<SkipLink>{{3, 2}});
  CHECK(slots_of(ties[3]) == 3);
  const auto number = [](double x) { return full({1}, x); };
  const Tensors sums = sum_of_ties(ties[3], {number(1), Tensor()}, {number(10), number(100), number(1000)});
  CHECK(sums[0].item() == 111);
  CHECK(sums[1].item() == 1000);
  const auto text = [&](const std::vector<std::vector<StageParameter>>& lists) {
    return invalid_text([&] { (void)connect_ties(lists, actors); });
  };
  CHECK(text({{{0, "a"}}}) == "[pipeline] a tie of 1 parameters: expected at least 2");
  CHECK(text({{{0, "a"}, {4, "b"}}}) ==
        "[pipeline] parameter b of stage 4 cannot be tied: there are 4 stages");
  CHECK(text({{{0, "a"}, {1, "b"}}, {{1, "b"}, {2, "c"}}}) ==
        "[pipeline] parameter b of stage 1 is tied twice");
  actors[2] = actors[0];
  CHECK(text({{{0, "a"}, {1, "b"}}}).find("its actor is that of another stage") != std::string::npos);
}

TEST_CASE("tied parameters of different actors have the sum of their gradients, and stay equal") {
  const Tensor ids = tensor(kIds), next = tensor(kNext);
  for (const std::string schedule :
       {"gpipe", "1f1b", "zb-h2", "credits(2)", "interleaved",
        "w0=2,0,1: F0.1 F0.2 F0 B0 B0.2 B0.1 F1.1 F1.2 F2.1 F2.2 F1 F2 B1 B2 B1.2 B1.1 B2.2 B2.1"})
    for (const Checkpoint checkpoint : {Checkpoint::never, Checkpoint::always}) {
      INFO(schedule << ", checkpoint " << int(checkpoint));
      const auto cluster = Cluster::in_process(3, hosting<Ends, Block>());
      const auto first = cluster->spawn<Ends>(1, int64_t{0}), last = cluster->spawn<Ends>(0, int64_t{5});
      const auto middle = cluster->spawn<Block>(2, int64_t{1});
      const int chunks = schedule == "interleaved" || schedule.starts_with("w0=") ? 3 : 1;
      Pipeline pipeline(cluster->here(),
                        {stage<&Ends::embed>(first), stage<&Block::forward>(middle),
                         stage<&Ends::head>(last).with_loss<&Ends::loss>()},
                        {.schedule = schedule,
                         .micro_batches = 3,
                         .chunks = chunks,
                         .checkpoint = checkpoint,
                         .tied = {{{0, "weight"}, {2, "weight"}}}});
      optim::Distributed<optim::Adam> remote({first, middle, last}, {.lr = 0.05});
      Model model;
      optim::Adam local(model.parameters(), {.lr = 0.05});
      for (int step = 0; step < 4; ++step) {
        INFO("step " << step);
        autograd::Context context(*cluster);
        const double got = pipeline.step(Value(ids), Value(next)).loss;
        const double norm = remote.clip_grad_norm(context, 0.5);
        remote.step(context);
        local.zero_grad();
        const Tensor loss = model.loss(ids, next);
        autograd::backward(loss);
        CHECK(norm == Approx(optim::clip_grad_norm_(model.parameters(), 0.5)).epsilon(1e-4));
        local.step();
        CHECK(got == Approx(loss.item()).epsilon(1e-4));
        CHECK(bit_equal(value(first), value(last)));
        CHECK(difference(value(first), model.ends.weight.detach(), 1e-3, 1e-4) == "");
      }
      nothing_left(*cluster);
    }
}

TEST_CASE("norms count a tied parameter once, whatever replicas of its stages divide") {
  const Tensor ids = tensor(kIds), next = tensor(kNext);
  for (const Shard shard : {Shard::none, Shard::state, Shard::gradients}) {
    INFO("shard " << word(shard));
    const auto cluster = Cluster::in_process(4, hosting<TiedEnds>());
    const auto model = spawn<TiedEnds>(cluster->here(), Mesh(*cluster, {{"dp", 2}, {"pp", 2}}));
    Pipelines pipelines(cluster->here(), model,
                        {.micro_batches = 2, .tied = {{{0, "weight"}, {1, "weight"}}}, .shard = shard});
    optim::Distributed<optim::Adam> remote(model, {.lr = 0.05});
    nn::Embedding ends(8, kWidth);
    ends.load_state_dict({{"weight", wave({8, kWidth}, 0)}});
    optim::Adam local(ends.parameters(), {.lr = 0.05});
    for (int step = 0; step < 3; ++step) {
      INFO("step " << step);
      autograd::Context context(*cluster);
      (void)pipelines.step(Value(ids), Value(next));
      const double norm = remote.clip_grad_norm(context, 0.5);
      remote.step(context);
      local.zero_grad();
      autograd::backward(cross_entropy(matmul(ends(ids), transpose(ends.weight, 0, 1)), next));
      CHECK(norm == Approx(optim::clip_grad_norm_(ends.parameters(), 0.5)).epsilon(1e-4));
      local.step();
      CHECK(difference(value(model.actors()[3]), ends.weight.detach(), 1e-3, 1e-4) == "");
    }
  }
}

TEST_CASE("a parameter without a name is tied by its number") {
  const Tensor ids = tensor(kIds), next = tensor(kNext);
  const auto cluster = Cluster::in_process(2, hosting<Ends, Bare>());
  const auto first = cluster->spawn<Ends>(0, int64_t{3});
  const auto last = cluster->spawn<Bare>(1, int64_t{0});
  Pipeline pipeline(cluster->here(),
                    {stage<&Ends::embed>(first), stage<&Bare::head>(last).with_loss<&Bare::loss>()},
                    {.micro_batches = 2, .tied = {{{1, "0"}, {0, "weight"}}}});
  optim::Distributed<optim::SGD> sgd({first, last}, {.lr = 0.5});
  autograd::Context context(*cluster);
  pipeline.step(Value(ids), Value(next));
  CHECK(bit_equal(value(first),
                  wave({8, kWidth}, 0)));  // the first of the list, which is that of the last stage
  sgd.step(context);
  CHECK_FALSE(bit_equal(value(first), wave({8, kWidth}, 0)));
  CHECK(bit_equal(value(first), last.call<&Bare::value>().get()));
}

TEST_CASE("stages of one actor share its parameters without ties") {
  const Tensor ids = tensor(kIds), next = tensor(kNext);
  for (const std::string schedule : {"1f1b", "zb-h1"}) {
    const auto cluster = Cluster::in_process(2, hosting<Ends, Block>());
    const auto ends = cluster->spawn<Ends>(0, int64_t{0});
    const auto middle = cluster->spawn<Block>(1, int64_t{1});
    Pipeline pipeline(cluster->here(),
                      {stage<&Ends::embed>(ends), stage<&Block::forward>(middle),
                       stage<&Ends::head>(ends).with_loss<&Ends::loss>()},
                      {.schedule = schedule, .micro_batches = 3});
    optim::Distributed<optim::SGD> remote({ends, middle}, {.lr = 0.5});
    Model model;
    optim::SGD local(model.parameters(), {.lr = 0.5});
    for (int step = 0; step < 2; ++step) {
      autograd::Context context(*cluster);
      pipeline.step(Value(ids), Value(next));
      remote.step(context);
      local.zero_grad();
      autograd::backward(model.loss(ids, next));
      local.step();
      CHECK(difference(value(ends), model.ends.weight.detach(), 1e-4, 1e-5) == "");
    }
  }
}

TEST_CASE(
    "ties that do not fit are refused at the first step, and a step that fails leaves the next one whole") {
  const Tensor ids = tensor(kIds), next = tensor(kNext);
  const auto cluster = Cluster::in_process(2, hosting<Ends, Block>());
  const auto first = cluster->spawn<Ends>(0, int64_t{0}), last = cluster->spawn<Ends>(1, int64_t{0});
  const auto middle = cluster->spawn<Block>(1, int64_t{1});
  const auto said = [&](std::vector<StageParameter> tie) {
    Pipeline pipeline(cluster->here(),
                      {stage<&Ends::embed>(first), stage<&Block::forward>(middle),
                       stage<&Ends::head>(last).with_loss<&Ends::loss>()},
                      {.micro_batches = 2, .tied = {std::move(tie)}});
    autograd::Context context(*cluster);
    return error_of([&] { pipeline.step(Value(ids), Value(next)); }).message();
  };
  CHECK(said({{0, "weight"}, {2, "bias"}}) == "[pipeline] there is no parameter \"bias\"; there are: weight");
  CHECK(said({{0, "weight"}, {1, "linear.weight"}}).find("is tied to one that is") != std::string::npos);

  Pipeline pipeline(cluster->here(),
                    {stage<&Ends::embed>(first), stage<&Block::fails>(middle),
                     stage<&Ends::head>(last).with_loss<&Ends::loss>()},
                    {.micro_batches = 5, .tied = {{{0, "weight"}, {2, "weight"}}}});
  middle.call<&Block::fail_in>(4).get();
  {
    autograd::Context context(*cluster);
    CHECK(
        std::string(error_of([&] { pipeline.step(Value(ids), Value(next)); }).what()).find("micro-batch 3") !=
        std::string::npos);
  }
  optim::Distributed<optim::SGD> remote({first, middle, last}, {.lr = 0.5});
  Model model;
  optim::SGD local(model.parameters(), {.lr = 0.5});
  autograd::Context context(*cluster);
  pipeline.step(Value(ids), Value(next));
  remote.step(context);
  autograd::backward(model.loss(ids, next));
  local.step();
  CHECK(bit_equal(value(first), value(last)));
  CHECK(difference(value(first), model.ends.weight.detach(), 1e-4, 1e-5) == "");
}
