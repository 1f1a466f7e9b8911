// What the shell costs over C++: a call, a training loop, and the time to its first answer. Loops in Lua and
// in C++ take turns on one cluster in this process; medians of their rounds.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "bench/measure.h"
#include "data/datasets/digits.h"
#include "data/datasets/loader.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

struct Echo : Actor {
  int64_t echo(int64_t x) { return x; }
  Tensor pass(Tensor x) { return x; }
  static constexpr auto remote = methods<&Echo::echo, &Echo::pass>;
};

struct Bottom : Actor {
  Tensor forward(Tensor x) { return net(x); }
  nn::Sequential net{nn::Linear(784, 128), nn::ReLU()};
  static constexpr auto remote = methods<&Bottom::forward>;
};
struct Top : Actor {
  Tensor forward(Tensor x) { return net(x); }
  nn::Linear net{128, 10};
  static constexpr auto remote = methods<&Top::forward>;
};

double seconds(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// A chunk that is compiled once and run many times.
class Loop {
 public:
  Loop(repl::Interpreter& interpreter, const std::string& text) : L_(interpreter.state()) {
    if (luaL_loadstring(L_, text.c_str()) != LUA_OK)
      throw_error(ErrorKind::failed, std::string(repl::text_at(L_, -1)));
    at_ = luaL_ref(L_, LUA_REGISTRYINDEX);
  }
  void operator()() const {
    lua_rawgeti(L_, LUA_REGISTRYINDEX, at_);
    if (lua_pcall(L_, 0, 0, 0) != LUA_OK) throw_error(ErrorKind::failed, std::string(repl::text_at(L_, -1)));
  }

 private:
  lua_State* L_;
  int at_;
};

// Medians of rounds that take turns: first, second.
std::pair<double, double> in_turn(int rounds, const std::function<void()>& first,
                                  const std::function<void()>& second) {
  std::vector<double> a, b;
  for (int i = 0; i < rounds; ++i) {
    a.push_back(seconds(first));
    b.push_back(seconds(second));
  }
  return {median(a), median(b)};
}

double start_ms(const std::string& troupe, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {troupe, "repl"});
  std::vector<char*> argv;
  for (auto& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) throw_error(ErrorKind::failed, "no pipe");
  const auto begin = std::chrono::steady_clock::now();
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out[1], 1);
    execv(argv[0], argv.data());
    _exit(99);
  }
  close(out[1]);
  char byte;
  const bool came = read(out[0], &byte, 1) == 1;
  const double took =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  close(out[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  if (!came || status != 0) throw_error(ErrorKind::failed, "[bench] the shell did not start: " + troupe);
  return took;
}

}  // namespace

int main(int argc, char** argv) {
  bench::Bench bench("bench_repl", "Times calls and training loops of the shell beside those of C++.", argc,
                     argv);
  if (bench.exit_code) return *bench.exit_code;
  const std::string self = argv[0];
  const std::string troupe = self.substr(0, self.rfind('/') + 1) + "troupe";
  std::vector<double> alone, three;
  for (int i = 0; i < bench.count(11); ++i) {
    alone.push_back(start_ms(troupe, {"-e", "print(1)"}));
    three.push_back(start_ms(troupe, {"-n", "3", "-e", "print(1)"}));
  }
  bench.emit("repl_start_ms", median(alone), "ms", {{"processes", 1}});
  bench.emit("repl_start_ms", median(three), "ms", {{"processes", 3}});

  auto made = Cluster::in_process(3);
  Cluster& cluster = *made;
  repl::Interpreter interpreter(std::move(made), {}, {});
  const int calls = bench.count(2000), rounds = bench.count(21);
  {
    const auto echo = cluster.spawn<Echo>("w1");
    repl::put<AnyRef>(interpreter.state(), AnyRef(echo));
    lua_setglobal(interpreter.state(), "echo");
    const Tensor x = ops::randn({64, 32});
    repl::push_tensor(interpreter.state(), x);
    lua_setglobal(interpreter.state(), "x");
    lua_pushinteger(interpreter.state(), calls);
    lua_setglobal(interpreter.state(), "calls");
    const Loop small(interpreter, "local echo = echo for i = 1, calls do echo:echo(i):get() end");
    const Loop tensors(interpreter, "local echo, x = echo, x for i = 1, calls do echo:pass(x):get() end");
    const NoGradGuard none;
    const auto [c, lua] = in_turn(
        rounds,
        [&] {
          for (int64_t i = 0; i < calls; ++i) (void)echo.call<&Echo::echo>(i).get();
        },
        small);
    bench.emit("repl_call_us", lua / calls * 1e6, "us", {{"cpp_us", c / calls * 1e6}});
    const auto [ct, lt] = in_turn(
        rounds,
        [&] {
          for (int i = 0; i < calls; ++i) (void)echo.call<&Echo::pass>(x).get();
        },
        tensors);
    bench.emit("repl_tensor_call_us", lt / calls * 1e6, "us", {{"cpp_us", ct / calls * 1e6}});
  }
  {
    // The loop of the demo: 784-128-10, batches of 64, over two workers.
    const auto a = cluster.spawn<Bottom>("w1");
    const auto b = cluster.spawn<Top>("w2");
    optim::Distributed<optim::SGD> optimizer({a, b}, {.lr = 0.1});
    const datasets::Loader loader(datasets::generated_digits(2048, 1), {.batch_size = 64});
    int64_t epoch = 0;
    const auto cpp = [&] {
      for (const auto& [x, y, index] : loader.epoch(epoch++)) {
        autograd::Context step(cluster);
        const Tensor loss = ops::cross_entropy(b(a(x)).get(), y);
        step.backward(loss);
        optimizer.step(step);
      }
    };
    const Loop setup(interpreter, R"(
      a = spawn("Module", "w1", nn.sequential{nn.linear(784, 128), "relu"})
      b = spawn("Module", "w2", nn.linear(128, 10))
      opt = optim.sgd({a, b}, {lr = 0.1})
      digits = data.digits{count = 2048, seed = 1, batch = 64}
    )");
    setup();
    const Loop lua(interpreter, R"(
      local a, b, opt = a, b, opt
      for x, y in digits:batches() do
        local step <close> = context()
        local loss = ops.cross_entropy(b(a(x)), y)
        step:backward(loss)
        opt:step(step)
      end
    )");
    const auto [c, l] = in_turn(bench.count(41), cpp, lua);
    bench.emit("repl_training_step_us", l / 32 * 1e6, "us", {{"cpp_us", c / 32 * 1e6}, {"ratio", l / c}});
  }
}
