// Embedding tables in servers: rows wherever they are, duplicates merged, optimizers that touch no other row.
#include <catch2/catch.hpp>

#include "optim/optim.h"
#include "parallel/server/served_gradients.h"
#include "parallel/server/served_parameters.h"
#include "parallel/server/served_table.h"
#include "parallel/server/table.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::parallel;

namespace {

constexpr int64_t kRows = 23, kWidth = 3;

Tensor all_ids() {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < kRows; ++i) ids.push_back(i);
  return tensor(ids);
}
ServerOptions with(const std::string& optimizer, const ValueMap& options, const std::string& policy = "bsp",
                   int64_t trainers = 1) {
  return {.optimizer = optimizer,
          .options = options,
          .policy = ServerPolicy::parse(policy),
          .trainers = trainers};
}
struct Head : nn::ModuleActor<nn::Linear> {
  Head() : ModuleActor(kWidth, int64_t{2}) {}
  Tensor forward(Tensor x) { return net(x); }
  static constexpr auto remote = methods<&Head::forward>;
};
Tensor some(const Shape& shape, uint64_t seed) {
  Generator random(seed);
  return randn(shape, random);
}

}  // namespace

TEST_CASE("rows have the same values whichever server has them, and come as they were asked for") {
  const auto cluster = Cluster::in_process(3, {});
  const Tensor expected = initial_rows(all_ids(), kWidth, 0.1, 7);
  CHECK(expected.abs().amax().item() <= 0.1);
  CHECK(expected.abs().amax().item() > 0.09);
  for (const Rows cut : {Rows::by_range, Rows::by_hash})
    for (const std::vector<Place>& where :
         {std::vector<Place>{"w0"}, {"w0", "w1", "w2"}, std::vector<Place>(30, Place("w1"))}) {
      const auto table = serve_table(cluster->here(), where, kRows, kWidth, with("sgd", {}), {cut, 0.1, 7});
      CHECK(bit_equal(read(table, all_ids()).get(), expected));
      const Tensor ids = tensor({{5, 5, 22}, {0, 5, 1}});
      TableClient client(table);
      for (const Tensor& rows : {client.pull(ids).get(), read(table, ids).get()}) {
        CHECK(rows.shape() == Shape{2, 3, kWidth});
        CHECK(bit_equal(rows, embedding(ids, expected)));
      }
      CHECK(client.pull(zeros({0}, int64)).get().shape() == Shape{0, kWidth});
    }
}

TEST_CASE("gradients run through a pull to the rows, duplicates are merged, other rows are not touched") {
  const auto cluster = Cluster::in_process(3, {});
  const Tensor ids = tensor({{4, 9, 4}, {4, 22, 9}}), target = some({2, 3, kWidth}, 1);
  for (const bool recorded : {true, false}) {
    const auto table =
        serve_table(cluster->here(), {"w1", "w2"}, kRows, kWidth, with("sgd", {{"lr", 0.5}}), {});
    Tensor whole = read(table, all_ids()).get().clone_data().requires_grad_();
    autograd::backward(mse_loss(embedding(ids, whole), target));
    const Tensor expected = sub(whole.detach(), mul(whole.grad(), 0.5));
    TableClient client(table);
    if (recorded) {
      autograd::Context context(*cluster);
      context.backward(mse_loss(client.pull(ids).get(), target));
      client.push_context().get();
    } else {
      Tensor rows = client.pull(ids).get().detach().requires_grad_();
      autograd::backward(mse_loss(rows, target));
      client.push(ids, rows.grad()).get();
    }
    CHECK(difference(read(table, all_ids()).get(), expected, 1e-6, 1e-7) == "");
  }
  nothing_left(*cluster);
}

