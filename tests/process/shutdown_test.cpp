// How clusters of processes end when their driver does.
#include <map>
#include <regex>
#include <string>
#include <thread>

#include "actors/worker/worker.h"
#include "tests/process/launcher.h"
#include "tests/support/error_of.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;

namespace {

Launcher ending(const std::string& mode, const std::string& timeout = "60",
                const std::string& check = "error") {
  return Launcher({"-n", "3", program("endings"), "--mode", mode, "--timeout", timeout},
                  {"TROUPE_LEAK_CHECK=" + check});
}

}  // namespace

TEST_CASE("nobody leaves before a chain of hops that nobody waits for is over", "[process]") {
  auto job = ending("chain");
  CHECK(job.exit_code() == 0);
  CHECK(job.errors == "");
  CHECK(job.nothing_left());
  for (int i = 1; i <= 20; ++i) CHECK(Process::count(job.output, "hop " + std::to_string(i) + "\n") == 1);
  CHECK(Process::count(job.output, "hop ") == 20);
}

TEST_CASE("a method that never ends does not keep a program: it is named after the timeout", "[process]") {
  auto job = ending("never", "0.2");
  CHECK(job.exit_code() == 1);
  CHECK_THAT(job.errors, Contains("w0: error: [cluster] still under way after") &&
                             Contains("Hopper::never") && Contains("w2 has 1 calls or jobs under way"));
  CHECK(job.nothing_left());
}

TEST_CASE("a method that does not return is named, and the program ends with its exit code", "[process]") {
  const std::vector<std::string> flags{"--timeout", "0.5", "--mode"};
  const auto command = [&](const std::string& mode, bool alone) {
    std::vector<std::string> all{program("endings")};
    if (!alone) all.insert(all.begin(), {kTroupeCommand, "run", "-n", "3"});
    all.insert(all.end(), flags.begin(), flags.end());
    all.push_back(mode);
    return all;
  };
  const auto check_named = [](const std::string& errors) {
    CHECK_THAT(errors, Contains("Hopper::spin on w2 (Hopper#") &&
                           Contains("has not returned within 500 ms; the program ends without it"));
  };
  for (const bool alone : {true, false}) {
    Process failed(command("spin-and-fail", alone));
    CHECK(failed.exit_code() == 1);
    INFO(failed.errors);
    CHECK_THAT(failed.errors, Contains("w0: error: std::runtime_error: the driver has had enough"));
    check_named(failed.errors);
    CHECK(failed.nothing_left());

    Process stopped(command("spin", alone));
    stopped.await("spinning");
    stopped.signal(SIGTERM);
    CHECK(stopped.exit_code() == 143);
    INFO(stopped.errors);
    check_named(stopped.errors);
    CHECK(stopped.nothing_left());
  }
}

TEST_CASE("an exception that nobody catches on a thread of the program's own is told before the end",
          "[process]") {
  const auto run = [](const std::string& mode, bool alone) {
    std::vector<std::string> all{program("endings"), "--mode", mode};
    if (!alone) all.insert(all.begin(), {kTroupeCommand, "run", "-n", "3"});
    return all;
  };
  for (const bool alone : {true, false})
    for (const std::string mode : {"thread", "thread-there", "thread-forgotten"}) {
      Process job(run(mode, alone),
                  alone ? std::vector<std::string>{"TROUPE_WORKERS=3"} : std::vector<std::string>{});
      INFO(mode << (alone ? ", one process" : ", three processes"));
      CHECK(job.exit_code() == 128 + SIGABRT);
      INFO(job.errors);
      CHECK_THAT(job.errors, Contains(!alone && mode == "thread-there" ? "w1: error: " : "w0: error: "));
      CHECK_THAT(job.errors,
                 Contains(mode == "thread-forgotten"
                              ? "a std::thread was destroyed before join() or detach()"
                              : "std::invalid_argument: the thread has had enough; nobody caught it"));
      CHECK_THAT(job.output, Contains("a line before the end"));
      CHECK(job.nothing_left());
    }
}

