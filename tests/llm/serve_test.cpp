// A served model answers several clients, whatever becomes of them.
#include "actors/worker/worker.h"
#include "llm/serve_model.h"

#include <catch2/catch.hpp>

#include "tests/llm/models.h"
#include "tests/support/error_of.h"
#include "troupe/llm.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace troupe::testing;
using namespace std::chrono_literals;
using Ids = std::vector<int64_t>;

namespace {

Ids row_of(const Tensor& ids, int64_t row) { return ids.select(0, row).to_vector<int64_t>(); }

llm::ServedModel serve(Cluster& cluster, const std::vector<Place>& places, llm::ServeOptions options = {}) {
  options.dtype = float32;
  return llm::serve_model(cluster.here(), Mesh(cluster, {{"tp", places.size()}}, places),
                          model_folder("llama"), options);
}

// No text is left, and all pages are free: the server says so as soon as it has handled what came before.
bool is_free(const llm::ServedModel& model) {
  const llm::ServerReport r = model.report();
  return r.texts == 0 && r.free_pages == r.pages;
}

// A client whose worker may be lost.
struct ServedClient : Actor {
  explicit ServedClient(RRef<llm::ModelServer> model) : server(std::move(model)) {}
  Task<Ids> write(uint64_t number, Ids prompt, int64_t tokens) {
    const auto writing = server.with_timeout(0s).call<&llm::ModelServer::generate>(
        number, prompt, llm::GenerateOptions{.max_new_tokens = tokens});
    co_return co_await writing;
  }
  RRef<llm::ModelServer> server;
  static constexpr auto remote = methods<&ServedClient::write>;
};

}  // namespace

TEST_CASE(
    "a served model writes for several clients at once what it writes for each alone, over any number of "
    "ranks") {
  const ModelValues values = model_values("llama");
  const std::vector<Place> places = GENERATE(std::vector<Place>{"w1"}, std::vector<Place>{"w1", "w2"},
                                             std::vector<Place>{"w1", "w2", "w3"});
  const auto cluster = Cluster::in_process(4);
  const llm::ServedModel model =
      serve(*cluster, places, {.limits = {.cache = {.pages = 16, .page_size = 4}, .tokens = 20}});
  const Here here = cluster->here();
  std::vector<llm::Generation> texts;
  for (int i = 0; i < 6; ++i)
    texts.push_back(model.generate(here, row_of(values.ids, i % 2), {.max_new_tokens = 9}));
  CHECK(texts[0].next() == values.greedy[0][0]);
  CHECK(texts[0].next() == values.greedy[0][1]);
  for (size_t i = 1; i < 6; ++i) CHECK(texts[i].rest() == values.greedy[i % 2]);
  CHECK(texts[0].rest() == Ids(values.greedy[0].begin() + 2, values.greedy[0].end()));
  CHECK(texts[0].next() == std::nullopt);
  llm::Generation streamed = model.generate(here, row_of(values.ids, 1), {.max_new_tokens = 9});
  Ids got;
  while (const auto token = streamed.next()) got.push_back(*token);
  CHECK(got == values.greedy[1]);
  CHECK(model.report().tokens == 7 * 9);
  CHECK(is_free(model));
}

TEST_CASE("a text that is given up, or whose deadline passes, frees its pages, and the others go on") {
  const ModelValues values = model_values("llama");
  const auto cluster = Cluster::in_process(3);
  const llm::ServedModel model = serve(*cluster, {"w1", "w2"});
  const Here here = cluster->here();
  std::optional<llm::Generation> dropped =
      model.generate(here, row_of(values.ids, 0), {.max_new_tokens = 4000});
  dropped->next();
  llm::Generation other = model.generate(here, row_of(values.ids, 1), {.max_new_tokens = 9});
  CHECK(other.rest() == values.greedy[1]);
  CHECK(model.report().texts == 1);
  dropped.reset();
  while (!is_free(model)) std::this_thread::yield();
  llm::Generation late = model.generate(here, row_of(values.ids, 0), {.max_new_tokens = 4000}, 50ms);
  CHECK(error_of([&] { late.rest(); }).kind() == ErrorKind::deadline);
  while (!is_free(model)) std::this_thread::yield();
  CHECK(model.generate(here, row_of(values.ids, 0), {.max_new_tokens = 9}).rest() == values.greedy[0]);
}