TEST_CASE(
    "several pulls of a context are one step, and a context without a push leaves no gradients behind") {
  const auto cluster = Cluster::in_process(2, {});
  const auto table = serve_table(cluster->here(), {"w1"}, kRows, kWidth, with("sgd", {{"lr", 1.0}}), {});
  TableClient client(table);
  const Tensor before = read(table, all_ids()).get(), one = tensor({3}), two = tensor({3, 4});
  {
    autograd::Context unused(*cluster);
    unused.backward(client.pull(two).get().sum());
  }
  {
    autograd::Context context(*cluster);
    const Tensor a = client.pull(one).get(), b = client.pull(two).get();
    context.backward(add(a.sum(), b.sum()));
    client.push_context().get();
  }
  const auto moved = sub(before, read(table, all_ids()).get()).sum({1}).to_vector<float>();
  for (size_t i = 0; i < moved.size(); ++i)
    CHECK(moved[i] == Approx(i == 3 ? 2 * kWidth : i == 4 ? kWidth : 0).margin(1e-5));
  CHECK(parallel::report(table).get()[0].version == 1);
}

TEST_CASE("one norm over an optimizer's parameters, rows and values in servers, as of one model") {
  const auto cluster = Cluster::in_process(3, hosting<Head>());
  const Tensor ids = tensor({{4, 9, 4}, {4, 22, 9}}), more = tensor({9, 3, 4, 9});
  for (const bool largest : {false, true})
    for (const double most : {0.1, 100.0}) {
      INFO((largest ? "largest, at most " : "Euclidean, at most ") << most);
      const auto table =
          serve_table(cluster->here(), {"w1", "w2"}, kRows, kWidth, with("sgd", {{"lr", 1.0}}), {});
      const Tensor start = some({4, kWidth}, 2);
      const Served served = serve(cluster->here(), {"w1", "w2"}, {start}, with("sgd", {{"lr", 1.0}}));
      auto head = cluster->spawn<Head>("w2");
      optim::Distributed<optim::SGD> optimizer({head}, {.lr = 1.0});
      Tensor rows = read(table, all_ids()).get().clone_data().requires_grad_();
      Tensor shift = start.clone_data().requires_grad_();
      nn::Linear whole(kWidth, 2);
      whole.load_state_dict(nn::remote_state_dict(head).get());
      const auto loss = [&](const Tensor& two, const Tensor& four, const Tensor& moved, const auto& linear) {
        return add(square(linear(add(four, moved))).sum(), mul(two.sum(), 3));
      };
      autograd::backward(loss(embedding(ids, rows), embedding(more, rows), shift,
                              [&](const Tensor& x) { return whole(x); }));
      const double wanted =
          optim::clip_grad_norm_({rows, shift, whole.weight, whole.bias}, most, {.largest = largest});

      TableClient words(table);
      Client client(served);
      autograd::Context context(*cluster);
      const Tensor a = words.pull(ids).get(), b = words.pull(more).get(), c = client.pull().get()[0];
      context.backward(loss(a, b, c, [&](const Tensor& x) { return head.call<&Head::forward>(x).get(); }));
      const std::vector<optim::ContextGradients> all{optimizer.gradients(), gradients_of(table),
                                                     gradients_of(served)};
      CHECK(optim::clip_grad_norm(all, most, {.largest = largest}).get() == Approx(wanted));
      CHECK(optimizer.clip_grad_norm(context, 1e9) < wanted * (largest ? 2 : 1));  // the head's alone
      words.push_context().get();
      client.push_context().get();
      optimizer.step(context);
      CHECK(difference(read(table, all_ids()).get(), sub(rows.detach(), rows.grad()), 1e-5, 1e-6) == "");
      CHECK(difference(read(served).get()[0], sub(start, shift.grad()), 1e-5, 1e-6) == "");
      CHECK(difference(nn::remote_state_dict(head).get().at("weight"),
                       sub(whole.weight.detach(), whole.weight.grad()), 1e-5, 1e-6) == "");
    }
  const auto packed =
      serve_table(cluster->here(), {"w1"}, kRows, kWidth, {.push = Compression::parse("bf16")}, {});
  CHECK_THAT(invalid_text([&] { (void)gradients_of(packed); }), Catch::Contains("with the trainers"));
  CHECK_THAT(invalid_text([&] { (void)optim::clip_grad_norm({}, 1.0); }),
             Catch::Contains("no context is active here"));
  nothing_left(*cluster);
}