TEST_CASE("Ctrl-C names at once the method that keeps a program from ending, and a second one ends it",
          "[process]") {
  for (const bool alone : {true, false}) {
    for (const std::string mode : {"spin", "driver-spins"}) {
      std::vector<std::string> command{program("endings"), "--timeout", "100", "--mode", mode};
      if (!alone) command.insert(command.begin(), {kTroupeCommand, "run", "-n", "3", "--grace", "100"});
      Process job(command);
      job.await("spinning");
      job.signal(SIGINT);
      if (mode == "spin") {
        job.await_error("[launch] Hopper::spin on w2 (Hopper#");
        job.await_error("is still running; the program ends when it returns, or after 100 s");
      } else {
        job.await_error(
            "w0: [launch] interrupted, and the driver goes on; the program ends when it returns (Ctrl-C "
            "again ends it now)");
      }
      job.signal(SIGINT);
      CHECK(job.exit_code() == 130);
      CHECK(job.nothing_left());
    }
  }
}

TEST_CASE("the line that names a lost worker stands above those of messages to it, which are counted",
          "[process]") {
  auto job = ending("tells");
  CHECK(job.exit_code() == 137);
  INFO(job.errors);
  const size_t loss = job.errors.find("troupe warning: worker w2 was lost: "),
               message =
                   job.errors.find("troupe warning: a message to w2 was not sent\n  in call of Hopper::hop");
  REQUIRE(message != std::string::npos);
  CHECK(loss < message);
  CHECK(Process::count(job.errors, "worker w2 was lost") <= 2);  // the other by the end of the cluster
  // Those that had left when w2 died, and those that had not, have lines of their own.
  std::map<std::string, int> told;
  const std::regex line(
      "a message to w2 was not sent\n  in call of Hopper::hop( from w0)?(?:\n  \\[(\\d+) times so far\\])?");
  size_t lines = 0;
  for (std::sregex_iterator at(job.errors.begin(), job.errors.end(), line), end; at != end; ++at, ++lines)
    told[(*at)[1]] = (*at)[2].matched ? std::stoi((*at)[2]) : 1;
  CHECK(told[""] + told[" from w0"] == 50);
  CHECK(lines <= 6);
}

TEST_CASE("a program whose actor could not be made, and that never uses it, does not end with 0",
          "[process]") {
  for (const bool alone : {true, false}) {
    std::vector<std::string> command{program("endings"), "--mode", "unmade"};
    if (!alone) command.insert(command.begin(), {kTroupeCommand, "run", "-n", "3"});
    Process job(command);
    CHECK(job.exit_code() == 1);
    INFO(job.errors);
    CHECK(Process::count(job.errors,
                         "an actor could not be made, and nobody used it: std::runtime_error: "
                         "cannot be made\n") == 1);
    CHECK_THAT(job.errors,
               Contains("  in constructor of Broken on w1 (Broken#") && Contains("w0: error: [cluster] "));
    CHECK(job.nothing_left());
  }
}

TEST_CASE("a worker that dies while the cluster ends is named, and all others end", "[process]") {
  auto job = ending("kill");
  CHECK(job.exit_code() == 137);
  CHECK_THAT(job.errors, Contains("w0: error: worker w2 was lost") && Contains("troupe run: w2 (pid "));
  CHECK(job.nothing_left());
}

TEST_CASE("a worker that never comes to the end is named in bounded time", "[process]") {
  auto job = ending("stop", "0.5");
  CHECK(job.exit_code() != 0);
  CHECK_THAT(job.errors,
             Contains("w0: error: [cluster] still under way after") && Contains("w2 does not answer"));
  CHECK(job.nothing_left());
}

TEST_CASE("actors of a program that hold each other are listed at its end, or are its error", "[process]") {
  auto warned = ending("cycle", "60", "warn");
  CHECK(warned.exit_code() == 0);
  CHECK_THAT(warned.errors, Contains("leaked") && Contains("Hopper#") && Contains(" on w1"));
  auto refused = ending("cycle");
  CHECK(refused.exit_code() == 1);
  CHECK_THAT(refused.errors,
             Contains("w0: error: [cluster] leaked") && Contains("Hopper#") && Contains(" on w1"));
}

