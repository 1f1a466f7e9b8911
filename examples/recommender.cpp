// Wide and deep (Cheng et al. 2016): who will click on what? Embedding tables live in two servers, a dense
// tower is a pipeline of two stages, and two such pipelines train at once. Alone (`recommender`), or
// `troupe run -n 7 recommender`, a worker for each part, with the same bits.
#include <deque>

#include <troupe/pipeline.h>
#include <troupe/server.h>
#include <troupe/tools/program.h>
#include <troupe/troupe.h>
using namespace troupe;
using namespace troupe::parallel;

constexpr int64_t kUsers = 400, kItems = 300, kGroups = 16, kGenres = 12, kWidth = 8, kHidden = 64;

// Items shown to users, [n, 3]: user, kUsers + item, and both kinds as one number; whether they clicked; and
// the log-odds that decided, which are hidden: what user and item have in common, and what the kinds have.
std::tuple<Tensor, Tensor, Tensor> show(int64_t count, Generator& random) {
  Generator hidden(42);
  const auto traits = randn({kUsers + kItems, 2}, hidden).to_vector<double>();
  const auto crosses = randn({kGroups * kGenres}, hidden).to_vector<double>();
  std::vector<int64_t> ids;
  std::vector<float> clicked, odds;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t user = random.below(kUsers), item = kUsers + random.below(kItems);
    const uint64_t cross = user % kGroups * kGenres + item % kGenres;
    const double *u = &traits[2 * user], *v = &traits[2 * item];
    odds.push_back(static_cast<float>(1.2 * (u[0] * v[0] + u[1] * v[1] + crosses[cross]) - 0.5));
    for (const uint64_t id : {user, item, cross}) ids.push_back(static_cast<int64_t>(id));
    clicked.push_back(random.uniform() < 1 / (1 + std::exp(-odds.back())));
  }
  return {tensor(ids).reshape({count, 3}), tensor(clicked), tensor(odds)};
}

// Of all pairs of one that was clicked and one that was not: the part where the first has the higher odds.
double area_under_curve(const Tensor& odds, const Tensor& clicked) {
  double below = 0, won = 0;
  for (const double y : clicked.index_select(0, argsort(odds)).to_vector<double>())
    y > 0 ? won += below : ++below;
  return won / (below * (static_cast<double>(odds.numel()) - below));
}

using Half = nn::ModuleActor<nn::Sequential>;  // of a tower; there are two towers

struct Bottom : Half {  // ids -> the first layer; and the wide part, a weight for each pair of kinds
  Bottom(ServedTable deep, ServedTable wide)
      : Half(nn::Linear(2 * kWidth, kHidden), nn::ReLU()), deep(deep), wide(wide) {}
  Task<std::pair<Tensor, Tensor>> forward(Tensor ids) {
    const auto rows = deep.pull(ids.slice(1, 0, 2)), weights = wide.pull(ids.slice(1, 2, 3));
    const Tensor embedded = co_await rows, linear = co_await weights;
    co_return std::pair(net(embedded.flatten(1)), linear.flatten());
  }
  Task<void> push(double count) {  // the servers take this context's gradients of the rows that were pulled
    const auto pushed = all(std::vector{deep.push_context(count), wide.push_context(count)});
    (void)co_await pushed;
  }
  TableClient deep, wide;
  static constexpr auto remote = methods<&Bottom::forward, &Bottom::push>;
};

struct Top : Half {  // the rest of the tower, and the sum of both parts -> log-odds [n]
  Top() : Half(nn::Linear(kHidden, kHidden), nn::ReLU(), nn::Linear(kHidden, 1)) {}
  Tensor forward(Tensor x, Tensor linear) { return net(x).flatten() + linear; }
  Tensor loss(Tensor odds, Tensor clicked) { return binary_cross_entropy_with_logits(odds, clicked); }
  static constexpr auto remote = methods<&Top::forward, &Top::loss>;
};

