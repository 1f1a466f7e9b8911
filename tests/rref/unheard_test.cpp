// Actors that could not be made and results that failed, of which nobody was told: the log, and the end of
// the cluster, say so.
#include <catch2/catch.hpp>

#include <any>
#include <atomic>
#include <mutex>
#include <thread>

#include "core/base/log.h"
#include "tests/support/error_of.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;
using Catch::StartsWith;
using testing::error_of;

namespace {

struct Broken : Actor {
  explicit Broken(int64_t number) {
    if (number < 0) throw std::runtime_error("a negative number");
  }
  int64_t fails() { throw std::runtime_error("never works"); }
  int64_t opened() {
    open.wait(false);
    return fails();
  }
  int64_t works() { return 7; }
  static inline std::atomic<bool> open{false};
  static constexpr auto remote = methods<&Broken::fails, blocking<&Broken::opened>, &Broken::works>;
};

struct Keeper : Actor {
  void make(std::string where, bool keep) {
    auto made = here().spawn<Broken>(where, int64_t{-1});
    if (keep) kept = made;
  }
  void take(RRef<Broken> one) { kept = one; }
  RRef<Broken> give() { return kept; }
  RRef<Broken> kept;
  static constexpr auto remote = methods<&Keeper::make, &Keeper::take, &Keeper::give>;
};

// What the log says while it is alive.
struct Lines {
  Lines() {
    text().clear();
    internal::log::set_sink([](internal::log::Level level, const std::string& line) {
      if (level < internal::log::Level::warning) return;
      const std::lock_guard lock(mutex());
      text() += line + "\n";
    });
  }
  ~Lines() { internal::log::set_sink(nullptr); }
  static std::mutex& mutex() {
    static std::mutex m;
    return m;
  }
  static std::string& text() {
    static std::string t;
    return t;
  }
  static std::string now() {
    const std::lock_guard lock(mutex());
    return text();
  }
};

using Hold = std::vector<std::any>;

// Runs it on three workers; what the log and the end of the cluster say.
std::string end_of(const std::function<void(Cluster&, Hold&)>& program) {
  const Lines lines;
  auto cluster = Cluster::in_process(3, hosting<Broken, Keeper>());
  Hold hold;
  program(*cluster, hold);
  const Error e = error_of([&] { cluster->shutdown(); });
  CHECK(e.kind() == ErrorKind::failed);
  CHECK_THAT(e.what(), StartsWith("[cluster] "));
  return lines.now() + e.what();
}

}  // namespace

TEST_CASE("an actor that could not be made and that nobody used is an error of the cluster's end") {
  for (const std::string where : {"w0", "w1"}) {
    const std::string why =
        "an actor could not be made, and nobody used it: std::runtime_error: "
        "a negative number\n  in constructor of ";
    INFO(where);
    CHECK_THAT(end_of([&](Cluster& c, Hold& hold) { hold.push_back(c.spawn<Broken>(where, -1)); }),
               Contains(why) && Contains("Broken on " + where + " ("));
    CHECK_THAT(end_of([&](Cluster& c, Hold&) { (void)c.spawn<Broken>(where, -1); }), Contains(why));
    CHECK_THAT(end_of([&](Cluster& c, Hold& hold) { hold.push_back(AnyRef(c.spawn<Broken>(where, -1))); }),
               Contains(why));
    CHECK_THAT(end_of([&](Cluster& c, Hold&) { (void)c.spawn_named<Broken>(where + "/one", -1); }),
               Contains(why));
    CHECK_THAT(end_of([&](Cluster& c, Hold& hold) {
                 hold.push_back(c.spawn<Keeper>("w2"));
                 std::any_cast<RRef<Keeper>>(hold[0]).call<&Keeper::take>(c.spawn<Broken>(where, -1)).get();
               }),
               Contains(why));
    for (const bool keep : {false, true})
      CHECK_THAT(
          end_of([&](Cluster& c, Hold&) { c.spawn<Keeper>("w1").call<&Keeper::make>(where, keep).get(); }),
          Contains(why));
    // Not made by the second name, nor told by a message that has no answer.
    CHECK_THAT(end_of([&](Cluster& c, Hold&) {
                 c.spawn_named<Broken>(where + "/one", 1).ready().get();
                 (void)c.spawn_named<Broken>(where + "/one", 1);
               }),
               Contains("an actor could not be made, and nobody used it: [names]"));
    CHECK_THAT(end_of([&](Cluster& c, Hold&) { c.spawn<Broken>(where, -1).tell<&Broken::works>(); }),
               Contains(why));
    CHECK_THAT(end_of([&](Cluster& c, Hold& hold) {
                 for (int i = 0; i < 6; ++i) hold.push_back(c.spawn<Broken>(where, -1));
               }),
               Contains(why) && Contains("and 2 more like these"));
  }
}

