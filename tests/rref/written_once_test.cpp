// An actor class is written once: names, constructors, defaults and descriptions come from it.
#include <catch2/catch.hpp>
#include <memory>

#include "rref/ref_table.h"
#include "tests/support/error_of.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;

namespace written_once {

struct Base : Actor {
  int64_t inherited(int64_t x) { return x + 100; }
};

struct Half : Base {
  Half(int64_t in, int64_t out = 3) : fc(in, out) {}
  Half(std::string label, std::vector<double> numbers)
      : fc(1, 1), label(std::move(label)), numbers(std::move(numbers)) {}
  Tensor forward(Tensor x) { return tanh(fc(x)); }
  double scaled(double x, double by = 2, int64_t plus = 1) { return x * by + double(plus); }
  std::string describe() const noexcept { return label + " " + std::to_string(numbers.size()); }
  static int64_t twice(int64_t x) { return 2 * x; }
  Task<int64_t> later(int64_t x) { co_return x + 1; }
  nn::Linear fc;
  std::string label;
  std::vector<double> numbers;
  static constexpr auto remote =
      methods<&Half::forward, doc<&Half::scaled, "x times a factor, and more.", "x", "by", "plus">,
              blocking<&Half::describe>, &Half::twice, &Half::later, &Half::inherited,
              doc<constructor<int64_t, int64_t>, "A layer.", "in", "out">, constructor<int64_t>>
          .defaults<&Half::scaled>(2.0, 1);
};

}  // namespace written_once

using written_once::Half;

TEST_CASE("an actor that no list names is made on every worker") {
  const auto cluster = Cluster::in_process(2);
  const NoGradGuard none;
  for (const char* worker : {"w0", "w1"}) {
    const auto a =
        cluster->spawn<Half>(worker, 4);  // ints travel as ints, and the default argument is the class's
    CHECK(a(ones({2, 4})).get().shape() == Shape{2, 3});
    const auto b = cluster->spawn<Half>(worker, 4, 5);
    CHECK(b(ones({2, 4})).get().shape() == Shape{2, 5});
    CHECK(b(a.call<&Half::forward>(ones({4, 4})).then([](const Tensor& t) {
            return t.sum() * ones({1, 4});
          }))
              .get()
              .shape() == Shape{1, 5});
    const auto named = cluster->spawn<Half>(worker, "text", std::vector<double>{1, 2});
    CHECK(named.call<&Half::describe>().get() == "text 2");
    CHECK(a.call<&Half::twice>(4).get() == 8);
    CHECK(a.call<&Half::later>(4).get() == 5);
    CHECK(a.call<&Half::inherited>(4).get() == 104);
  }
}

TEST_CASE("parameters that a call leaves out take the values that the list gives") {
  const auto cluster = Cluster::in_process(2);
  const auto a = cluster->spawn<Half>("w1", 1);
  CHECK(a.call<&Half::scaled>(5).get() == 11);
  CHECK(a.call<&Half::scaled>(5, 3).get() == 16);
  CHECK(a.call<&Half::scaled>(5, 3, 4).get() == 19);
  CHECK(a.remote<&Half::scaled>(5).to_here().get() == 11);
  CHECK(std::get<double>(AnyRef(a).call("scaled", {Value(5.0)}).get().v) == 11);
}

TEST_CASE("a type describes itself: constructors, methods, parameters, results, text") {
  const auto type = internal::actors::find_type("written_once::Half");
  REQUIRE(type);
  std::vector<std::string> signatures;
  for (const auto& m : type->methods) signatures.push_back(m.signature());
  CHECK(signatures == std::vector<std::string>{"forward(tensor) -> tensor",
                                               "scaled(x: double, by: double, plus: int64) -> double",
                                               "describe() -> string", "twice(int64) -> int64",
                                               "later(int64) -> int64", "inherited(int64) -> int64"});
  CHECK(type->methods[1].text == "x times a factor, and more.");
  CHECK(type->methods[2].blocks);
  std::vector<std::string> listed;
  for (const auto& c : type->constructors)
    if (c.listed) {
      listed.push_back(c.text);
      for (const auto& p : c.parameters) listed.push_back(p.name + ":" + p.type);
    }
  CHECK(listed == std::vector<std::string>{"A layer.", "in:int64", "out:int64", "", ":int64"});
}