int main(int argc, char** argv) {
  tools::Flags flags("recommender", "Learns who clicks on what: tables in servers, and two towers.");
  auto& steps = flags.whole("--steps", 1000, "training steps", {1, 1e7});
  auto& batch = flags.whole("--batch", 256, "showings per step and tower", {4, 1e5});
  auto& lr = flags.number("--lr", 3e-3, "of the towers' Adam", {0, 100});
  auto& seed = flags.seed("of what is shown");
  auto& picture = flags.picture("--chart", "recommender.svg", "picture of loss and test AUC (SVG)");
  auto& saved = flags.checkpoints();
  if (auto code = flags.reaches("test loss <= 0.5").reaches("AUC >= 0.82").parse(argc, argv)) return *code;

  const auto train = [&](Cluster& cluster) {
    flags.check_outputs();
    const auto workers = cluster.workers();
    const size_t n = workers.size();  // the servers are the last two, unless there are fewer than 7
    if (n < 3) throw_invalid("two towers of two halves need 3 workers, got " + std::to_string(n));
    const ServerOptions adagrad{.optimizer = "adagrad", .options = {{"lr", 0.1}}, .trainers = 2};
    const std::vector<Place> servers{workers[n - 2], workers[n - 1]};
    const auto deep = serve_table(cluster.here(), servers, kUsers + kItems, kWidth, adagrad);
    const auto wide = serve_table(cluster.here(), servers, kGroups * kGenres, 1, adagrad);
    std::vector<RRef<Bottom>> bottoms;
    std::vector<RRef<Top>> tops;
    std::deque<Pipeline> towers;
    for (size_t t = 0; t < 2; ++t) {
      bottoms.push_back(cluster.spawn<Bottom>(workers[(1 + 2 * t) % n], deep, wide));
      tops.push_back(cluster.spawn<Top>(workers[(2 + 2 * t) % n]));
    }
    // The second tower starts as the first, and has its gradients: both learn from the rows of both.
    const std::vector<Group> replicas{Group(bottoms), Group(tops)};
    for (size_t t = 0; t < 2; ++t) {
      const std::vector stages{stage<&Bottom::forward>(bottoms[t]),
                               stage<&Top::forward>(tops[t]).with_loss<&Top::loss>()};
      towers.emplace_back(cluster.here(), stages, PipelineOptions{.micro_batches = 4, .replicas = replicas});
    }
    optim::Distributed<optim::Adam> optimizer({bottoms[0], bottoms[1], tops[0], tops[1]}, {.lr = lr});
    Generator random(seed);
    const auto [test, test_clicked, hidden] = show(4000, random);
    Tensor odds;
    tools::Training training(picture, "Wide and deep", steps, {.measure = "test AUC"});
    Keep keep("random", random, "odds", odds);
    Job job(cluster);
    for (const int64_t step : job.steps(steps)) {
      autograd::Context context(cluster);
      std::vector<Future<StepResult>> passes;
      for (Pipeline& tower : towers) {
        const auto [ids, clicked, truth] = show(batch, random);
        passes.push_back(tower.step_async(Value(ids), Value(clicked)));
      }
      const auto results = all(passes).get();
      std::vector<Future<void>> pushed;
      for (const auto& bottom : bottoms) pushed.push_back(bottom.call<&Bottom::push>(batch));
      all(pushed).get(), optimizer.step(context);
      training.step((results[0].loss + results[1].loss) / 2, 2 * batch);
      if ((step + 1) % 25 != 0 && step + 1 != steps) continue;
      Tensors parts;
      for (const Value& part : towers[0].forward(Value(test))) parts.push_back(*part.get_if<Tensor>());
      odds = cat(parts, 0);
      training.measure(area_under_curve(odds, test_clicked));
    }
    const double reached = binary_cross_entropy_with_logits(odds, test_clicked).item();
    const double least = binary_cross_entropy_with_logits(hidden, test_clicked).item();
    training.finish("test loss %.6f (of the hidden odds %.4f), AUC %.4f (%.4f)", reached, least,
                    training.measured(), area_under_curve(hidden, test_clicked));
  };
  return launch(train, {.checkpoints = saved});
}
