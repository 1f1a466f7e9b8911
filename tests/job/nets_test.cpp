// What is forgotten is said: names that do not fit, bytes that no state has, steps that come to other
// numbers.
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

#include "actors/worker/worker.h"
#include "core/base/log.h"
#include "data/checkpoint/checkpoint_files.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tools/program.h"
#include "troupe/checkpoint/rehearsal.h"
#include "troupe/job/witness.h"
#include "troupe/server.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;
using internal::Rehearsal;
using internal::Witness;
using testing::error_of;

namespace {

int64_t nets_offset = 0;  // of NetsCounting::calls

struct NetsCounting : Actor {
  NetsCounting(bool keeps, bool anew)
      : line(1, 1), optimizer(line.parameters(), {.lr = 0.1}), rate(optimizer, optim::cosine(50)) {
    if (keeps) keep.emplace("calls", calls);
    if (anew) keep.emplace(Keep::anew, calls);
  }
  int64_t call() {
    optimizer.zero_grad();
    autograd::backward(line(ones({1, 1})).square().mean());
    optimizer.step(), rate.step();
    nets_offset = reinterpret_cast<char*>(&calls) - reinterpret_cast<char*>(this);
    return ++calls;
  }
  nn::Linear line;
  optim::Adam optimizer;
  optim::Scheduler rate;
  int64_t calls = 0;
  std::optional<Keep> keep;
  static constexpr auto remote = methods<&NetsCounting::call>;
};

std::vector<std::string>& nets_log() {
  static std::vector<std::string> lines;
  return lines;
}

// Else the first steps end while the first checkpoint is written.
void nets_await_first(const std::string& dir) {
  while (datasets::committed_steps(dir).empty()) std::this_thread::yield();
}

// Those that a loop logs in which an actor counts.
std::vector<std::string> nets_warnings(bool keeps, bool anew) {
  nets_log().clear();
  internal::log::set_sink([](internal::log::Level, const std::string& text) { nets_log().push_back(text); });
  {
    const testing::Folder folder;
    auto cluster = Cluster::in_process(2, hosting<NetsCounting>(),
                                       {.checkpoints = {(folder.path / "run").string(), false, 2, 2}});
    const auto counting = cluster->spawn<NetsCounting>("w1", keeps, anew);
    Job job(*cluster);
    for (const int64_t step : job.steps(8)) {
      if (step == 0) nets_await_first((folder.path / "run").string());
      CHECK(counting.call<&NetsCounting::call>().get() == step + 1);
    }
  }
  internal::log::set_sink(nullptr);
  return nets_log();
}

// A loop without a cluster that comes to numbers[step]; how far it came.
int64_t nets_loop(const Checkpoints& checkpoints, const std::vector<double>& numbers, int64_t stop = 100) {
  Job job(checkpoints);
  int64_t last = -1;
  for (const int64_t step : job.steps(std::ssize(numbers))) {
    if (step == stop) break;
    if (step == 0) nets_await_first(checkpoints.dir);
    job.check(numbers[static_cast<size_t>(step)]);
    last = step;
  }
  return last;
}

}  // namespace

TEST_CASE("bytes of an actor that training changes and no state has are a warning, once and by name") {
  const auto warnings = nets_warnings(false, false);
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Contains("[job] training changes bytes of ") &&
                              Contains("NetsCounting#0 that no") && Contains("Name those members in a Keep"));
  const std::string at = std::to_string(nets_offset);
  CHECK_THAT(warnings[0], Contains(": " + at + " to " + at + " of "));
}

TEST_CASE("members that are kept, or made anew, modules, optimizers and schedules are no warning") {
  CHECK(nets_warnings(true, false).empty());
  CHECK(nets_warnings(false, true).empty());
}

TEST_CASE("what is Stateful is no byte without state, whatever comes and goes beside it") {
  nets_log().clear();
  internal::log::set_sink([](internal::log::Level, const std::string& text) { nets_log().push_back(text); });
  {
    const testing::Folder folder;
    const std::string dir = (folder.path / "run").string();
    auto cluster =
        Cluster::in_process(2, hosting<NetsCounting>(), {.checkpoints = {.dir = dir, .every = 1, .keep = 9}});
    const auto counting = cluster->spawn<NetsCounting>("w1", true, false);
    (void)counting.call<&NetsCounting::call>().get();
    Job job(*cluster);
    int64_t n = 0;
    std::optional<Keep> beside;  // the next one behind the actor's in the list of all
    for ([[maybe_unused]] const int64_t step : job.steps()) {
      const size_t made = datasets::committed_steps(dir).size();
      if (made == 1) beside.emplace("n", n);
      if (made == 3) break;
    }
  }
  internal::log::set_sink(nullptr);
  CHECK(nets_log() == std::vector<std::string>{});
}