struct Echo : Actor {
  Tensor echo(Tensor x) { return x; }
  Task<Tensor> by(RRef<Echo> other, Tensor x) { co_return co_await other.call<&Echo::echo>(x); }
  static constexpr auto remote = methods<&Echo::echo, &Echo::by>;
};

namespace {

LaunchEnvironment environment_of(uint32_t rank, uint32_t world) {
  return {.rank = rank,
          .world = world,
          .source = "test",
          .address = "unix:@troupe-shutdown-" + std::to_string(getpid()),
          .token = "a token for shutdown tests, long enough"};
}

// Worker 1 of two, on a thread of this process, until the cluster ends.
struct Second {
  int code = -1;
  std::thread thread{[this] {
    Promise<int> stop;
    code = WorkerProcess::join(environment_of(1, 2), hosting<Echo>())->serve(stop.future());
  }};
};

}  // namespace

TEST_CASE("a cluster over sockets is made, ended and made again in one process, and two at once are refused",
          "[process]") {
  for (int round = 0; round < 3; ++round) {
    Second second;
    auto cluster =
        Cluster::coordinate(environment_of(0, 2), hosting<Echo>(), {.leak_check = LeakCheck::error});
    auto echo = cluster->spawn<Echo>("w1");
    CHECK(echo.call<&Echo::echo>(full({2}, 4.0)).get().to_vector<float>() == std::vector<float>{4, 4});
    CHECK_THAT(text_of([] { Cluster::coordinate(environment_of(0, 2), hosting<Echo>()); }),
               Contains("unix:@troupe-shutdown-"));
    cluster->set_exit_code(round);
    cluster->shutdown();
    second.thread.join();
    CHECK(second.code == round);
  }
}

TEST_CASE(
    "who knows that a worker will not come ends the wait for it, and the environment says how long it may "
    "take",
    "[process]") {
  Promise<void> stop;
  std::thread teller([&] { stop.fail(Error(ErrorKind::failed, "w1 will not come")); });
  CHECK(text_of([&] { Cluster::coordinate(environment_of(0, 2), hosting<Echo>(), {}, stop.future()); }) ==
        "w1 will not come");
  teller.join();
  auto environment = environment_of(0, 2);
  environment.join_timeout = std::chrono::milliseconds(20);
  CHECK_THAT(text_of([&] { Cluster::coordinate(environment, hosting<Echo>()); }),
             Contains("after 0.02 s these workers have not joined: w1"));
  environment.rank = 1;
  CHECK_THAT(text_of([&] { WorkerProcess::join(environment, hosting<Echo>()); }),
             Contains("w1 has not reached worker 0 within 0.02 s"));
}

TEST_CASE("a newcomer to a complete cluster is refused with a message, and the cluster goes on",
          "[process]") {
  Second second;
  auto cluster = Cluster::coordinate(environment_of(0, 2), hosting<Echo>());
  for (const uint32_t rank : {2, 1})
    CHECK_THAT(text_of([&] { WorkerProcess::join(environment_of(rank, 3), hosting<Echo>()); }),
               Contains(rank == 2 ? "rank 2 cannot join a cluster of 2" : "is its rank used twice?"));
  CHECK(cluster->workers() == std::vector<std::string>{"w0", "w1"});
  CHECK(cluster->spawn<Echo>("w1").call<&Echo::echo>(full({2}, 4.0)).get().numel() == 2);
  cluster->shutdown();
  second.thread.join();
  CHECK(second.code == 0);
}

namespace {

// A worker that joins by itself, on a thread of this process, until the cluster ends or it leaves.
struct Newcomer {
  explicit Newcomer(uint32_t rank)
      : process(WorkerProcess::join(environment_of(rank, rank + 1), hosting<Echo>())) {}
  ~Newcomer() {
    if (thread.joinable()) thread.join();
  }
  std::unique_ptr<WorkerProcess> process;
  int code = -1;
  std::thread thread{[this] {
    Promise<int> stop;
    code = process->serve(stop.future());
  }};
};

}  // namespace

