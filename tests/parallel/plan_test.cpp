// Plans: profiles as files, formulas of a step and its memory, and what a search takes and leaves.
#include <catch2/catch.hpp>

#include <fstream>
#include <functional>
#include <set>

#include "core/base/readable_bytes.h"
#include "parallel/layout/layout.h"
#include "parallel/plan/check.h"
#include "parallel/plan/plan.h"
#include "tests/parallel/plan_models.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "troupe/cluster/cluster.h"

using namespace troupe;
using namespace troupe::parallel;
using namespace troupe::testing;

TEST_CASE("a profile goes to a file and comes back, and what is wrong in one is named") {
  ModelProfile p = with_heads(uniform(2, 3), 4);
  p.workers[1].speed = 0.5, p.workers[2].memory = 1e9, p.workers[2].tensors = 1e6;
  CHECK(parse_profile(p.json(), "p.json") == p);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = p.json();
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
    return testing::invalid_text([&] { (void)parse_profile(text, "p.json"); });
  };
  CHECK(changed("\"batch\": 32", "\"batch\": -32") ==
        "[plan] p.json: \"batch\" is -32: expected a whole number from 0 on");
  CHECK(changed("\"batch\": 32", "\"batch\": 0") == "[plan] p.json: \"batch\" is 0: expected at least 1 row");
  CHECK(changed("\"speed\": 0.5", "\"speed\": \"slow\"") ==
        "[plan] p.json: \"workers[1].speed\" is \"slow\": expected a number");
  CHECK(changed("\"optimizer\"", "\"optimiser\"") == "[plan] p.json: \"optimizer\" is missing");
  CHECK(changed("\"name\": \"w1\"", "\"name\": \"w0\"") == "[plan] p.json: worker \"w0\" is there twice");
  CHECK(testing::invalid_text([] { (void)parse_profile("{\"mesh\": {}}", "plan.json"); }) ==
        "[plan] plan.json: this is no profile of a model: expected an object with \"format\": "
        "\"troupe model profile 1\", as programs write with --measure FILE");
  CHECK(
      changed("\"alone\": 1.0", "\"alone\": 1.5") ==
      "[plan] p.json: \"alone\" of layer \"transformer_encoder_layer\" is 1.5: expected more than 0, and at "
      "most 1");
  p.layers.clear();
  CHECK(testing::invalid_text([&] { (void)parse_profile(p.json(), "p.json"); }) ==
        "[plan] p.json: \"layers\" is empty: expected a layer at least");
}

TEST_CASE("profiles of one model are put together, and those of others are refused") {
  ModelProfile a = uniform(2, 1), b = uniform(2, 2);
  b.layers[0].forward.per_row /= 2, a.hosts = {};
  const ModelProfile both = merge({a, b});
  CHECK(both.workers.size() == 2);
  CHECK(both.layers[0].forward == b.layers[0].forward);
  CHECK(both.hosts == b.hosts);
  CHECK(testing::invalid_text([&] { (void)merge({a, uniform(3, 1)}); }).find("is of another model") !=
        std::string::npos);
}

TEST_CASE("the formulas of a step: replicas, stages and ranks") {
  const ModelProfile p = with_heads(uniform(8, 4), 8);
  CHECK(cost(p, layout_of(1, 1, 1, 1)).compute == Approx(24e-3));
  // Of two replicas each has half of the rows; their sums come behind the pass.
  const LayoutCost replicas = cost(p, layout_of(2, 1, 1, 1));
  CHECK(replicas.compute == Approx(12e-3));
  CHECK(replicas.gradients > 0);
  CHECK(replicas.gradients < 32 * kMiB / 1e10 * 1.2);
  CHECK(replicas.sent == Approx(32 * kMiB));  // 2 (n - 1) / n
  // 1F1B: (m + p - 1) / m of what one stage computes.
  const LayoutCost stages = cost(p, layout_of(1, 4, 1, 8, {2, 4, 6}));
  CHECK(stages.compute == Approx(6e-3));
  CHECK(stages.step - stages.optimizer == Approx(6e-3 * 11 / 8).epsilon(0.01));
  // Ranks: what is divided, and the rest on each.
  const LayoutCost ranks = cost(p, layout_of(1, 1, 4, 1));
  CHECK(ranks.compute == Approx(24e-3 * (0.1 + 0.9 / 4)));
  CHECK(ranks.sums > 0);
  CHECK(ranks.parameters == Approx(32 * kMiB * (0.01 + 0.99 / 4)));
}