TEST_CASE("a step that is made again and comes to another number stops the job, and says so") {
  const testing::Folder folder;
  Checkpoints at{(folder.path / "run").string(), true, 4, 2};
  const std::vector<double> numbers{1, 2, 3, 4, 5, std::nan(""), 0.1, 8, 9, 10};
  CHECK(nets_loop(at, numbers, 7) == 6);
  const int64_t from = datasets::committed_steps(at.dir).back();  // 4, unless the disk was slow
  REQUIRE((from == 4 || from == 0));
  auto other = numbers;
  SECTION("the same numbers") {
    CHECK(nets_loop(at, numbers) == 9);
    CHECK(nets_loop(at, numbers) == -1);
  }
  SECTION("another one in the last bit") {
    other[6] = std::nextafter(0.1, 1);
    const Error e = error_of([&] { (void)nets_loop(at, other); });
    CHECK_THAT(e.what(), Contains("step 6 is made again since checkpoint " + std::to_string(from) +
                                  ", and comes to 0.100000000") &&
                             Contains("the first time to 0.10000000000000001: a variable") &&
                             Contains("remove " + at.dir + "/witness and go on"));
    // Again, until somebody does what it says.
    CHECK(error_of([&] { (void)nets_loop(at, other); }).kind() == ErrorKind::invalid);
    std::filesystem::remove(at.dir + "/witness");
    CHECK(nets_loop(at, other) == 9);
  }
  SECTION("without a witness") {
    other[6] = -1;
    at.unwitnessed = true;
    CHECK(nets_loop(at, other) == 9);
  }
  SECTION("steps before the checkpoint, and those that were not made") {
    if (from == 4) other[3] = -1;
    other[8] = -1;
    CHECK(nets_loop(at, other) == 9);
  }
  SECTION("a file that is none, or was torn") {
    std::filesystem::resize_file(at.dir + "/witness", 7 * 32 - 5);
    other[6] = -1;  // the one that was torn
    CHECK(nets_loop(at, other) == 9);
  }
}

TEST_CASE("several numbers of a step are compared one by one") {
  const testing::Folder folder;
  const std::string path = (folder.path / "witness").string();
  {
    Witness first(path, 0, true);
    for (const double x : {1., 2.}) CHECK_FALSE(first.note(0, x));
    for (const double x : {3., 4., 5.}) CHECK_FALSE(first.note(1, x));
  }
  {
    Witness again(path, 1, true);
    CHECK_FALSE(again.note(1, 3));
    CHECK(again.note(1, 40) == 4);
    CHECK_FALSE(again.note(1, 5));
    CHECK_FALSE(again.note(1, 6));  // a number more
    CHECK_FALSE(again.note(2, 1));
  }
  CHECK_FALSE(Witness(path, 1, false).note(1, 100));
  CHECK_FALSE(Witness(path, 1, true).note(2, 100));  // that one did not keep what was there
}

TEST_CASE("what is no file in the place of a witness is refused, without waiting") {
  namespace fs = std::filesystem;
  for (const char* name : {"witness", "witness.new"}) {
    const testing::Folder folder;
    const fs::path path = folder.path / name;
    const auto refused = [&] {
      return error_of([&] { Witness none((folder.path / "witness").string(), 0, true); }).message();
    };
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    CHECK_THAT(refused(), Contains(path.string() + " is not a regular file"));
    fs::remove(path);
    fs::create_symlink("/dev/zero", path);
    CHECK_THAT(refused(), Contains("is not a regular file"));
    fs::remove(path);
    fs::create_directory(path);
    CHECK_THAT(refused(), Contains("is not a regular file"));
  }
}

TEST_CASE("a loss of tools::Training is a witness") {
  const testing::Folder folder;
  const auto run = [&](double factor, int64_t stop) {
    tools::Training training((folder.path / "c.svg").string(), "loss", 20);
    Job job(Checkpoints{(folder.path / "run").string(), true, 4, 2});
    for (const int64_t step : job.steps(20)) {
      if (step == stop) break;
      if (step == 0) nets_await_first((folder.path / "run").string());
      training.step(factor * static_cast<double>(step), 1);
    }
  };
  run(1, 7);
  const bool slow = datasets::committed_steps((folder.path / "run").string()).back() == 0;
  CHECK_THAT(error_of([&] { run(2, -1); }).what(),
             Contains(slow ? "comes to 2, the first time to 1:" : "comes to 8, the first time to 4:"));
  Job::check_current(5);  // in no loop
}