TEST_CASE("workers join an elastic cluster later, are used by old and new ones, and leave by name",
          "[process]") {
  Second second;
  auto cluster = Cluster::coordinate(environment_of(0, 2), hosting<Echo>(), {.elastic = true});
  const auto four = full({2}, 4.0);
  const auto next = cluster->joined("w2");
  CHECK_FALSE(next.is_ready());
  {
    Newcomer third(2);
    next.get();
    CHECK(cluster->workers() == std::vector<std::string>{"w0", "w1", "w2"});
    auto old = cluster->spawn<Echo>("w1"), late = cluster->spawn<Echo>("w2");
    CHECK(old.call<&Echo::by>(late, four).get().to_vector<float>() == std::vector<float>{4, 4});
    CHECK(late.call<&Echo::by>(old, four).get().to_vector<float>() == std::vector<float>{4, 4});
    const auto straight = [&] {
      return cluster->metrics("w1")["arguments_sent"] > 0 && cluster->metrics("w2")["arguments_sent"] > 0;
    };
    do {  // results go straight to it and from it
      const auto there = late.call<&Echo::echo>(old.call<&Echo::echo>(four));
      const auto back = old.call<&Echo::echo>(late.call<&Echo::echo>(old.call<&Echo::echo>(four)));
      const auto again = late.call<&Echo::echo>(old.call<&Echo::echo>(late.call<&Echo::echo>(four)));
      for (const auto& f : {there, back, again})
        CHECK(f.get().to_vector<float>() == std::vector<float>{4, 4});
    } while (!straight());
    CHECK_THAT(text_of([&] { Newcomer(1); }), Contains("w1"));
    third.process->leave();
    CHECK(cluster->workers() == std::vector<std::string>{"w0", "w1"});
    CHECK_THAT(text_of([&] { late.call<&Echo::echo>(four).get(); }), Contains("w2 has left the cluster"));
    CHECK_THAT(text_of([&] { old.call<&Echo::by>(late, four).get(); }), Contains("w2 has left the cluster"));
    CHECK_THAT(text_of([&] { late.call<&Echo::echo>(old.call<&Echo::echo>(four)).get(); }),
               Contains("w2 has left the cluster"));
  }
  Newcomer fourth(3);
  cluster->joined("w3").get();
  CHECK(cluster->spawn<Echo>("w3").call<&Echo::echo>(four).get().numel() == 2);
  cluster->shutdown();
  second.thread.join();
  CHECK(second.code == 0);
}

// Worker 0 closes the connection right behind its answer.
TEST_CASE("a worker that leaves never takes the end of its connection for the loss of worker 0",
          "[process]") {
  auto cluster = Cluster::coordinate(environment_of(0, 1), hosting<Echo>(), {.elastic = true});
  for (uint32_t rank = 1; rank <= 40; ++rank) {
    auto worker = std::make_unique<Newcomer>(rank);
    cluster->joined("w" + std::to_string(rank)).get();
    worker->process->leave();
    worker->thread.join();
    CHECK(worker->code == 0);
  }
  cluster->shutdown();
}

TEST_CASE("nobody leaves a cluster that is not elastic before its end", "[process]") {
  Promise<int> stop;
  std::string refusal;
  std::thread thread([&] {
    auto process = WorkerProcess::join(environment_of(1, 2), hosting<Echo>());
    refusal = text_of([&] { process->leave(); });
    process->serve(stop.future());
  });
  auto cluster = Cluster::coordinate(environment_of(0, 2), hosting<Echo>());
  CHECK(cluster->spawn<Echo>("w1").call<&Echo::echo>(full({2}, 4.0)).get().numel() == 2);
  cluster->shutdown();
  thread.join();
  CHECK_THAT(refusal, Contains("is not elastic"));
}

TEST_CASE("what a worker prints under a launcher arrives as it is printed", "[process]") {
  auto job = ending("say");
  CHECK(job.exit_code() != 0);
  CHECK(Process::count(job.output, "a line that nobody flushed") == 1);
}
