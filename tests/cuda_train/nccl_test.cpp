// Training whose tensors go from GPU to GPU by NCCL follows PyTorch's losses, however it is distributed.
#ifdef TROUPE_CUDA_SIM  // real NCCL wants a process for each GPU
#include "collective/nccl/transfers.h"
#include "parallel/pipeline/pipelines.h"
#include "tests/cuda_train/runs.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "tests/support/sim_cuda/nccl_sim.h"
#include "tests/support/sim_cuda/sim.h"
#include "troupe/groups.h"
#include "troupe/replicas.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::parallel;

namespace {

std::string gpu(size_t n) { return "cuda:" + std::to_string(n); }

// Of a part of the model that is a replica; the loss goes to the caller on the CPU.
struct MlpWhole : nn::Layer {
  nn::Linear fc0{784, 128}, fc1{128, 64}, fc2{64, 10};
  Tensor forward(const Tensor& x) override { return fc2(relu(fc1(relu(fc0(x.to(fc0.weight.device())))))); }
  void members(nn::Members& m) override { m("fc0", fc0), m("fc1", fc1), m("fc2", fc2); }
};
struct MlpReplica : nn::ModuleActor<MlpWhole> {
  Tensor loss(Tensor x, Tensor y) {
    const Tensor logits = net(x);
    return cross_entropy(logits, y.to(logits.device())).to(cpu);
  }
  static constexpr auto remote = methods<&MlpReplica::loss>;
};
// It finds its GPU by itself, as one has to that takes another one's place.
struct PlacedReplica : MlpReplica {
  PlacedReplica() { net.to(Device(gpu(frame().worker->id()))); }
  static constexpr auto remote = methods<&MlpReplica::loss>;
};
struct GptReplica : nn::ModuleActor<PieceNet> {
  explicit GptReplica(int64_t vocabulary) : ModuleActor(int64_t{0}, kBlocks, vocabulary) {}
  Tensor loss(Tensor x, Tensor y) {
    const Tensor logits = net(x);
    return cross_entropy(reshape(logits, {-1, logits.size(2)}), reshape(y.to(logits.device()), {-1})).to(cpu);
  }
  static constexpr auto remote = methods<&GptReplica::loss>;
};

// Parts of the models, each a stage of a mesh with "dp" and "pp" of two.
struct MlpPartNet : nn::Layer {
  MlpPartNet(int64_t begin, int64_t end) : begin(begin) {
    for (int64_t i = begin; i < end; ++i) layers.emplace_back(MlpLayer::kSizes[i], MlpLayer::kSizes[i + 1]);
  }
  Tensor forward(const Tensor& in) override {
    Tensor x = in.to(layers[0].weight.device());
    for (size_t i = 0; i < layers.size(); ++i) {
      x = layers[i](x);
      if (begin + static_cast<int64_t>(i) + 1 < MlpLayer::kCount) x = relu(x);
    }
    return x;
  }
  void members(nn::Members& m) override {
    for (size_t i = 0; i < layers.size(); ++i)
      m("fc" + std::to_string(begin + static_cast<int64_t>(i)), layers[i]);
  }
  int64_t begin;
  std::deque<nn::Linear> layers;
};
struct MlpPart : nn::ModuleActor<MlpPartNet> {
  explicit MlpPart(Mesh mesh)
      : ModuleActor(int64_t{mesh.coordinate("pp") ? 2 : 0}, int64_t{mesh.coordinate("pp") ? 3 : 2}) {}
  Tensor forward(Tensor x) { return net(x); }
  Tensor loss(Tensor logits, Tensor y) { return cross_entropy(logits, y.to(logits.device())); }
  static constexpr auto remote = methods<&MlpPart::forward, &MlpPart::loss>;
};
struct GptPart : nn::ModuleActor<PieceNet> {
  GptPart(Mesh mesh, int64_t vocabulary)
      : ModuleActor(int64_t{mesh.coordinate("pp") ? kBlocks / 2 : 0},
                    int64_t{mesh.coordinate("pp") ? kBlocks : kBlocks / 2}, vocabulary) {}
  Tensor forward(Tensor x) { return net(x); }
  Tensor loss(Tensor logits, Tensor y) {
    return cross_entropy(reshape(logits, {-1, logits.size(2)}), reshape(y.to(logits.device()), {-1}));
  }
  static constexpr auto remote = methods<&GptPart::forward, &GptPart::loss>;
};

// Four workers of one process, each taken for a process with the GPU of its number.
struct FourProcesses {
  FourProcesses() : before(gpu_bytes()) {
    sim_cuda::reset_nccl();
    internal::collective::set_transfers_in_process(true);
    ClusterOptions options;
    for (size_t a = 0; a < 4; ++a)
      for (size_t b = a + 1; b < 4; ++b)
        options.device_maps.push_back({"w" + std::to_string(a), "w" + std::to_string(b), {{gpu(a), gpu(b)}}});
    cluster = Cluster::in_process(
        4, hosting<MlpStage, Piece, Trainer, MlpReplica, PlacedReplica, GptReplica, MlpPart, GptPart>(),
        options);
  }
  ~FourProcesses() {
    nothing_left(*cluster);
    cluster.reset();
    internal::collective::set_transfers_in_process(false);
    CHECK(gpu_bytes() == before);
    CHECK(sim_cuda::take_fault() == "");
  }
  int64_t received() const {
    int64_t all = 0;
    for (const auto& name : cluster->workers())
      all += cluster->metrics(name).at("device_transfers_received_sent");
    return all;
  }
  std::vector<size_t> before;
  std::unique_ptr<Cluster> cluster;
};

void check(const Run& run, const std::vector<double>& losses) {
  const auto [distance, step] = farthest(run, losses);
  INFO(run.str() << ": largest difference at step " << step);
  CHECK(distance <= tolerance(run, float32));
}

size_t length(const Run& run) {
  return std::getenv("TROUPE_WHOLE_RUNS") ? run.losses.size() : run.model == "mlp" ? 5 : 2;
}

template <class Net, class... A>
void follow_with_replicas(const Run& run, size_t count, A... args) {
  INFO(count << " replicas");
  FourProcesses four;
  const auto workers = four.cluster->workers();
  const Group group(*four.cluster, {workers.begin(), workers.begin() + static_cast<std::ptrdiff_t>(count)});
  DataParallel<Net> net(four.cluster->here(), group, args...);
  net.ready().get();
  std::map<std::string, Tensor> start;
  for (size_t i = 0; i < run.parameters.size(); ++i)
    start[run.parameters[i].name] = initial(run.parameters[i], static_cast<int>(i));
  for (size_t r = 0; r < count; ++r) {
    nn::load_remote_state_dict(net.replicas()[r], start).get();
    nn::remote_to(net.replicas()[r], gpu(r)).get();
  }
  optim::DistributedOptimizer optimizer(net, run.optimizer, run.options);
  const uint64_t before = sim_cuda::nccl_counters().collectives;
  std::vector<double> losses;
  for (size_t step = 0; step < length(run); ++step) {
    const auto [x, y] = batch(run, static_cast<int>(step));
    autograd::Context context(*four.cluster);
    const Tensor loss = net.template mean<&Net::loss>(split(x), split(y)).get();
    losses.push_back(loss.item());
    context.backward(loss);
    optimizer.step(context);
  }
  check(run, losses);
  CHECK(sim_cuda::nccl_counters().collectives > before);
}

// Losses and final values of three replicas, two of which others replace, if they are moved.
std::vector<double> train_moved(Shard shard, bool moved) {
  FourProcesses four;
  manual_seed(3);
  DataParallel<PlacedReplica> net(four.cluster->here(), Group(*four.cluster, {"w1", "w2", "w3"}),
                                  DataParallelOptions{.shard = shard, .spare_pieces = 1});
  optim::Distributed<optim::Adam> optimizer(net, {.lr = 1e-3});
  std::vector<double> numbers;
  for (int step = 0; step < 6; ++step) {
    if (moved && step == 2) net.replace(1, "w0");
    if (moved && step == 4) net.replace(0, "w2");
    const Tensor x = rand({12, 784}, float32), y = randint(0, 10, {12});
    autograd::Context context(*four.cluster);
    const Tensor loss = net.template mean<&PlacedReplica::loss>(split(x), split(y)).get();
    context.backward(loss);
    optimizer.step(context);
    numbers.push_back(loss.item());
  }
  for (const auto& [name, t] : net.state_dict().get()) numbers.push_back(sum(t.to(float64)).item());
  return numbers;
}

// Two replicas of two stages. They tell each other activations and their gradients by NCCL, and add gradients
// of parameters by it.
template <class Part, class... A>
void follow_as_mesh(const Run& run, const std::string& schedule, A... args) {
  INFO(schedule);
  FourProcesses four;
  const Mesh mesh(*four.cluster, {{"dp", 2}, {"pp", 2}});
  const auto model = parallel::spawn<Part>(four.cluster->here(), mesh, args...);
  for (size_t r = 0; r < 4; ++r) {
    const RRef<Part>& actor = model.actors()[r];
    auto state = nn::remote_state_dict(actor).get();
    for (size_t i = 0; i < run.parameters.size(); ++i)
      if (const auto at = state.find(run.parameters[i].name); at != state.end())
        at->second = initial(run.parameters[i], static_cast<int>(i));
    nn::load_remote_state_dict(actor, std::move(state)).get();
    nn::remote_to(actor, gpu(r)).get();
  }
  Pipelines train(four.cluster->here(), model, stage<&Part::forward>().template with_loss<&Part::loss>(),
                  {.schedule = schedule, .micro_batches = 4});
  optim::DistributedOptimizer optimizer({model.actors().begin(), model.actors().end()}, run.optimizer,
                                        run.options);
  const uint64_t before = sim_cuda::nccl_counters().collectives;
  std::vector<double> losses;
  for (size_t step = 0; step < length(run); ++step) {
    const auto [x, y] = batch(run, static_cast<int>(step));
    autograd::Context context(*four.cluster);
    losses.push_back(train.step(Value(x), Value(y)).loss);
    optimizer.step(context);
  }
  check(run, losses);
  CHECK(sim_cuda::nccl_counters().collectives > before);
  CHECK(four.received() > 0);
}

}  // namespace

