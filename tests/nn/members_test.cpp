// What members() forgets is refused: modules that are members, and tensors that a layer computes with.
#include <array>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "core/base/error.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;
using Catch::Contains;
using testing::text_of;

namespace {

const Tensor kInput = ones({1, 2});

// Lists what it is told to.
struct Net : nn::Layer {
  nn::Linear a{2, 2};
  nn::Linear b{2, 2};
  bool whole = true;
  Tensor forward(const Tensor& x) override { return b(a(x)); }
  void members(nn::Members& m) override {
    m("a", a);
    if (whole) m("b", b);
  }
};

// As the last member, and in a class that inherits.
struct Deeper : Net {
  nn::Dropout drop{0.5};
  nn::Linear c{2, 2};
  bool all = true;
  Tensor forward(const Tensor& x) override { return c(drop(Net::forward(x))); }
  void members(nn::Members& m) override {
    Net::members(m);
    m("c", c);
    if (all) m("drop", drop);
  }
};

// Not a layer, and not the first base.
struct Other {
  virtual ~Other() = default;
  int64_t number = 3;
};
struct Beside : Other, nn::Module {
  std::array<nn::Linear, 2> pair{nn::Linear(2, 2), nn::Linear(2, 2)};
  std::optional<nn::Dropout> maybe;
  bool second = true;
  void members(nn::Members& m) override {
    m("0", pair[0]);
    if (second) m("1", pair[1]);
  }
};

struct Elsewhere : nn::Layer {
  std::vector<nn::Linear> layers;
  std::unique_ptr<nn::Layer> last = std::make_unique<nn::Linear>(2, 2);
  Tensor scale = ones({2}).requires_grad_();
  bool lists_vector = true, lists_pointer = true, lists_tensor = true;
  Elsewhere() {
    for (int i = 0; i < 3; ++i) layers.emplace_back(2, 2);
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (auto& l : layers) y = l(y);
    return ops::mul((*last)(y), scale);
  }
  void members(nn::Members& m) override {
    for (size_t i = 0; lists_vector && i < layers.size(); ++i) m(std::to_string(i), layers[i]);
    if (lists_pointer) m("last", *last);
    if (lists_tensor) m("scale", scale);
  }
};

}  // namespace

TEST_CASE("a module that is a member and is not listed is refused as soon as members are asked for") {
  Net net;
  CHECK(net.parameters().size() == 4);
  net.whole = false;
  const std::string text = text_of([&] { net.parameters(); });
  CHECK_THAT(text, Contains("[nn] Net has a member Linear(2, 2) that members() does not list"));
  for (const auto& use : std::vector<std::function<void()>>{
           [&] { net.named_buffers(); }, [&] { net.state_dict(); }, [&] { net.eval(); },
           [&] { net.to(float64); }, [&] { net.children(); }})
    CHECK_THAT(text_of(use), Contains("does not list"));
  CHECK(net.training());
}

TEST_CASE("so is one of a class in between, one without parameters, and one inside another") {
  Deeper net;
  CHECK(net.parameters().size() == 6);
  net.all = false;
  CHECK_THAT(text_of([&] { net.eval(); }), Contains("Deeper has a member Dropout(0.5)"));
  net.all = true, net.whole = false;
  CHECK_THAT(text_of([&] { net.parameters(); }), Contains("Deeper has a member Linear(2, 2)"));

  struct Around : nn::Module {
    Deeper inner;
    void members(nn::Members& m) override { m("inner", inner); }
  } around;
  around.inner.all = false;
  CHECK_THAT(text_of([&] { around.parameters(); }), Contains("Deeper has a member Dropout"));
}

TEST_CASE("a member that is no part of the model is left out on purpose") {
  struct Part : nn::Layer {
    nn::Linear fc{2, 2}, head{2, 5};
    bool last = false;
    Tensor forward(const Tensor& x) override { return last ? head(fc(x)) : fc(x); }
    void members(nn::Members& m) override {
      m("fc", fc);
      last ? m("head", head) : m.without(head);
    }
  } part;
  CHECK(part.parameters().size() == 2);
  CHECK(part.state_dict().size() == 2);
  part.eval();
  CHECK(part.head.training());
  CHECK(part(kInput).shape() == Shape{1, 2});
  part.last = true;
  CHECK(part.parameters().size() == 4);
}

TEST_CASE("members of arrays and optionals count, wherever the module's base lies") {
  Beside beside;
  CHECK(beside.parameters().size() == 4);
  CHECK(beside.object_size() == sizeof(Beside));
  beside.maybe.emplace(0.5);
  CHECK_THAT(text_of([&] { beside.eval(); }), Contains("Beside has a member Dropout"));
  beside.maybe.reset();
  beside.eval();
  beside.second = false;
  CHECK_THAT(text_of([&] { beside.eval(); }), Contains("Beside has a member Linear"));
}