TEST_CASE("policies that look at who comes first have no witness") {
  const auto replay = [](const std::string& policy) {
    const testing::Folder folder;
    std::optional<Error> error;
    for (const double number : {1., 2.}) {
      auto cluster =
          Cluster::in_process(2, {}, {.checkpoints = {(folder.path / "run").string(), true, 2, 2}});
      const auto served = parallel::serve(cluster->here(), {"w1"}, {zeros({2})},
                                          {.policy = parallel::ServerPolicy::parse(policy), .trainers = 1});
      parallel::Client client(served);
      Job job(*cluster);
      try {
        for (const int64_t step : job.steps(6)) {
          if (step == 3 && number == 1) break;
          if (step == 0) nets_await_first((folder.path / "run").string());
          job.check(number);
          (void)client.pull().get();
          (void)client.push({ones({2})}).get();
        }
      } catch (const CheckpointRefused& e) {
        error = e;
      }
    }
    return error.has_value();
  };
  CHECK(replay("bsp"));
  CHECK_FALSE(replay("async"));
  CHECK_FALSE(replay("quorum(1)"));
  using parallel::ServerPolicy;
  for (const auto& [policy, repeats] : std::map<std::string, bool>{{"bsp", true},
                                                                   {"ssp(0)", true},
                                                                   {"ssp(3)", false},
                                                                   {"async", false},
                                                                   {"quorum(2)", false},
                                                                   {"delayed", true},
                                                                   {"local(8)", true}})
    CHECK(ServerPolicy::parse(policy).repeats() == repeats);
}

TEST_CASE("a checkpoint that has more than the program is refused by name") {
  const testing::Folder folder;
  const Checkpoints at{(folder.path / "run").string(), true, 1, 2};
  int64_t n = 0;
  {
    Keep keep("n", n);
    (void)nets_loop(at, {1, 2});
  }
  CHECK_THAT(error_of([&] {
               (void)nets_loop(at, {1, 2});
             }).what(),
             Contains("the driver has nothing that fits Keep#0.n"));
}

TEST_CASE(
    "a job whose worker is lost in its loop ends with that, and makes no checkpoint without its actors") {
  const testing::Folder folder;
  const std::string dir = (folder.path / "run").string();
  for (const int64_t when : {2, 5}) {  // the last step, too
    auto cluster = Cluster::in_process(3, hosting<NetsCounting>(), {.checkpoints = {dir, true, 1, 9}});
    const auto counting = cluster->spawn<NetsCounting>("w1", true, false);
    Job job(*cluster);
    const Error e = error_of([&] {
      for (const int64_t step : job.steps(6)) {
        if (step == 0) nets_await_first(dir);
        (void)counting.call<&NetsCounting::call>().get();
        if (step == when)
          cluster->worker().members().mark_lost(1, Error(ErrorKind::disconnected, "w1 was killed"));
      }
    });
    CHECK(e.kind() == ErrorKind::disconnected);
    CHECK_THAT(e.what(), Contains("w1 was killed"));
    if (when == 5)  // no call of the driver's that would say so
      CHECK_THAT(e.what(), Contains("[job] the loop ends with step 6, which is in no checkpoint of " + dir) &&
                               Contains("and w1 had some of them: w1 was killed"));
    const auto steps = datasets::committed_steps(dir);
    REQUIRE_FALSE(steps.empty());
    CHECK(steps.back() <= when);
    for (const int64_t step : steps) {
      const auto index = datasets::Checkpoint(datasets::checkpoint_path(dir, step)).index();
      CHECK(index.layout.contains("NetsCounting#0"));
    }
  }
}

TEST_CASE("a job whose worker was lost before its loop makes no checkpoint without that worker's actors") {
  const testing::Folder folder;
  const auto begin = [&](bool lost) {
    auto cluster = Cluster::in_process(3, hosting<NetsCounting>(),
                                       {.checkpoints = {(folder.path / "run").string(), true, 2, 2}});
    const auto counting = cluster->spawn<NetsCounting>("w1", true, false);
    (void)counting.call<&NetsCounting::call>().get();
    if (lost) cluster->worker().members().mark_lost(1, Error(ErrorKind::disconnected, "w1 was killed"));
    Job job(*cluster);
    for ([[maybe_unused]] const int64_t step : job.steps(2)) {
    }
  };
  for (const size_t checkpoints : {0, 2}) {  // to be begun, to be gone on from
    const Error e = error_of([&] { begin(true); });
    CHECK(e.kind() == ErrorKind::disconnected);
    CHECK_THAT(e.what(), Contains("w1 was killed"));
    CHECK((datasets::committed_steps((folder.path / "run").string()).size() > 0) == (checkpoints > 0));
    begin(false);
  }
}

TEST_CASE("what a rehearsal is told is a text, and others are refused") {
  const Rehearsal r{.steps = 12, .kills = {6, 9}, .dir = "/tmp/a:b"};
  CHECK(r.str() == "12:6,9:/tmp/a:b");
  const Rehearsal back = Rehearsal::parse(r.str());
  CHECK((back.steps == 12 && back.kills == std::vector<int64_t>{6, 9} && back.dir == "/tmp/a:b"));
  CHECK(Rehearsal::parse("3::d").kills.empty());
  for (const char* text : {"", "12", "12:6", "12:6:", "x:6:d", "0:6:d", "12:-1:d", "12:6,,9:d", "12:6x:d"}) {
    INFO(text);
    CHECK_THAT(error_of([&] { (void)Rehearsal::parse(text); }).what(),
               Contains("expected steps, kills and a folder"));
  }
}
