// Jobs: training that stops anywhere goes on from its checkpoints with the same bits.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/base/log.h"
#include "data/checkpoint/checkpoint_files.h"
#include "data/datasets/digits.h"
#include "data/streams/feed.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/stopped_run.h"
#include "tools/program.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;
using testing::error_of;

namespace {

struct JobBottom : Actor {
  explicit JobBottom(uint64_t seed) : random(seed), fc(784, 32, random) {}
  Tensor forward(Tensor x) { return dropout(relu(fc(x))); }
  Generator random;
  nn::Linear fc;
  nn::Dropout dropout{0.2};
  static constexpr auto remote = methods<&JobBottom::forward>;
};

struct JobTop : Actor {
  explicit JobTop(uint64_t seed) : random(seed), out(32, 10, random) {}
  Tensor forward(Tensor x) {
    ++calls;
    return out(x) * (1 + 0.01 * random.uniform());
  }
  void fail() {
    const NoGradGuard none;
    out.weight.mul_(2), ++calls, random.uniform();
    throw_error(ErrorKind::failed, "it fails when it has changed all this");
  }
  Generator random;
  nn::Linear out;
  int64_t calls = 0;
  Keep keep{"random", random, "calls", calls};
  static constexpr auto remote = methods<&JobTop::forward, &JobTop::fail>;
};

struct JobIdle : Actor {
  void nothing() {}
  static constexpr auto remote = methods<&JobIdle::nothing>;
};

struct JobRun {
  std::vector<double> losses;  // of all steps that this run made
  double kept = 0;             // of a variable of the driver
  std::map<std::string, Tensor> bottom;
  bool resumed = false;
};

struct JobStopped {};  // what ends a run, as a killed process would

const datasets::Dataset& job_digits() {
  static const datasets::Dataset set = datasets::generated_digits(120, 7);
  return set;
}

// A training like examples/digits.cpp, over so many workers; it stops before `stop`.
JobRun job_run(const Checkpoints& checkpoints, int workers = 3, int64_t stop = -1) {
  manual_seed(3);
  JobRun out;
  auto cluster = Cluster::in_process(workers, hosting<JobBottom, JobTop>(), {.checkpoints = checkpoints});
  const auto names = cluster->workers();
  const auto bottom = cluster->spawn<JobBottom>(names[1 % names.size()], 5);
  const auto top = cluster->spawn<JobTop>(names[2 % names.size()], 6);
  optim::Distributed<optim::Adam> optimizer({bottom, top}, {.lr = 0.01});
  optim::Scheduler rate(optimizer, optim::cosine(18));
  datasets::Loader loader(job_digits(), {.batch_size = 20, .seed = 9});
  double sum = 0;
  Keep keep("sum", sum);
  Job job(*cluster);
  try {
    int64_t made = 0;
    for (auto [x, y, epoch, last] : job.batches(loader, 3)) {
      if (stop >= 0 && made++ == stop) throw JobStopped();
      autograd::Context step(*cluster);
      const Tensor noise = ops::rand({1}) * 0.01;
      Tensor loss = cross_entropy(top(bottom(x)).get() + noise, y);
      step.backward(loss);
      optimizer.step(step), rate.step();
      sum += loss.item();
      out.losses.push_back(loss.item());
      CHECK(epoch < 3);
      CHECK((job.resumed() || last == (out.losses.size() % 6 == 0)));
    }
  } catch (const JobStopped&) {
  }
  out.resumed = job.resumed();
  out.kept = sum;
  out.bottom = nn::remote_state_dict(bottom).get();
  manual_seed(0);
  return out;
}

void same_end(const JobRun& a, const JobRun& whole) {
  REQUIRE(a.losses.size() <= whole.losses.size());
  const std::vector<double> end(whole.losses.end() - std::ssize(a.losses), whole.losses.end());
  CHECK(a.losses == end);
  CHECK(a.kept == whole.kept);
  for (const auto& [name, t] : whole.bottom) {
    INFO(name);
    CHECK(bit_equal(t, a.bottom.at(name)));
  }
}

std::vector<std::string>& job_log() {
  static std::vector<std::string> lines;
  return lines;
}

struct JobLog {
  JobLog() {
    job_log().clear();
    internal::log::set_sink([](internal::log::Level, const std::string& text) { job_log().push_back(text); });
  }
  ~JobLog() { internal::log::set_sink(nullptr); }
  static std::string all() {
    std::string out;
    for (const auto& line : job_log()) out += line + "\n";
    return out;
  }
};

}  // namespace