TEST_CASE("the formulas of cut sequences and divided experts") {
  ModelProfile p = with_heads(uniform(8, 4), 8);
  PlannedLayout context = layout_of(1, 1, 1, 1), experts = context;
  context.cp = experts.ep = 4;
  const LayoutCost one = cost(p, layout_of(1, 1, 1, 1)), cut = cost(p, context);
  CHECK(cut.compute == Approx(one.compute / 4));
  CHECK(cut.activations == Approx(one.activations / 4));
  CHECK(cut.parameters == one.parameters);
  CHECK(cut.sums > 0);
  // Forward and back four exchanges in each layer, and the sums of its gradients.
  CHECK(cut.sent == Approx(8 * (2 * 4 * 0.75 * 2048 * 8 + 2 * 0.75 * 4 * kMiB)));
  for (LayerCost& l : p.layers)
    l.experts = 8, l.chosen = 2, l.parameters = 33 * kMiB, l.expert_parameters = 32 * kMiB;
  const LayoutCost divided = cost(p, experts);
  CHECK(divided.parameters == Approx(8 * (1 + 32.0 / 4) * kMiB));
  CHECK(divided.compute == Approx(one.compute / 4));
  CHECK(divided.sent == Approx(8 * (2 * 2 * 0.75 * 2 * 2048 * 8 + 2 * 0.75 * kMiB)));
  // They are tried where the model has them, and layouts name them.
  const auto kinds = [&](bool sequences) {
    std::set<std::string> all;
    PlanOptions options{.sequences = sequences};
    for (const NotTaken& n : plan(p, options).not_taken) all.insert(n.kind);
    return all;
  };
  CHECK(kinds(true).contains("cut sequences alone"));
  CHECK(kinds(true).contains("divided experts and cut sequences"));
  CHECK_FALSE(kinds(false).contains("cut sequences alone"));
  CHECK(kinds(false).contains("divided experts and ranks"));
  p.layers.resize(1);  // no stages
  p.layers[0].parameters = p.layers[0].expert_parameters = 8 * 512 * kMiB;
  const LayoutPlan best = plan(p, {.memory = 1100 * kMiB * 4});
  REQUIRE_FALSE(best.best.empty());
  CHECK(best.best[0].layout.ep > 1);
  CHECK(best.layout_json().find("\"ep\": ") != std::string::npos);
  p.layers[0].chosen = 9;
  CHECK(testing::invalid_text([&] { (void)parse_profile(p.json(), "p.json"); }) ==
        "[plan] p.json: \"chosen\" of layer \"transformer_encoder_layer\" is 9: expected 1 to its 8 experts");
}

TEST_CASE("layouts that a plan cannot judge are refused with what to write") {
  const ModelProfile p = uniform(8, 4);
  const std::vector<MeshDim> dims{{"dp", 4}, {"pp", 1}};
  const auto refused = [](const std::function<void()>& f) { return testing::invalid_text(f); };
  CHECK(refused([&] { (void)planned(dims, {.slices = 4}, {}, 32); }).find("slices = 4: leave them out") !=
        std::string::npos);
  CHECK(refused([&] { (void)planned(dims, {}, {}, 2); }) ==
        "[plan] a step of 2 rows for 4 replicas: give each of them a row at least");
  PlannedLayout l = layout_of(4, 1, 1, 1);
  l.rows = {8, 8};
  CHECK(refused([&] { (void)cost(p, l); }).find("has rows for 2 replicas: expected 4") != std::string::npos);
  l = layout_of(4, 1, 1, 9);
  CHECK(refused([&] { (void)cost(p, l); }).find("8 rows for 9 micro-batches") != std::string::npos);
  const testing::Folder folder;
  const auto judged = [&](const std::string& text) {
    const std::string path = folder.path.string() + "/layout.json";
    std::ofstream(path) << text;
    return judge_file(p, {}, path);
  };
  CHECK(judged(R"({"mesh": {"dp": 4}, "workers": ["w0", "w1", "w2", "w3"]})").layout.dp == 4);
  CHECK(refused([&] {
          (void)judged(R"({"mesh": {"dp": 4}, "workers": ["w1", "w0", "w2", "w3"]})");
        }).find("\"workers\" has others: leave it out") != std::string::npos);
  CHECK(refused([&] {
          (void)judged(R"({"mesh": {"dp": 2, "tp": 2}})");
        }).find("\"mesh\" has tp 2, and the profile has no layers that ranks divide") != std::string::npos);
}