TEST_CASE("copies, moved modules and modules side by side are told apart") {
  Net a;
  Net b = a;
  std::vector<Net> many;
  for (int i = 0; i < 5; ++i) many.push_back(i % 2 ? a : Net());  // moves them about
  for (Net& n : many) CHECK(n.parameters().size() == 4);
  const auto heap = std::make_unique<Net>(std::move(b));
  const auto shared = std::make_shared<Deeper>();
  CHECK(heap->parameters().size() == 4);
  CHECK(shared->parameters().size() == 6);
  CHECK(a.object_size() == sizeof(Net));
  CHECK(std::unique_ptr<nn::Module>(new Deeper)->object_size() == sizeof(Deeper));
  many.erase(many.begin() + 1);
  for (Net& n : many) CHECK(n.parameters().size() == 4);
  many[0].whole = false;
  CHECK_THAT(text_of([&] { many[0].parameters(); }), Contains("does not list"));
  CHECK(many[1].parameters().size() == 4);
  struct alignas(64) Wide : Net {
    alignas(64) char more[64] = {};
  };
  CHECK(std::make_unique<Wide>()->object_size() == sizeof(Wide));
}

TEST_CASE("a constructor that throws leaves nothing behind") {
  struct Bad : nn::Module {
    nn::Linear good{2, 2}, bad{0, 2};
  };
  CHECK_THAT(text_of([] { std::make_unique<Bad>(); }), Contains("[linear] sizes"));
  Net net;
  CHECK(net.parameters().size() == 4);
}

TEST_CASE("a tensor that a layer computes with and does not list is refused, wherever it is kept") {
  {
    Elsewhere net;
    CHECK(net(kInput).requires_grad());
    CHECK(net.parameters().size() == 9);
  }
  for (bool Elsewhere::*what :
       {&Elsewhere::lists_vector, &Elsewhere::lists_pointer, &Elsewhere::lists_tensor}) {
    Elsewhere net;
    net.*what = false;
    CHECK_THAT(text_of([&] { net(kInput); }),
               Contains("[nn] Elsewhere computes with float32 [2") &&
                   Contains("is none of its parameters, so no optimizer of them would train it"));
    const NoGradGuard guard;
    CHECK(net(kInput).shape() == Shape{1, 2});  // nothing is recorded, so nothing is missed
  }
  Elsewhere net;
  net.lists_tensor = false;
  net.scale.requires_grad_(false);
  CHECK(net(kInput).requires_grad());
  // Layers around it find it, too.
  struct Around : nn::Layer {
    Elsewhere inner;
    Tensor extra = ones({2}).requires_grad_();
    Tensor forward(const Tensor& x) override { return ops::add(inner(x), extra); }
    void members(nn::Members& m) override { m("inner", inner); }
  } around;
  CHECK_THAT(text_of([&] { around(kInput); }), Contains("Around computes with float32 [2]"));
}

TEST_CASE("inputs, tensors made from parameters and shared parameters are no finds") {
  nn::Linear fc(2, 2);
  Tensor x = kInput.clone_data().requires_grad_();
  CHECK(fc(x).requires_grad());
  struct Tied : nn::Layer {
    nn::Embedding table{5, 2};
    nn::Linear out{2, 5, false};
    Tensor position = ones({2}).requires_grad_();
    Tied() { out.weight = table.weight; }
    Tensor forward(const Tensor& ids) override { return out(ops::add(table(ids), position)); }
    void members(nn::Members& m) override { m("table", table), m("out", out), m("position", position); }
  } tied;
  CHECK(tied(tensor({1, 2})).requires_grad());
  nn::Linear derived(2, 2, false);
  derived.weight = ops::mul(fc.weight, 2);  // no leaf: its gradient goes to fc
  CHECK(derived(kInput).requires_grad());
  nn::Linear frozen(2, 2);
  CHECK(nn::Sequential(frozen, nn::ReLU(), frozen)(kInput).requires_grad());  // listed twice
}

TEST_CASE("a member that is used later than at the first call is found later") {
  struct Late : nn::Layer {
    int calls = 0;
    Tensor scale = ones({2}).requires_grad_();
    nn::Linear fc{2, 2};
    Tensor forward(const Tensor& x) override { return ++calls > 5 ? ops::mul(fc(x), scale) : fc(x); }
    void members(nn::Members& m) override { m("fc", fc); }
  } net;
  int calls = 0;
  const std::string text = text_of([&] {
    for (; calls < 100; ++calls) net(kInput);
  });
  CHECK_THAT(text, Contains("Late computes with float32 [2]"));
  CHECK(calls < 8);
}

TEST_CASE("a module that lists itself, or two members by one name, is refused") {
  struct Self : nn::Module {
    void members(nn::Members& m) override { m("self", *this); }
  } self;
  CHECK_THAT(text_of([&] { self.parameters(); }), Contains("Self lists itself as \"self\""));
  CHECK_THAT(text_of([&] { self.eval(); }), Contains("lists itself"));
  struct Twice : nn::Module {
    nn::Linear a{2, 2}, b{2, 2};
    void members(nn::Members& m) override { m("a", a), m("a", b); }
  } twice;
  CHECK_THAT(text_of([&] { twice.parameters(); }), Contains("two members are called \"a\" in Twice"));
}
