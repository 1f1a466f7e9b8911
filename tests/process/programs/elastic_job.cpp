// A job whose workers die, come and leave: dropout, running means, a Keep that the loss depends on, clipped
// norms. PLAN=5:w2:forward;9:w1:backward says who dies in which step, and where; without it, whoever is
// killed from outside. DIES=2:57: the worker that was started as w2 dies as it sends for the 57th time since
// its first forward pass. DEVICE=cuda: of replicas. MESH=1: pipelines, two replicas of two stages. MESH=2:
// of four stages, two on each worker.
// UNTIL_BACK=1: until replicas that have gone are back. LEAVES=w2: that one is asked to end
// before the first step. ACCUMULATE=1: three passes in a step. COMPRESSION: of gradients. AVERAGE=3:
// replicas learn by themselves for 3 steps. SECOND=1: a second optimizer steps with the first. Prints losses
// and the final state, so that runs can be compared.
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <type_traits>

#include "actors/worker/worker.h"
#include "autograd/hooks.h"
#include "core/codec/keep.h"
#include "troupe/pipeline.h"
#include "troupe/replicas.h"
#include "troupe/troupe.h"

using namespace troupe;
using parallel::split;

namespace {

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

std::atomic<bool> counts_sends = false;  // from the first forward pass on

void note_send() {
  static const std::string plan = variable("DIES", ""), rank = variable("RANK", "");
  static std::atomic<int64_t> sent = 0;
  if (counts_sends && plan == rank + ":" + std::to_string(++sent)) raise(SIGKILL);
}

bool dies(int64_t step, const char* where) {
  return (";" + variable("PLAN", "") + ";")
             .find(";" + std::to_string(step) + ":" + frame().worker->name() + ":" + where + ";") !=
         std::string::npos;
}

template <class Linear>
Task<Tensor> through(Linear& layer, Tensor x) {
  if constexpr (std::is_same_v<Linear, nn::Linear>)
    co_return layer(x);
  else
    co_return co_await layer(x);
}

template <class Linear>
struct Layers : nn::Module {
  Linear hidden{8, 32}, out{32, 4};
  nn::BatchNorm2d norm{2};
  nn::Dropout drop{0.2};
  Task<Tensor> operator()(Tensor x) {
    const int64_t n = x.size(0);
    const Tensor h = co_await through(hidden, x);
    const Tensor normed = norm(h.reshape({n, 2, 4, 4})).reshape({n, 32});
    co_return co_await through(out, drop(relu(normed)));
  }
  void members(nn::Members& m) override {
    m("hidden", hidden), m("norm", norm), m("drop", drop), m("out", out);
  }
};

// Asked for its state where a step is prepared.
struct Mortal : Stateful {
  int64_t step = -1;
  StateDict state() const override {
    if (dies(step, "prepare")) raise(SIGKILL);
    return {};
  }
  void load_state(const StateDict&) override {}
  std::string state_name() const override { return "Mortal"; }
};

template <class Linear>
struct Elastic : nn::ModuleActor<Layers<Linear>> {
  Elastic() {
    std::printf("pid %s %d\n", frame().worker->name().c_str(), getpid());
    this->net.to(device);
  }
  Task<Tensor> loss(Tensor x, Tensor y, int64_t step) {
    if (dies(step, "forward")) raise(SIGKILL);
    mortal.step = step;
    looked = 0;
    counts_sends = true;
    const double factor = 1.0 + 1e-3 * double(++calls % 7);
    const Tensor scores = co_await this->net(x.to(device));
    Tensor l = cross_entropy(scores, y.to(device)).to(cpu) * factor;
    if (dies(step, "backward"))
      autograd::register_hook(l, [](const Tensor&) -> Tensor {
        raise(SIGKILL);
        return {};
      }).keep();
    co_return l;
  }
  // Looked at as the step is prepared, and again when the optimizer has made it here.
  Tensors parameters() override {
    if (dies(mortal.step, "commit") && ++looked == 2) raise(SIGKILL);
    return nn::ModuleActor<Layers<Linear>>::parameters();
  }
  const Device device{variable("DEVICE", "cpu")};
  int64_t calls = 0, looked = 0;
  Keep keep{"calls", calls, Keep::anew, looked};
  Mortal mortal;
  static constexpr auto remote = methods<&Elastic::loss>;
};

// A stage of pipelines, which has two micro-batches in a step.
struct ElasticStage : nn::ModuleActor<Layers<nn::Linear>> {
  explicit ElasticStage(const Mesh& points) : mesh(points) {
    std::printf("pid %s %d\n", frame().worker->name().c_str(), getpid());
    net.to(device);
  }
  Task<Tensor> forward(Tensor x) {
    const int64_t step = calls++ / 2;
    if (dies(step, "forward")) raise(SIGKILL);
    mortal.step = step;
    looked = 0;
    counts_sends = true;
    Tensor h = co_await net(x.to(device));
    if (mesh.coordinate("pp") + 1 < mesh.size("pp")) h = cat({h, h}, 1);
    h = h * (1.0 + 1e-3 * double(calls % 7));
    if (dies(step, "backward"))
      autograd::register_hook(h, [](const Tensor&) -> Tensor {
        raise(SIGKILL);
        return {};
      }).keep();
    co_return h;
  }
  Tensor loss(Tensor scores, Tensor y) { return cross_entropy(scores, y.to(device)); }
  Tensors parameters() override {
    if (dies(mortal.step, "commit") && ++looked == 2) raise(SIGKILL);
    return nn::ModuleActor<Layers<nn::Linear>>::parameters();
  }
  const Device device{variable("DEVICE", "cpu")};
  Mesh mesh;
  int64_t calls = 0, looked = 0;
  Keep keep{"calls", calls, Keep::anew, looked};
  Mortal mortal;
  static constexpr auto remote = methods<&ElasticStage::forward, &ElasticStage::loss>;
};

Tensor rows(int64_t step, int64_t n) {
  std::vector<float> v;
  for (int64_t i = 0; i < n * 8; ++i) v.push_back(float((i * 37 + step * 11) % 23) / 23 - 0.5F);
  return tensor(v, float32).reshape({n, 8});
}

void print_final(const StateDict& values) {
  uint64_t bits = 14695981039346656037ULL;
  for (const auto& [name, t] : values)
    for (const double v : t.to(float64).to_vector<double>()) {
      uint64_t b = 0;
      std::memcpy(&b, &v, sizeof b);
      bits = (bits ^ b) * 1099511628211ULL;
    }
  std::printf("final %016llx\n", static_cast<unsigned long long>(bits));
}

struct Leaver : Actor {
  void leave() { ::kill(::getpid(), SIGTERM); }
  static constexpr auto remote = methods<&Leaver::leave>;
};

// Before the first step. The actor takes from the program's random numbers before they begin anew.
struct Leave {
  explicit Leave(Cluster& where) : cluster(where) {
    if (!who.empty()) leaver = cluster.spawn<Leaver>(who);
  }
  void operator()() {
    if (who.empty()) return;
    cluster.let_leave_between_steps();  // as the first attempt does
    leaver->call<&Leaver::leave>().get();
    leaver.reset();
    for (bool leaves = false; !leaves; std::this_thread::yield()) {
      const auto all = cluster.leaving();
      leaves = std::ranges::find(all, who) != all.end();
    }
  }
  Cluster& cluster;
  const std::string who = variable("LEAVES", "");
  std::optional<RRef<Leaver>> leaver;
};

// Whether members have gone, and as many are there again.
struct Back {
  bool operator()(size_t members) {
    most = std::max(most, members);
    fewer |= members < most;
    return asked && fewer && members == most;
  }
  const bool asked = variable("UNTIL_BACK", "0") == "1";
  size_t most = 0;
  bool fewer = false;
};

std::vector<Place> places_in(Cluster& cluster) {
  const auto all = cluster.workers();
  return {all.begin() + (variable("ON_DRIVER", "0") == "1" ? 0 : 1), all.end()};
}

// Replicas that have taken their mean at last are equal.
template <class Net>
void check_mean(parallel::DataParallel<Net>& net) {
  net.average().get();
  const StateDict first = nn::remote_state_dict(net.replicas()[0]).get();
  for (const auto& r : net.replicas())
    for (const auto& [name, t] : nn::remote_state_dict(r).get())
      if (!bit_equal(t, first.at(name)) && name.find("running") == std::string::npos)
        throw std::runtime_error(name + " of " + r.str() + " is not that of the first");
  std::printf("equal\n");
}

template <class Net>
void train_as(Cluster& cluster, parallel::Shard shard) {
  Leave leave(cluster);
  manual_seed(1);
  const bool averages = variable("AVERAGE", "0") != "0";
  parallel::DataParallel<Net> net(
      cluster.here(), Group(cluster, places_in(cluster)),
      parallel::DataParallelOptions{
          .compression = parallel::Compression::parse(variable("COMPRESSION", "none")),
          .average = {.every = std::stoll(variable("AVERAGE", "0")),
                      .outer_lr = averages ? 0.7 : 1,
                      .outer_momentum = averages ? 0.9 : 0},
          .shard = shard,
          .spare_pieces = 1});
  optim::Distributed<optim::Adam> optimizer(net, {.lr = 3e-3});
  std::optional<optim::Distributed<optim::SGD>> second;
  if (variable("SECOND", "0") == "1") second.emplace(net, optim::SGD::Options{.lr = 1e-3});
  Job job(cluster);
  leave();
  const int64_t steps = std::stoll(variable("STEPS", "20")), n = 24;
  double sum = 0;
  Back back;
  Keep keep{"sum", sum};
  for (const int64_t step : job.steps(steps)) {
    double loss = 0, norm = 0;
    job.attempt([&] {
      autograd::Context context(cluster);
      ++sum;  // taken back with the step
      std::vector<int64_t> targets;
      for (int64_t i = 0; i < n; ++i) targets.push_back((i + step) % 4);
      const auto pass = [&](double part) {
        const Tensor l =
            net.template mean<&Net::loss>(split(rows(step, n)), split(tensor(targets, int64)), step).get();
        context.backward(l * part);
        loss += part * l.item();
      };
      loss = 0;
      if (variable("ACCUMULATE", "0") == "1") {
        const auto open = net.accumulate();
        pass(0.25);
        pass(0.25);
      }
      pass(variable("ACCUMULATE", "0") == "1" ? 0.5 : 1);
      norm = optimizer.clip_grad_norm(context, 1.0);
      if (second)
        optim::step_all(context, {optimizer, *second});
      else
        optimizer.step(context);
    });
    std::printf("step %lld loss %.17g norm %.17g sum %g\n", static_cast<long long>(step), loss, norm, sum);
    std::printf("members %zu\n", net.size());
    std::fflush(stdout);
    if (back(net.size())) break;
  }
  if (averages) check_mean(net);
  StateDict state = net.state_dict().get();
  const auto of_optimizer = optimizer.state();
  for (size_t i = 0; i < of_optimizer.size(); ++i)
    for (const auto& [name, t] : of_optimizer[i]) state[std::to_string(i) + name] = t;
  print_final(state);
}

// Batches come from the program's random numbers, which what takes the place of others leaves alone.
void train_pipelines(Cluster& cluster) {
  Leave leave(cluster);
  manual_seed(1);
  const size_t chunks = std::stoul(variable("MESH", "1"));
  const Mesh mesh(cluster, {{"dp", 2}, {"pp", 2 * chunks, chunks}}, places_in(cluster));
  const auto model = parallel::spawn<ElasticStage>(cluster.here(), mesh);
  parallel::Pipelines train(cluster.here(), model,
                            parallel::stage<&ElasticStage::forward>().with_loss<&ElasticStage::loss>(),
                            {.schedule = chunks > 1 ? "interleaved" : "1f1b",
                             .micro_batches = 2,
                             .chunks = static_cast<int>(chunks)});
  optim::Distributed<optim::Adam> optimizer(model, {.lr = 3e-3});
  Job job(cluster);
  leave();
  const int64_t steps = std::stoll(variable("STEPS", "20")), n = 24;
  Back back;
  for (const int64_t step : job.steps(steps)) {
    double loss = 0, norm = 0;
    job.attempt([&] {
      autograd::Context context(cluster);
      const Tensor noise = randn({n, 8}) * 0.1;
      std::vector<int64_t> targets;
      for (int64_t i = 0; i < n; ++i) targets.push_back((i + step) % 4);
      loss = train.step(Value(rows(step, n) + noise), Value(tensor(targets, int64))).loss;
      norm = optimizer.clip_grad_norm(context, 1.0);
      optimizer.step(context);
    });
    std::printf("step %lld loss %.17g norm %.17g\n", static_cast<long long>(step), loss, norm);
    std::printf("members %zu\n", train.members().size());
    std::fflush(stdout);
    if (back(train.members().size())) break;
  }
  StateDict state;
  for (size_t i = 0; i < model.actors().size(); ++i)
    for (const auto& [name, t] : nn::remote_state_dict(model.actors()[i]).get())
      state[std::to_string(i) + name] = t;
  const auto of_optimizer = optimizer.state();
  for (size_t i = 0; i < of_optimizer.size(); ++i)
    for (const auto& [name, t] : of_optimizer[i]) state[std::to_string(i) + "optimizer" + name] = t;
  print_final(state);
}

void train(Cluster& cluster) {
  if (variable("MESH", "0") != "0") return train_pipelines(cluster);
  const auto shard = parallel::shard_named(variable("SHARD", "none"));
  if (shard == parallel::Shard::all)
    train_as<Elastic<parallel::Sharded<nn::Linear>>>(cluster, shard);
  else
    train_as<Elastic<nn::Linear>>(cluster, shard);
}

}  // namespace

// In the place of the C library's: messages go by the first, and bells that ring for those in shared memory
// by the second.
extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  note_send();
  return ::syscall(SYS_sendmsg, socket, message, flags);
}
extern "C" ssize_t write(int file, const void* bytes, size_t count) {
  if (count == sizeof(uint64_t)) note_send();
  return ::syscall(SYS_write, file, bytes, count);
}

int main() {
  return launch(train, {.leak_check = LeakCheck::error,
                        .checkpoints = {.dir = variable("CHECKPOINTS", ""),
                                        .resume = std::getenv("CHECKPOINTS") != nullptr,
                                        .every = 4}});
}