TEST_CASE("workers that share a machine's processors are faster while others wait") {
  ModelProfile p = uniform(8, 2);
  p.optimizer = 0;
  for (LayerCost& l : p.layers) l.alone = 0.5, l.alone_few = 0.8;
  // One micro-batch: each stage works alone, twice as fast; replicas never do.
  CHECK(cost(p, layout_of(1, 2, 1, 1, {4})).step == Approx(12e-3).epsilon(0.01));
  CHECK(cost(p, layout_of(2, 1, 1, 1)).compute == Approx(12e-3));
  // Namespaces of one machine are hosts that share them, and other hosts do not.
  p.workers[0].host = "m/1", p.workers[1].host = "m/2";
  CHECK(cost(p, layout_of(2, 1, 1, 1)).compute == Approx(12e-3));
  CHECK(cost(p, layout_of(1, 2, 1, 1, {4})).compute == Approx(6e-3));
}

TEST_CASE("the formulas of memory are those of what replicas divide") {
  const ModelProfile p = uniform(8, 4);
  PlannedLayout l = layout_of(4, 1, 1, 1);
  const double all = 32 * kMiB;
  CHECK(cost(p, l).state == Approx(2 * all));
  l.shard = Shard::state;
  CHECK(cost(p, l).state == Approx(2 * all / 4));
  // When the optimizer has stepped: the sums, this one's piece, and what is gathered.
  CHECK(cost(p, l).gradient_bytes == Approx(2 * all + all / 4));
  l.shard = Shard::none;
  // And in the last two buckets, 25 MiB and the rest.
  CHECK(cost(p, l).gradient_bytes == Approx(2 * all - kMiB));
  l.micro_batches = 4;  // passes add to the sums of those before
  CHECK(cost(p, l).gradient_bytes == Approx(2 * all - kMiB));
  l.shard = Shard::gradients;
  CHECK(cost(p, l).gradient_bytes == Approx(2 * all + all / 4 - 2 * kMiB));
  l.micro_batches = 1;
  CHECK(cost(p, l).gradient_bytes == Approx(2 * all + all / 4 - 2 * kMiB));
  l.shard = Shard::none;  // between hosts whole sums need no copy
  CHECK(cost(uniform(8, 4, 2), l).gradient_bytes == Approx(all));
  l.shard = Shard::all;
  CHECK(cost(p, l).parameters == Approx(all / 4 + 8 * kMiB));
  // Micro-batches that are alive, and their inputs alone where stages compute them again.
  PlannedLayout pipe = layout_of(1, 4, 1, 8, {2, 4, 6});
  CHECK(cost(p, pipe).activations == Approx(8 * 4096 * 4));
  CHECK(cost(p, pipe).gradient_bytes == Approx(all / 4));
  pipe.schedule = "gpipe";
  CHECK(cost(p, pipe).activations == Approx(14 * 4096 * 4));  // with the gradients of the first
  pipe.checkpoint = Checkpoint::always;
  CHECK(cost(p, pipe).activations == Approx(7 * 2048 * 4 + 2 * 4096 * 4));
  CHECK(cost(p, pipe).compute == Approx(6e-3 * 4 / 3));
}

TEST_CASE("ranks that wait for each other keep the gradients of the last pass by themselves") {
  const ModelProfile p = with_heads(uniform(8, 2), 8);
  const PlannedLayout once = layout_of(1, 1, 2, 1), twice = layout_of(1, 1, 2, 2);
  const double own = cost(p, once).parameters;
  CHECK(cost(p, once).gradient_bytes == Approx(own));
  CHECK(cost(p, twice).gradient_bytes == Approx(3 * own));  // with the sum of both, for the optimizer
}

TEST_CASE("a plan takes what costs least, says what binds, and why not the others") {
  // Ten gigabit between hosts: whole gradients cost more than activations do.
  ModelProfile p = with_heads(uniform(8, 4, 2), 8);
  const LayoutPlan found = plan(p);
  REQUIRE(found.best.size() == 10);
  for (size_t i = 1; i < found.best.size(); ++i)
    CHECK(found.best[i - 1].cost.step <= found.best[i].cost.step);
  for (const PlanRow& row : found.best) {
    const LayoutCost& c = row.cost;
    CHECK(c.compute + c.bubble + c.sums + c.gradients + c.optimizer == Approx(c.step));
    CHECK(cost(p, row.layout).step == c.step);
  }
  CHECK(found.best[0].layout.dp == 1);  // 32 MiB of gradients take 0.3 s
  const std::string text = found.str();
  CHECK(text.find("The first spends its step on: computing ") != std::string::npos);
  CHECK(text.find("  replicas alone: dp 4") != std::string::npos);
  CHECK(text.find("sums of gradients over replicas: ") != std::string::npos);
  // The file is one that programs read.
  const auto file = parse_layout(found.layout_json(), "plan.json");
  // With few parameters, between workers of one host, replicas are best: they wait for nobody.
  ModelProfile near = uniform(8, 4);
  for (LayerCost& l : near.layers) l.parameters = 4096;
  CHECK(plan(near).best[0].layout.dp == 4);
}