TEST_CASE("a job that is stopped anywhere goes on with the same bits, on any number of workers") {
  const JobRun whole = job_run({});
  REQUIRE(whole.losses.size() == 18);
  Generator random(41);
  for (const int workers : {3, 1, 2, 5}) {
    const testing::Folder folder;
    const auto stop = static_cast<int64_t>(1 + random.below(16));
    INFO("stopped before step " << stop << ", resumed on " << workers);
    const Checkpoints every{(folder.path / "run").string(), false, 3, 2};
    (void)job_run(every, 3, stop);
    const auto steps = datasets::committed_steps(every.dir);
    REQUIRE_FALSE(steps.empty());
    CHECK(steps.back() <= stop);
    CHECK(steps.size() <= 2);
    Checkpoints again = every;
    again.resume = true;
    const JobRun resumed = job_run(again, workers);
    CHECK(resumed.resumed);
    CHECK(resumed.losses.size() == static_cast<size_t>(18 - steps.back()));
    same_end(resumed, whole);
    CHECK(datasets::committed_steps(every.dir).back() == 18);
    const JobRun finished = job_run(again, 2);  // nothing is left to do
    CHECK(finished.losses.empty());
    same_end(finished, whole);
  }
}

TEST_CASE("half a step, and what a method changed before it failed, are forgotten") {
  constexpr int64_t kFails = 7, kLast = 12;
  struct End {
    std::vector<double> losses;
    std::map<std::string, Tensor> bottom, top;
  };
  End out;
  const auto run = [&](const Checkpoints& checkpoints, bool fails) {
    manual_seed(3);
    out = {};
    auto cluster = Cluster::in_process(3, hosting<JobBottom, JobTop>(), {.checkpoints = checkpoints});
    const auto bottom = cluster->spawn<JobBottom>("w1", 5);
    const auto top = cluster->spawn<JobTop>("w2", 6);
    optim::Distributed<optim::Adam> first({bottom}, {.lr = 0.01}), second({top}, {.lr = 0.02});
    Job job(*cluster);
    for (const int64_t step : job.steps(kLast)) {
      autograd::Context context(*cluster);
      const Tensor loss = top(bottom(ops::rand({4, 784}))).get().square().mean();
      context.backward(loss);
      first.step(context);
      if (fails && step == kFails) top.call<&JobTop::fail>().get();
      second.step(context);
      out.losses.push_back(loss.item());
    }
    out.bottom = nn::remote_state_dict(bottom).get(), out.top = nn::remote_state_dict(top).get();
  };
  const testing::Folder folder;
  run({}, false);
  const End whole = out;
  const Checkpoints at{(folder.path / "run").string(), true, 1, 2};
  CHECK_THAT(error_of([&] { run(at, true); }).what(), Contains("it fails when it has changed all this"));
  const int64_t from = datasets::committed_steps(at.dir).back();
  CHECK(from <= kFails);
  run(at, false);
  CHECK(out.losses == std::vector<double>(whole.losses.begin() + from, whole.losses.end()));
  for (const auto& [name, t] : whole.bottom) CHECK(bit_equal(out.bottom.at(name), t));
  for (const auto& [name, t] : whole.top) CHECK(bit_equal(out.top.at(name), t));
}

TEST_CASE("checkpoints while training change nothing, and the last step is one") {
  const JobRun whole = job_run({});
  const testing::Folder folder;
  same_end(job_run({(folder.path / "a").string(), false, 1, 3}), whole);
  const auto steps = datasets::committed_steps((folder.path / "a").string());
  CHECK(steps.size() <= 3);  // a step that ends while a checkpoint is written makes none
  CHECK(steps.back() == 18);
  for (const int64_t step : steps)
    datasets::Checkpoint(datasets::checkpoint_path((folder.path / "a").string(), step)).verify();
  const datasets::Checkpoint last(datasets::checkpoint_path((folder.path / "a").string(), 18));
  const auto& index = last.index();
  CHECK(index.world == 3);
  const std::string bottom(internal::actors::type_name<JobBottom>());
  CHECK(index.layout.at(bottom + "#0") == "w1");
  CHECK(last.tensors(bottom + "#0.", true).contains("0.weight"));
  CHECK(last.tensors(bottom + "#0.", false).contains("adam#0.0.weight.exp_avg"));
  CHECK(last.tensors("driver.", false).contains("Scheduler#0.step"));
  // Seldom: the beginning and the end.
  same_end(job_run({(folder.path / "b").string()}), whole);
  CHECK(datasets::committed_steps((folder.path / "b").string()) == std::vector<int64_t>{0, 18});
}