TEST_CASE("a result that failed and that nobody fetched is an error of the cluster's end") {
  for (const std::string where : {"w0", "w1"}) {
    const std::string why = "a result failed, and nobody fetched it: std::runtime_error: never works";
    CHECK_THAT(end_of([&](Cluster& c, Hold& hold) {
                 hold.push_back(c.spawn<Broken>(where, 1).remote<&Broken::fails>());
               }),
               Contains(why) && Contains("Broken::fails on " + where));
    CHECK_THAT(end_of([&](Cluster& c, Hold&) { (void)c.spawn<Broken>(where, 1).remote<&Broken::fails>(); }),
               Contains(why));
    // The reference goes before the method ends.
    CHECK_THAT(end_of([&](Cluster& c, Hold&) {
                 Broken::open = false;
                 (void)c.spawn<Broken>(where, 1).remote<&Broken::opened>();
                 Broken::open = true;
                 Broken::open.notify_all();
               }),
               Contains(why));
    // One failure, said once.
    const std::string both = end_of(
        [&](Cluster& c, Hold& hold) { hold.push_back(c.spawn<Broken>(where, -1).remote<&Broken::works>()); });
    CHECK_THAT(both, Contains("a result failed, and nobody fetched it: std::runtime_error: a "
                              "negative number") &&
                         !Contains("could not be made"));
  }
}

TEST_CASE("who was told of a failure is not told again at the end") {
  auto cluster = Cluster::in_process(3, hosting<Broken, Keeper>());
  const Lines lines;
  for (const std::string where : {"w0", "w1"}) {
    const auto broken = cluster->spawn<Broken>(where, -1), fine = cluster->spawn<Broken>(where, 1);
    CHECK_THAT(error_of([&] { broken.ready().get(); }).what(), Contains("a negative number"));
    const auto result = fine.remote<&Broken::fails>();
    CHECK_THAT(error_of([&] { result.to_here().get(); }).what(), Contains("never works"));
    const auto through = cluster->spawn<Broken>(where, -1).remote<&Broken::works>();
    CHECK_THAT(error_of([&] { through.to_here().get(); }).what(), Contains("a negative number"));
    (void)cluster->spawn_named<Broken>(where + "/one", -1);
    const auto found = cluster->lookup<Broken>(where + "/one").get();
    CHECK_THAT(error_of([&] { found.call<&Broken::works>().get(); }).what(), Contains("a negative number"));
  }
  const auto local = cluster->spawn<Broken>("w0", -1);
  CHECK_THAT(error_of([&] { local.local([](Broken&) {}).get(); }).what(), Contains("a negative number"));
  cluster->shutdown();
  CHECK(lines.now() == "");
}

TEST_CASE("while the cluster goes on, the log says what nobody can be told any more") {
  auto cluster = Cluster::in_process(2, hosting<Broken>());
  const Lines lines;
  (void)cluster->spawn<Broken>("w1", -1);
  while (lines.now().empty()) std::this_thread::yield();
  CHECK_THAT(lines.now(), Contains("an actor could not be made, and nobody used it: std::runtime_error: a "
                                   "negative number\n  in constructor of "));
  CHECK_THAT(error_of([&] { cluster->shutdown(); }).what(),
             Contains("[cluster] nobody was told of a failure, which the log of its worker has"));
}

TEST_CASE("a cluster that ends without a word says in the log what nobody was told of") {
  const Lines lines;
  {
    auto cluster = Cluster::in_process(2, hosting<Broken>(), {.leak_check = LeakCheck::off});
    const auto held = cluster->spawn<Broken>("w1", -1);
  }
  CHECK_THAT(lines.now(), Contains("an actor could not be made, and nobody used it"));
}