TEST_CASE("a plan holds the best of all layouts, whatever bounds left out") {
  const ModelProfile p = with_heads(uniform(6, 4, 2), 2);
  PlanOptions all{.shown = 100000};
  const LayoutPlan every = plan(p, all), some = plan(p);
  CHECK(every.simulated == every.candidates);
  CHECK(some.simulated < every.simulated);
  for (size_t i = 0; i < some.best.size(); ++i) CHECK(some.best[i].cost.step == every.best[i].cost.step);
}

TEST_CASE("workers of another speed get rows and layers in proportion") {
  ModelProfile p = uniform(10, 3);
  p.workers[2].speed = 0.5;
  const LayoutPlan found = plan(p, {.batch = 40, .shown = 1000});
  size_t replicas = 0, stages = 0, chunked = 0;
  for (const PlanRow& row : found.best) {
    if (row.layout.dp == 3) {
      ++replicas;
      CHECK(row.layout.rows == std::vector<int64_t>{16, 16, 8});
      if (row.layout.checkpoint == Checkpoint::never)
        CHECK(row.cost.compute == Approx(10 * 3e-3 / 32 * 16));  // as long on the slow one
    }
    if (row.layout.pp != 3) continue;
    ++stages;
    if (row.layout.chunks == 1) CHECK(row.layout.cuts == std::vector<size_t>{4, 8});
    if (row.layout.chunks != 2) continue;
    ++chunked;
    CHECK(row.layout.cuts == std::vector<size_t>{2, 4, 5, 7, 9});
  }
  CHECK(chunked > 0);
  CHECK(replicas > 0);
  CHECK(stages > 0);
  LayoutPlan of_replicas = found;
  std::erase_if(of_replicas.best, [](const PlanRow& row) { return row.layout.dp != 3; });
  CHECK(of_replicas.layout_json().find("\"rows\": [\n  16,\n  16,\n  8\n ]") != std::string::npos);
}

TEST_CASE("memory leaves layouts out, and where nothing fits the nearest is named") {
  ModelProfile p = uniform(8, 4);
  const double all = 32 * kMiB;
  const LayoutPlan tight = plan(p, {.memory = 2.6 * all});
  REQUIRE(!tight.best.empty());
  for (const PlanRow& row : tight.best) CHECK(row.cost.memory <= 2.6 * all);
  CHECK(tight.str().find("memory, 159.") != std::string::npos);  // replicas that divide nothing
  const LayoutPlan none = plan(p, {.memory = 1 << 20});
  CHECK(none.best.empty());
  CHECK(none.str().find("Nothing fits into 1.0 MiB of a worker. The nearest is pp 4, ") != std::string::npos);
  CHECK(testing::invalid_text([&] { (void)none.layout_json(); }) ==
        "[plan] nothing fits, so there is no layout to write");
}

TEST_CASE("a model without layers that are cut is planned over replicas and stages, and the plan says so") {
  const LayoutPlan found = plan(uniform(4, 4));
  CHECK(found.str().find("it is planned over dp and pp alone") != std::string::npos);
  for (const PlanRow& row : found.best) CHECK(row.layout.tp == 1);
  CHECK(testing::invalid_text([] { (void)plan(uniform(4, 4), {.shown = 0}); }) ==
        "[plan] a table of 0 layouts: expected at least 1");
  CHECK(plan(uniform(4, 8)).str().find("stages alone: pp 8: the model has 4 layers") != std::string::npos);
}

TEST_CASE("a plan over hosts says where their links were not measured") {
  const auto says = [](const ModelProfile& p) {
    return plan(p).str().find("links between hosts were not measured") != std::string::npos;
  };
  ModelProfile p = uniform(4, 4, 2);
  CHECK(!says(p));
  p.hosts = {};
  CHECK(says(p));
  CHECK(!says(uniform(4, 4)));
}