TEST_CASE("replicas of the mlp on GPUs that add their gradients by NCCL follow PyTorch's losses") {
  if (!needs_gpus(4)) return;
  for (const size_t count : {4, 2})
    for (const Run& run : mlp_runs("generated")) follow_with_replicas<MlpReplica>(run, count);
}

TEST_CASE("replicas of the transformer on GPUs that add their gradients by NCCL follow PyTorch's losses") {
  if (!needs_gpus(4)) return;
  for (const size_t count : {4, 2})
    for (const Run& run : transformer_runs("generated"))
      follow_with_replicas<GptReplica>(run, count, run.parameters[0].shape[0]);
}

TEST_CASE("replicas on GPUs in whose place others come train on with the same bits") {
  if (!needs_gpus(4)) return;
  for (const Shard shard : {Shard::none, Shard::state, Shard::gradients}) {
    INFO(word(shard));
    CHECK(train_moved(shard, true) == train_moved(shard, false));
  }
  FourProcesses four;
  DataParallel<MlpReplica> net(four.cluster->here(), Group(*four.cluster, {"w1", "w2"}));
  net.ready().get();
  for (size_t r = 0; r < 2; ++r) nn::remote_to(net.replicas()[r], gpu(r)).get();
  CHECK_THAT(error_of([&] { net.replace(1, "w3"); }).message(),
             Catch::Contains("has fc0.weight on cpu, and the one that it is like on cuda") &&
                 Catch::Contains("in its constructor"));
}

