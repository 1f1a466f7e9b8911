// A parameter server over processes, of which the server's or a trainer's kills itself at an exact point of a
// BSP step; then those left go on.
#include <signal.h>

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "parallel/server/served_parameters.h"
#include "tools/flags/flags.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

constexpr int64_t kSteps = 10, kFatal = 2;

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// Until one trainer is waited for, and no other.
Task<void> one_missing(parallel::Served served) {
  size_t missing = 2;
  while (missing != 1) {
    const auto asked = parallel::report(served);
    missing = (co_await asked)[0].missing.size();
  }
}

// On the server's worker.
struct Bomb : Actor {
  Task<void> wait_and_explode(parallel::Served served) {
    co_await one_missing(std::move(served));
    raise(SIGKILL);
  }
  void explode() { raise(SIGKILL); }
  static constexpr auto remote = methods<&Bomb::wait_and_explode, &Bomb::explode>;
};

// Learns to be 1: the gradient of half the squared distance. In one step it may die, or make the server die.
struct Trainer : Actor {
  Trainer(parallel::Served served, RRef<Bomb> bomb, std::string point)
      : client(served), served(served), bomb(bomb), point(point) {}
  /// How many steps were aborted.
  Task<int64_t> run() {
    int64_t aborted = 0;
    for (int64_t step = 0; step < kSteps; ++step) {
      Tensors w;
      while (w.empty()) {
        const auto pulled = client.pull();
        try {
          w = co_await pulled;
        } catch (const Error& e) {
          if (e.message().find("was aborted") == std::string::npos) throw;
          ++aborted;
        }
      }
      if (step == kFatal && point == "pulled") raise(SIGKILL);
      if (step == kFatal && point == "held") {
        co_await one_missing(served);
        raise(SIGKILL);
      }
      if (step == kFatal && point == "server pulled") bomb.tell<&Bomb::explode>();
      if (step == kFatal && point == "server held") {
        const auto never = bomb.call<&Bomb::wait_and_explode>(served);
        try {
          co_await never;
        } catch (const Error&) {
          if (served.backups.empty()) throw;
        }
      }
      const auto pushed = client.push({sub(w[0], 1.0)});
      if (step == kFatal && point == "server closing") bomb.tell<&Bomb::explode>();
      if (step == kFatal && point == "pushing") raise(SIGKILL);
      (void)co_await pushed;
      if (step == kFatal && point == "pushed") raise(SIGKILL);
    }
    co_return aborted;
  }
  parallel::Client client;
  parallel::Served served;
  RRef<Bomb> bomb;
  std::string point;
  static constexpr auto remote = methods<&Trainer::run>;
};

// Trains on all workers but the server's; says what became of each trainer, and of the values.
void train(Cluster& cluster, const std::string& server, const std::string& policy,
           const std::string& victim = "", const std::string& point = "", const std::string& backup = "") {
  const auto living = cluster.workers();
  const parallel::Served served = parallel::serve(cluster.here(), {server}, {zeros({1000})},
                                                  {.options = {{"lr", 0.5}},
                                                   .policy = parallel::ServerPolicy::parse(policy),
                                                   .trainers = static_cast<int64_t>(living.size()) - 1,
                                                   .backup = backup});
  const auto bomb = cluster.spawn<Bomb>(server);
  std::vector<RRef<Trainer>> trainers;
  std::vector<std::pair<std::string, Future<int64_t>>> runs;
  for (const auto& name : living) {
    if (name == server) continue;
    // The last trainer makes the server die.
    const bool fatal = victim == server ? name == living.back() : name == victim;
    trainers.push_back(cluster.spawn<Trainer>(name, served, bomb, fatal ? point : ""));
    runs.emplace_back(name, trainers.back().call<&Trainer::run>());
  }
  for (const auto& [name, run] : runs) {
    const auto& result = run.wait();
    if (!result.ok()) say("why: " + std::string(result.error().what()));
    if (result.ok())
      say("trainer of " + name + " ends, " + std::to_string(result.value()) + " aborted");
    else
      say("trainer of " + name + ": " + std::string(troupe::name(result.error().kind())) + " of " +
          result.error().worker());
  }
  if (victim == server && backup.empty()) return;
  const double value = parallel::read(served).get()[0].mean().item();
  say("learnt " + std::string(std::abs(value - 1) < 0.01 ? "it" : std::to_string(value)));
  const auto report = parallel::report(served).get()[0];
  if (!victim.empty()) say("said " + report.last_loss);
  if (!backup.empty())
    say(fmt::format("version {}, {} delays, {} late, {}", report.version, report.delays.size(), report.late,
                    report.backup));
}

// Waits until nothing is left on the workers that live; a leak hangs.
void all_zero(Cluster& cluster) {
  for (const auto& name : cluster.workers())
    for (const char* what : {"owned_objects", "owned_references", "borrowed_references", "pending_references",
                             "actors", "pending_calls"})
      while (cluster.metrics(name)[what] > (name == "w0" && what == std::string("pending_calls")))
        std::this_thread::yield();
}

void run(Cluster& cluster, const std::string& victim, const std::string& point, const std::string& policy,
         const std::string& backup) {
  train(cluster, "w1", policy, victim, point, backup);
  // Another worker may have noticed first, and its answer have come before our own link broke.
  for (bool lost = false; !lost; std::this_thread::yield()) {
    const auto living = cluster.workers();
    lost = std::find(living.begin(), living.end(), victim) == living.end();
  }
  all_zero(cluster);
  say("again");
  train(cluster, victim == "w1" ? "w2" : "w1", policy);
  all_zero(cluster);
  say("nothing left");
}

}  // namespace

int main(int argc, char** argv) {
  std::string victim = "w1", point = "server held", policy = "bsp", backup;
  tools::Flags flags("server_killed", "One process of a parameter server kills itself, the others go on.");
  flags.add("--victim", victim, "who", {"w1", "w2", "w3"})
      .add("--point", point, "when",
           {"pulled", "held", "pushing", "pushed", "server pulled", "server held", "server closing"})
      .add("--backup", backup, "of the server, on that worker")
      .add("--policy", policy, "as parallel::ServerPolicy::parse() takes it");
  if (auto code = flags.parse(argc, argv)) return *code;
  return launch(hosting<Bomb, Trainer>(),
                [&](Cluster& cluster) { run(cluster, victim, point, policy, backup); });
}