TEST_CASE("workers with several stages wait less, and keep more") {
  ModelProfile p = uniform(16, 4);
  p.process = p.host = {.latency = 0, .rate = 1e12};
  const PlannedLayout one = layout_of(1, 4, 1, 8, {4, 8, 12});
  PlannedLayout two = layout_of(1, 4, 1, 8, {2, 4, 6, 8, 10, 12, 14});
  two.chunks = 2, two.schedule = "interleaved";
  CHECK(two.str() == "pp 4, interleaved of 8 in 2 chunks");
  const LayoutCost plain = cost(p, one), chunked = cost(p, two);
  // 1F1B waits for p - 1 of m micro-batches, and interleaved for a part of a worker's layers of each.
  CHECK(chunked.compute == Approx(plain.compute));
  CHECK(plain.bubble == Approx(plain.compute * 3 / 8).epsilon(0.02));
  CHECK(chunked.bubble == Approx(plain.compute * 3 / 2 / 8).epsilon(0.02));
  CHECK(chunked.optimizer == Approx(plain.optimizer));
  CHECK(chunked.parameters == plain.parameters);
  CHECK(chunked.state == plain.state);
  CHECK(chunked.sent == 2 * plain.sent);  // to the next worker, and round again
  // The first worker begins (v - 1) p + 2 (p - 1) + 1 chunks of two layers before one is over, of 4 rows
  // each.
  CHECK(plain.activations == Approx(4 * 4 * 4096 * 4));
  CHECK(chunked.activations == Approx(11 * 2 * 4096 * 4));
  // There and back the last stage is on the first worker.
  PlannedLayout back = two;
  back.schedule = "zb-v";
  const LayoutCost there = cost(p, back);
  CHECK(there.compute == Approx(plain.compute));
  CHECK(there.bubble < chunked.bubble);
  CHECK(there.sent == chunked.sent);  // by workers between the ends, which still give and take twice
  p.layers.back().parameters *= 100;
  CHECK(cost(p, back).worker == 0);
  CHECK(cost(p, two).worker == 3);
  p.layers.back().parameters /= 100;
  two.checkpoint = Checkpoint::always;
  CHECK(cost(p, two).activations < chunked.activations);
  two.cuts.pop_back();
  CHECK(testing::invalid_text([&] { (void)cost(p, two); }) == "[plan] 6 cuts do not make 8 stages");
  // What one of the chunks keeps is not what the other does: a large last layer has one micro-batch alive.
  two.checkpoint = Checkpoint::never, two.cuts.push_back(14);
  p.layers.back().saved *= 1000;
  CHECK(cost(p, two).activations < 1.02 * 1001 * 4096 * 4);
}

TEST_CASE("a plan takes several stages for a worker where waiting costs most, and says what they come to") {
  ModelProfile p = uniform(16, 4, 1);
  p.hosts = {.latency = 1e-6, .rate = 1e12}, p.sums.far_rate = 1e7;  // sums over replicas take long
  const LayoutPlan found = plan(p, {.batch = 8});
  const PlannedLayout& best = found.best[0].layout;
  CHECK(best.pp == 4);
  CHECK(best.chunks > 1);
  CHECK(best.schedule == "interleaved");
  const testing::Folder folder;
  const std::string path = folder.path.string() + "/plan.json";
  std::ofstream(path) << found.layout_json();
  const PlanRow judged = judge_file(p, {.batch = 8}, path);
  CHECK(judged.layout.str() == best.str());
  CHECK(judged.layout.cuts == best.cuts);
  CHECK(judged.cost.step == found.best[0].cost.step);
  PlannedLayout anew = best;
  anew.cuts.clear(), anew.rows.clear();
  CHECK(judge(p, {.batch = 8}, anew).layout.cuts == best.cuts);
  CHECK(found.str().find("  stages alone: pp 4") != std::string::npos);
  const auto few = plan(uniform(3, 4), {.batch = 8});
  CHECK(few.str().find("stages in chunks: pp 2 in 2 chunks: the model has 3 layers") != std::string::npos);
  CHECK(plan(uniform(4, 4)).str().find("  stages in chunks alone") == std::string::npos);
  CHECK(plan(uniform(8, 4)).str().find("  stages in chunks alone: pp 4, interleaved of ") !=
        std::string::npos);
}

TEST_CASE("64 workers are at most 10,000 candidates") {
  const ModelProfile p = with_heads(uniform(64, 64, 8), 64);
  const LayoutPlan found = plan(p, {.batch = 512, .parts = true});
  CHECK(found.candidates <= 10000);
  CHECK(found.candidates > 500);
  CHECK(found.best.size() == 10);
}

TEST_CASE("numbers of bytes are read as people write them") {
  CHECK(bytes_named("2G") == int64_t{2} << 30);
  CHECK(bytes_named("1.5 GiB") == int64_t{3} << 29);
  CHECK(bytes_named("512m") == 512 << 20);
  CHECK(bytes_named("100") == 100);
  for (const char* wrong : {"", "G", "-1G", "2 giraffes", "1e30", "nan"})
    CHECK(testing::invalid_text([&] { (void)bytes_named(wrong); }).find("is no number of bytes") !=
          std::string::npos);
}