TEST_CASE("each optimizer steps the rows that are named as it would step them alone") {
  const auto cluster = Cluster::in_process(2, {});
  const std::vector<std::pair<std::string, ValueMap>> all{
      {"sgd", {{"lr", 0.1}}},
      {"sgd", {{"lr", 0.1}, {"momentum", 0.9}, {"weight_decay", 0.1}}},
      {"adam", {{"lr", 0.1}}},
      {"adamw", {{"lr", 0.1}, {"weight_decay", 0.1}}},
      {"adagrad", {{"lr", 0.1}}}};
  for (const auto& [name, options] : all) {
    INFO(name);
    const auto table = serve_table(cluster->here(), {"w1"}, kRows, kWidth, with(name, options), {});
    const Tensor ids = tensor({2, 11, 17}), before = read(table, all_ids()).get();
    Tensor home = read(table, ids).get().clone_data().requires_grad_();
    const auto optimizer = optim::make(name, options, {home});
    TableClient client(table);
    for (uint64_t step = 0; step < 4; ++step) {
      (void)client.pull(ids).get();
      const Tensor gradient = some({3, kWidth}, step);
      client.push(ids, gradient).get();
      optimizer->step({gradient});
    }
    CHECK(bit_equal(read(table, ids).get(), home.detach()));
    const Tensor rest = tensor({0, 1, 3, 10, 22});
    CHECK(bit_equal(read(table, rest).get(), embedding(rest, before)));
  }
}

TEST_CASE("a step of several trainers is the weighted mean, also of rows that only one of them has") {
  const auto cluster = Cluster::in_process(2, {});
  for (const std::string policy : {"bsp", "local(2)"}) {
    const auto table =
        serve_table(cluster->here(), {"w0", "w1"}, kRows, kWidth, with("sgd", {{"lr", 1.0}}, policy, 2), {});
    TableClient a(table), b(table);
    const Tensor before = read(table, all_ids()).get();
    const Tensor of_a = tensor({1, 2}), of_b = tensor({2, 6});
    (void)a.pull(of_a).get();
    (void)b.pull(of_b).get();
    a.push(of_a, full({2, kWidth}, 4.0), 1).get();
    CHECK(bit_equal(read(table, all_ids()).get(), before));
    b.push(of_b, full({2, kWidth}, 8.0), 3).get();
    const auto moved = sub(before, read(table, all_ids()).get()).sum({1}).to_vector<float>();
    for (size_t i = 0; i < moved.size(); ++i)
      CHECK(moved[i] == Approx(kWidth * (i == 1 ? 1 : i == 2 ? 7 : i == 6 ? 6 : 0)).margin(1e-4));
  }
}

TEST_CASE("delayed reads of rows are those before the last update") {
  const auto cluster = Cluster::in_process(1, {});
  const auto table =
      serve_table(cluster->here(), {"w0"}, kRows, kWidth, with("sgd", {{"lr", 1.0}}, "delayed"), {});
  TableClient client(table);
  const Tensor ids = tensor({1, 2}), one = tensor({1});
  const Tensor start = client.pull(ids).get();
  client.push(one, ones({1, kWidth})).get();
  CHECK(bit_equal(client.pull(ids).get(), start));
  client.push(one, ones({1, kWidth})).get();
  const Tensor moved = sub(start, client.pull(ids).get());
  CHECK(moved.sum({1}).to_vector<double>()[0] == Approx(kWidth));
  CHECK(moved.sum({1}).to_vector<double>()[1] == 0);
}

TEST_CASE("a table, and parameters, for no trainer are refused before anything is made") {
  const auto cluster = Cluster::in_process(1, {});
  for (const int64_t trainers : {-1, 0}) {
    CHECK_THAT(invalid_text([&] {
                 (void)serve(cluster->here(), {"w0"}, {zeros({2})}, with("sgd", {}, "bsp", trainers));
               }),
               Catch::Contains("trainers; expected at least 1"));
    CHECK_THAT(invalid_text([&] {
                 (void)serve_table(cluster->here(), {"w0"}, kRows, kWidth, with("sgd", {}, "bsp", trainers),
                                   {});
               }),
               Catch::Contains("trainers; expected at least 1"));
  }
}