TEST_CASE("listed constructors serve who has only names") {
  const auto cluster = Cluster::in_process(2);
  const NoGradGuard none;
  internal::rref::RefTable& table = cluster->here().table();
  const AnyRef made(table.spawn(1, "written_once::Half", 0, {Value(int64_t{2}), Value(int64_t{7})}));
  CHECK(std::get<Tensor>(made.call("forward", {Value(ones({1, 2}))}).get().v).shape() == Shape{1, 7});
  const AnyRef not_made(table.spawn(1, "written_once::Half", 0, {}));
  CHECK_THAT(
      error_of([&] { not_made.call("twice", {Value(int64_t{1})}).get(); }).what(),
      Catch::Contains("cannot be made by name from 0 arguments; it lists: written_once::Half(in: int64, "
                      "out: int64), written_once::Half(int64)"));
  const AnyRef unknown(table.spawn(1, "written_once::Whole", 0, {}));
  CHECK_THAT(error_of([&] { unknown.call("f", {}).get(); }).what(),
             Catch::Contains("has no actor type written_once::Whole; it has: ") &&
                 Catch::Contains("written_once::Half"));
}

namespace written_once {

// Keeps modules in every way, and lists none.
struct Keeper : Actor {
  Keeper(int64_t depth) : out(4, 2) {
    for (int64_t i = 0; i < depth; ++i) layers.emplace_back(4, 4);
    const nn::Linear passing(4, 4);
    scale = ones({1}).requires_grad_();
    heap = std::make_unique<nn::Linear>(4, 4);
    const Tensor gone = ones({1}).requires_grad_();
  }
  Tensor forward(Tensor x) {
    for (auto& l : layers) x = relu(l(x));
    return out((*heap)(x)) * scale;
  }
  void drop_heap() { heap = std::make_unique<nn::Linear>(4, 4), scale = ones({1}); }
  std::vector<nn::Linear> layers;
  nn::Linear out;
  Tensor scale;
  std::unique_ptr<nn::Linear> heap;
  std::vector<int64_t> sizes() {
    std::vector<int64_t> out;
    for (const Tensor& t : parameters()) out.push_back(t.numel());
    return out;
  }
  static constexpr auto remote = methods<&Keeper::forward, &Keeper::sizes, &Keeper::drop_heap>;
};

struct Deep : nn::Sequential {
  Deep() : Sequential(nn::Linear(3, 3), nn::ReLU(), nn::Linear(3, 1)) {}
};
struct Holder : Actor {
  Deep net;
  Tensor forward(Tensor x) { return net(x); }
  static constexpr auto remote = methods<&Holder::forward>;
};

}  // namespace written_once

using written_once::Holder;
using written_once::Keeper;

TEST_CASE("modules and parameters that an actor's constructor made are found, wherever it keeps them") {
  const auto cluster = Cluster::in_process(2);
  for (const char* worker : {"w0", "w1"}) {
    const auto a = cluster->spawn<Keeper>(worker, 3);
    // Three layers, `out` (made first), `heap`, and the tensor; not what was made in passing.
    CHECK(a.call<&Keeper::sizes>().get() == std::vector<int64_t>{8, 2, 16, 4, 16, 4, 16, 4, 16, 4, 1});
    optim::Distributed<optim::SGD> optimizer({a}, {.lr = 0.1});
    const auto before = nn::remote_parameters(a).get();
    CHECK(before.size() == 11);
    {
      autograd::Context step(*cluster);
      step.backward(a(ones({2, 4})).get().sum());
      optimizer.step(step);
    }
    const auto after = nn::remote_parameters(a).get();
    CHECK_FALSE(bit_equal(before.at("tensor0"), after.at("tensor0")));
    CHECK_FALSE(bit_equal(before.at("0.bias"), after.at("0.bias")));
    nn::set_remote_training(a, false).get();
    CHECK_FALSE(nn::remote_training(a).get());
    const auto b = cluster->spawn<Keeper>(worker, 1);
    b.call<&Keeper::drop_heap>().get();  // what was made later is not of the constructor
    CHECK(b.call<&Keeper::sizes>().get() == std::vector<int64_t>{8, 2, 16, 4});
  }
}

TEST_CASE("a class may derive from nn::Sequential") {
  const auto cluster = Cluster::in_process(2);
  const NoGradGuard none;
  const auto a = cluster->spawn<Holder>("w1");
  CHECK(a(ones({2, 3})).get().shape() == Shape{2, 1});
  CHECK(nn::remote_parameters(a).get().size() == 4);
}