TEST_CASE("a folder with checkpoints is used with resume alone, and without any resume begins") {
  const testing::Folder folder;
  const JobRun whole = job_run({});
  same_end(job_run({(folder.path / "run").string(), true, 0, 2}), whole);
  const Error e = error_of([&] { (void)job_run({(folder.path / "run").string()}); });
  CHECK(e.kind() == ErrorKind::invalid);
  CHECK_THAT(e.what(),
             Contains("has checkpoints, the newest of step 18: Checkpoints::resume goes on from there"));
  const Error by_flags =
      error_of([&] { (void)job_run({.dir = (folder.path / "run").string(), .by_flags = true}); });
  CHECK_THAT(by_flags.what(),
             Contains("has checkpoints, the newest of step 18: --resume goes on from there"));
}

TEST_CASE("a job that its launcher has started before goes on by itself") {
  for (const char* name : {"TROUPE_RESTART", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"}) {
    INFO(name);
    const testing::Folder folder;
    const std::string dir = (folder.path / "run").string();
    const JobRun whole = job_run({.dir = dir});
    setenv(name, "0", 1);
    CHECK_THAT(error_of([&] { (void)job_run({.dir = dir}); }).what(), Contains("has checkpoints"));
    setenv(name, "1", 1);
    same_end(job_run({.dir = dir}), whole);
    unsetenv(name);
  }
}

TEST_CASE("a job that is to go on, and has no folder, is refused") {
  const Checkpoints none{.dir = "", .resume = true};
  CHECK_THAT(error_of([&] { Job job(none); }).what(), Contains("has no folder of them"));
  auto cluster = Cluster::in_process(1, {}, {.checkpoints = none});
  CHECK_THAT(error_of([&] { Job job(*cluster); }).what(), Contains("set Checkpoints::dir"));
}

TEST_CASE("another program's checkpoint is refused by name") {
  const testing::Folder folder;
  const Checkpoints at{(folder.path / "run").string(), true, 0, 2};
  const auto run = [&](const std::function<void(Cluster&)>& make, int64_t steps = 3) {
    auto cluster = Cluster::in_process(2, {}, {.checkpoints = at});
    make(*cluster);
    Job job(*cluster);
    for (int64_t step : job.steps(steps)) (void)step;
  };
  std::vector<AnyRef> kept;
  const auto one = [&](Cluster& c) { kept = {c.spawn<JobIdle>("w1")}; };
  run(one);
  const auto refusal = [&](const std::function<void(Cluster&)>& make, int64_t steps = 3) {
    try {
      run(make, steps);
    } catch (const CheckpointRefused& e) {
      return std::string(e.what());
    }
    return std::string("no refusal");
  };
  const std::string idle(internal::actors::type_name<JobIdle>());
  CHECK_THAT(refusal([&](Cluster& c) {
               kept = {c.spawn<JobIdle>("w1"), c.spawn<JobIdle>("w0")};
             }),
             Contains("the checkpoint of step 3 in " + at.dir + " is refused") &&
                 Contains("it has no actor " + idle + "#1, and this program has made one on w0"));
  CHECK_THAT(refusal([&](Cluster&) { kept.clear(); }),
             Contains("it has " + idle + "#0, which this program has not made"));
  int64_t more = 0;
  {
    Keep keep("more", more);
    CHECK_THAT(refusal(one), Contains("the checkpoint has no \"more\""));
  }
  CHECK_THAT(refusal(one, 2), Contains("the loop ends at step 2"));
  // A bit of a file is another one.
  const std::string file = datasets::checkpoint_path(at.dir, 3) + "/w1.state.safetensors";
  {
    std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(-1, std::ios::end);
    f.put('\x55');
  }
  CHECK_THAT(refusal(one), Contains("w1.state.safetensors"));
}

TEST_CASE("what a checkpoint could not bring back is refused at the first one") {
  const testing::Folder folder;
  auto cluster = Cluster::in_process(2, hosting<JobTop>(), {.checkpoints = {(folder.path / "run").string()}});
  const auto top = cluster->spawn<JobTop>("w1", 1);
  SECTION("a context that does not end") {
    autograd::Context context(*cluster);
    autograd::Context::Guard guard(context);
    const Tensor y = top(ones({1, 32})).get();
    Job job(*cluster);
    CHECK_THAT(error_of([&] { (void)job.steps(3).begin(); }).what(), Contains("autograd contexts"));
  }
  SECTION("a result that stays") {
    const NoGradGuard none;
    const auto stays = top.remote<&JobTop::forward>(ones({1, 32}));
    (void)stays.to_here().get();
    Job job(*cluster);
    CHECK_THAT(error_of([&] { (void)job.steps(3).begin(); }).what(), Contains("Remote"));
  }
  SECTION("a variable with no values to save") {
    const RRef<JobTop> ref = top;
    RRef<JobTop> variable = ref;
    Keep keep("ref", variable);
    Job job(*cluster);
    CHECK_THAT(error_of([&] { (void)job.steps(3).begin(); }).what(), Contains("\"ref\" holds a reference"));
  }
  CHECK(datasets::committed_steps((folder.path / "run").string()).empty());
}

TEST_CASE("an actor that comes while the loop runs is named, and after three checkpoints the job fails") {
  const testing::Folder folder;
  auto cluster = Cluster::in_process(2, {}, {.checkpoints = {(folder.path / "run").string(), false, 1, 2}});
  std::vector<RRef<JobIdle>> actors{cluster->spawn<JobIdle>("w1")};
  const JobLog log;
  Job job(*cluster);
  int64_t last = -1;
  const Error e = error_of([&] {
    for (const int64_t step : job.steps(20000)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // so that few are skipped
      while (datasets::committed_steps((folder.path / "run").string()).empty()) std::this_thread::yield();
      if (step == 2) actors.push_back(cluster->spawn<JobIdle>("w0"));
      last = step;
    }
  });
  CHECK_THAT(e.what(), Contains("JobIdle#1 has come"));
  CHECK(last >= 4);
  CHECK_THAT(JobLog::all(), Contains("no checkpoint of step") && Contains("the newest is of step"));
}

TEST_CASE("a program without a cluster, and a training's curves, go on with the same bits") {
  const auto run = [](const Checkpoints& checkpoints, int64_t stop) {
    manual_seed(8);
    const testing::Folder pictures;
    Generator random(2);
    nn::Linear model(4, 1, random);
    optim::AdamW optimizer(model.parameters(), {.lr = 0.05});
    tools::Training training((pictures.path / "c.svg").string(), "loss", 20);
    Keep keep("random", random);
    Job job(checkpoints);
    for (const int64_t step : job.steps(20)) {
      if (step == stop) break;
      optimizer.zero_grad();
      const Tensor loss = model(ops::randn({8, 4}, random)).square().mean();
      autograd::backward(loss);
      optimizer.step();
      training.step(loss.item(), 8);
      if (step % 7 == 6) training.measure(loss.item());
    }
    manual_seed(0);
    return std::vector<double>{training.loss(20), training.loss(3), training.measured()};
  };
  const testing::Folder folder;
  const auto whole = run({}, -1);
  (void)run({(folder.path / "run").string(), false, 4, 2}, 11);
  CHECK(run({(folder.path / "run").string(), true, 4, 2}, -1) == whole);
}

TEST_CASE("a feed goes on where the checkpoint was made, with other rows and threads") {
  datasets::Dataset set{arange(97), arange(97)};
  const auto run = [&](const Checkpoints& checkpoints, int64_t stop, int64_t rows) {
    datasets::Feed feed(
        datasets::Pipeline(datasets::in_memory(set)).shuffle({.seed = 4, .block = 8}).batch(rows).repeat(3),
        {.ahead = {.threads = rows % 3 + 1}});
    std::vector<int64_t> seen;
    Job job(checkpoints);
    for (const int64_t step : job.steps()) {
      if (stop != Job::no_end && testing::has_stopped(checkpoints.dir, step, stop)) break;
      const auto batch = feed.next();
      if (!batch) break;
      for (const int64_t i : batch->tensor("x").to_vector<int64_t>()) seen.push_back(i);
    }
    return seen;
  };
  const auto whole = run({}, Job::no_end, 5);
  REQUIRE(whole.size() == 3 * 97);
  const testing::Folder folder;
  const std::string dir = (folder.path / "run").string();
  const auto before = run({dir, false, 1, 2}, 12, 5);
  const auto steps = static_cast<size_t>(testing::newest_step(dir));
  REQUIRE(steps > 0);
  auto all = std::vector<int64_t>(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(steps * 5));
  for (const int64_t i : run({dir, true, 1, 2}, Job::no_end, 7)) all.push_back(i);
  CHECK(all == whole);
}

TEST_CASE("a checkpoint that is not as it was written is refused, and the newest that is gets a name") {
  namespace fs = std::filesystem;
  const testing::Folder folder;
  const Checkpoints run{(folder.path / "run").string(), true, 3, 2};
  (void)job_run(run);
  const auto steps = datasets::committed_steps(run.dir);
  REQUIRE(steps.size() == 2);
  for (const auto& file : fs::directory_iterator(datasets::checkpoint_path(run.dir, steps.back())))
    if (file.path().string().ends_with("w1.model.safetensors")) fs::resize_file(file.path(), 100);
  const Error e = error_of([&] { (void)job_run(run); });
  CHECK_THAT(e.what(), Contains("the checkpoint of step " + std::to_string(steps.back())) &&
                           Contains("w1.model.safetensors: has 100 bytes") &&
                           Contains("the newest other checkpoint, of step " + std::to_string(steps.front()) +
                                    ", is whole"));
}

TEST_CASE("a checkpoint that was given the name of another step is refused, and nothing trains") {
  namespace fs = std::filesystem;
  const testing::Folder folder;
  const Checkpoints run{(folder.path / "run").string(), true, 3, 2};
  (void)job_run(run, 3, 7);
  const int64_t step = datasets::committed_steps(run.dir).back();
  const std::string renamed = datasets::checkpoint_path(run.dir, 15);
  fs::rename(datasets::checkpoint_path(run.dir, step), renamed);
  CHECK_THROWS_AS((void)job_run(run), CheckpointRefused);
  CHECK_THAT(error_of([&] { (void)job_run(run); }).what(),
             Contains("the checkpoint of step 15") && Contains("is of step " + std::to_string(step)));
  fs::rename(renamed, datasets::checkpoint_path(run.dir, step));
  CHECK(job_run(run).losses.size() == static_cast<size_t>(18 - step));
}

TEST_CASE("a job whose last step cannot be saved does not end well") {
  namespace fs = std::filesystem;
  const testing::Folder folder;
  const std::string run = (folder.path / "run").string();
  const JobLog log;
  {
    Job before({.dir = run});
    for ([[maybe_unused]] const int64_t step : before.steps(1)) continue;
  }
  Job job({.dir = run, .resume = true});  // all that came before is on the disk
  const Error e = error_of([&] {
    for (const int64_t step : job.steps(5)) {
      if (step != 4) continue;
      fs::rename(run, folder.path / "away");
      std::ofstream(run) << "no folder";
    }
  });
  CHECK(e.kind() == ErrorKind::failed);
  CHECK_THAT(e.what(), Contains("the loop ends with step 5, which is in no checkpoint of " + run));
  CHECK(datasets::committed_steps((folder.path / "away").string()).back() == 1);
}

TEST_CASE("a second loop has a folder of its own") {
  const testing::Folder folder;
  for (const bool again : {false, true}) {
    auto cluster = Cluster::in_process(1, {}, {.checkpoints = {(folder.path / "run").string(), again, 1, 2}});
    Job first(*cluster), second(*cluster, "second");
    int64_t steps = 0;
    for (int64_t step : first.steps(2)) steps += 1 + 0 * step;
    for (int64_t step : second.steps(3)) steps += 1 + 0 * step;
    CHECK(steps == (again ? 0 : 5));
    CHECK_THAT(error_of([&] { (void)first.steps(2).begin(); }).what(), Contains("has had its loop"));
  }
  CHECK(datasets::committed_steps((folder.path / "run/second").string()).back() == 3);
}