TEST_CASE("a step of no rows is a step") {
  const auto cluster = Cluster::in_process(2, {});
  const auto table = serve_table(cluster->here(), {"w0", "w1"}, kRows, kWidth, with("sgd", {}), {});
  TableClient client(table);
  for (const Shape& none : {Shape{0}, Shape{2, 0}}) {
    const Tensor ids = zeros(none, int64), rows = client.pull(ids).get();
    CHECK(rows.numel() == 0);
    CHECK(rows.size(-1) == kWidth);
    CHECK_FALSE(client.push(ids, rows).get().late);
    CHECK(read(table, ids).get().shape() == rows.shape());
  }
  const auto report = parallel::report(table).get();
  CHECK(report.at(0).open_step == 2);
}

TEST_CASE("rows out of range, gradients of another shape and NaN are refused, and the step stays open") {
  const auto cluster = Cluster::in_process(2, {});
  const auto table = serve_table(cluster->here(), {"w0", "w1"}, kRows, kWidth, with("sgd", {}), {});
  TableClient client(table);
  const Tensor ids = tensor({1, 2}), good = ones({2, kWidth});
  for (const int64_t row : {int64_t{-1}, kRows})
    CHECK_THAT(invalid_text([&] {
                 (void)client.pull(tensor({0, row}, int64));
               }),
               Catch::Contains("row " + std::to_string(row) + " is out of range; the table has 23 rows"));
  CHECK_THAT(invalid_text([&] { (void)client.pull(zeros({2})); }), Catch::Contains("expected int64"));
  CHECK_THAT(invalid_text([&] { client.push(ids, good).get(); }), Catch::Contains("has not pulled"));
  for (const double scale : {-1., std::nan(""), HUGE_VAL})
    CHECK_THAT(invalid_text([&] { serve_table(cluster->here(), {"w0"}, 4, 2, {}, {.scale = scale}); }),
               Catch::Contains("expected a finite number of at least 0"));
  (void)client.pull(ids).get();
  CHECK_THAT(invalid_text([&] {
               client.push(ids, zeros({2, 2})).get();
             }),
             Catch::Contains("expected float32 [2, 3]"));
  CHECK_THAT(invalid_text([&] {
               client.push(ids, tensor({{std::nan(""), 0., 0.}, {1., 1., 1.}}, float32)).get();
             }),
             Catch::Contains("NaN or infinite"));
  CHECK_FALSE(client.push(ids, full({2, kWidth}, std::nan("")), 0).get().late);  // counts for nothing
  (void)client.pull(ids).get();
  CHECK_FALSE(client.push(ids, good).get().late);
  const auto& server = table.servers[0];
  CHECK_THAT(invalid_text([&] { (void)server.call<&Table::read>(tensor({1})).get(); }),
             Catch::Contains("row 1 is not here; expected one of 0, 2"));
  CHECK_THAT(invalid_text([&] { (void)server.call<&Table::read>(tensor({99})).get(); }),
             Catch::Contains("row 99 is out of range"));
  const auto made = [&](const ServerOptions& options) {
    return invalid_text(
        [&] { (void)parallel::report(serve_table(cluster->here(), {"w0"}, 4, 2, options)).get(); });
  };
  CHECK_THAT(made(with("lamb", {})), Catch::Contains("does not work row by row"));
  CHECK_THAT(made(with("adagrad", {{"initial_accumulator_value", 1.0}})),
             Catch::Contains("rows begin at any step"));
  CHECK_THAT(invalid_text([&] { serve_table(cluster->here(), {}, 4, 2, {}); }),
             Catch::Contains("on 0 workers"));
  CHECK_THAT(invalid_text([&] { serve_table(cluster->here(), {"w0"}, 0, 2, {}); }),
             Catch::Contains("0 rows"));
}