TEST_CASE(
    "clients that die at any moment leave nothing, what others get stays the same, and a lost rank is named",
    "[simulated]") {
  llm::DecoderOptions options{.vocab_size = 11,
                              .hidden_size = 8,
                              .intermediate_size = 8,
                              .num_hidden_layers = 1,
                              .num_attention_heads = 2};
  const Ids prompt{1, 2, 3};
  std::optional<Ids> undisturbed;
  const auto run = [&](uint64_t seed, int dies, const std::string& victim) {
    CAPTURE(seed, dies, victim);
    auto types = hosting<ServedClient>();
    for (auto& type : llm::builtin_actors()) types.push_back(type);
    SimulatedCluster cluster(seed, 5, types);
    cluster.network().set_faults({.delay = 1ms, .jitter = seed % 2 ? 2ms : 0ms});
    manual_seed(3);
    const Mesh mesh(cluster.worker(0), {{"tp", 2}}, {1, 2});
    auto server = cluster.here(0).spawn<llm::ModelServer>(
        1, mesh, options, llm::BatchLimits{.cache = {.pages = 8, .page_size = 2}});
    const auto lost = cluster.here(0).spawn<ServedClient>(3, server),
               other = cluster.here(0).spawn<ServedClient>(4, server);
    const auto first = lost.with_timeout(0s).call<&ServedClient::write>(uint64_t{1}, prompt, int64_t{12});
    const auto second = other.with_timeout(0s).call<&ServedClient::write>(uint64_t{2}, prompt, int64_t{8});
    int events = 0;
    while (!second.is_ready()) {
      if (events++ == dies) cluster.network().crash(victim);
      REQUIRE((cluster.step() || second.is_ready()));
    }
    if (victim == "w2" && events > dies) {
      CHECK_THAT(second.peek()->error().what(), Catch::Contains("w2"));
    } else {
      REQUIRE(second.peek()->ok());
      if (!undisturbed) undisturbed = second.peek()->value();
      CHECK(second.peek()->value() == *undisturbed);
    }
    cluster.settle();
    if (victim == "w3" && events > dies) {
      const auto report = cluster.await(server.call<&llm::ModelServer::report>()).value();
      CHECK(report.texts == 0);
      CHECK(report.free_pages == report.pages);
      CHECK(cluster.worker(1).metrics()["pending_calls"] == 0);
    }
    static_cast<void>(first);
    return events;
  };
  const int events = run(1, 1 << 30, "w3");
  for (uint64_t seed = 2; seed < 12; ++seed) run(seed, static_cast<int>(seed * 37) % events, "w3");
  for (uint64_t seed = 12; seed < 16; ++seed) run(seed, events / 3 + static_cast<int>(seed), "w2");
}

TEST_CASE("what a server cannot write is refused, by name") {
  const auto cluster = Cluster::in_process(2);
  const llm::ServedModel model = serve(*cluster, {"w1"}, {.limits = {.cache = {.pages = 2, .page_size = 4}}});
  CHECK_THAT(
      error_of([&] { model.generate(cluster->here(), {1, 2, 3}, {.max_new_tokens = 9}).rest(); }).what(),
      Catch::Contains("more than the cache, 2 pages of 4"));
  CHECK_THAT(error_of([&] {
               llm::serve_model(cluster->here(), Mesh(*cluster, {{"pp", 1}}, {"w1"}), model_folder("llama"));
             }).what(),
             Catch::Contains("other dimensions than \"tp\""));
}