TEST_CASE("two replicas of two stages on GPUs follow PyTorch's losses by NCCL") {
  if (!needs_gpus(4)) return;
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (const Run& run : mlp_runs("generated")) follow_as_mesh<MlpPart>(run, schedule);
    for (const Run& run : transformer_runs("generated"))
      follow_as_mesh<GptPart>(run, schedule, run.parameters[0].shape[0]);
  }
}

TEST_CASE("stages on GPUs that exchange tensors by NCCL follow PyTorch's losses") {
  if (!needs_gpus(4)) return;
  const std::vector<std::string> three{gpu(1), gpu(2), gpu(3)};
  for (const Run& run : mlp_runs("generated")) {
    const int steps = static_cast<int>(length(run));
    FourProcesses four;
    check(run, train_by_calls<MlpStage>(*four.cluster, run, steps, three));
    CHECK(four.received() > 0);
    check(run, train_as_pipeline<MlpStage>(*four.cluster, run, steps, three,
                                           {.schedule = "1f1b", .micro_batches = 4}));
  }
}

TEST_CASE("servers on the CPU with trainers on GPUs of other processes follow PyTorch's losses") {
  if (!needs_gpus(4)) return;
  const std::vector<std::string> all{gpu(0), gpu(1), gpu(2), gpu(3)};
  for (const Run& run : mlp_runs("generated"))
    for (const bool recorded : {false, true}) {
      FourProcesses four;
      check(run, train_served(*four.cluster, run, static_cast<int>(length(run)), 4, {"w1", "w2"}, "bsp",
                              70000, recorded, float32, all));
    }
}
#endif
