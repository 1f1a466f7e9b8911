// Shapes in one awaited expression: which temporaries live across the wait, and end once after it.
#include <array>
#include <tuple>
#include <variant>

#include "tests/coroutines/shape.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

struct Pair {
  Item a, b;
};
struct Nested {
  Pair pair;
  Item c;
};
struct Defaults {
  Item a = 1;
  Item b = Item(2) + Item(3);
};

Task<int> sum(Item a, Item b) {
  co_await Pause{};
  co_return a.get() + b.get();
}
Task<int> sum_pair(Pair p) {
  co_await Pause{};
  co_return p.a.get() + p.b.get();
}
Task<int> sum_pair_ref(const Pair& p) {
  co_await Pause{};
  co_return p.a.get() + p.b.get();
}
Task<int> sum_nested(Nested n) {
  co_await Pause{};
  co_return n.pair.a.get() + n.pair.b.get() + n.c.get();
}
Task<int> sum_defaults(Defaults d) {
  co_await Pause{};
  co_return d.a.get() + d.b.get();
}
Task<int> sum_array(std::array<Item, 3> a) {
  co_await Pause{};
  co_return a[0].get() + a[1].get() + a[2].get();
}
Task<int> with_default(Item a = Item(7)) {
  co_await Pause{};
  co_return a.get();
}
Task<int> with_default_ref(const Item& a = Item(3) + Item(4)) {
  co_await Pause{};
  co_return a.get();
}
Task<int> with_default_choice(Item a = no() ? Item(1) : Item(7)) {
  co_await Pause{};
  co_return a.get();
}
Task<int> maybe(std::optional<Item> a) {
  co_await Pause{};
  co_return a ? a->get() : -1;
}
Task<int> either(std::variant<int, Item> a) {
  co_await Pause{};
  co_return std::get<Item>(a).get();
}
Task<int> called(std::function<int()> f) {
  co_await Pause{};
  co_return f();
}
Task<int> text(std::string a) {
  co_await Pause{};
  co_return static_cast<int>(a.size());
}

}  // namespace

SHAPE("a temporary as an argument, by value", 1, 5) { co_return co_await taken(Item(5)); }
SHAPE("a temporary as an argument, by reference", 1, 5) { co_return co_await read(Item(5)); }
SHAPE("a temporary as an argument, by rvalue reference", 1, 5) { co_return co_await moved(Item(5)); }
SHAPE("a converted argument", 1, 5) { co_return co_await taken(5); }
SHAPE("a converted argument, by reference", 1, 5) { co_return co_await read(5); }
SHAPE("a named object, copied", 1, 10) {
  const Item item(5);
  co_return co_await taken(item) + item.get();
}
SHAPE("a named object, moved", 1, 5) {
  Item item(5);
  co_return co_await taken(std::move(item));
}

// ---- conditional operands

SHAPE("a conditional of two temporaries, by value", 1, 2) {
  co_return co_await taken(no() ? Item(1) : Item(2));
}
SHAPE("a conditional of two temporaries, by reference", 1, 1) {
  co_return co_await read(yes() ? Item(1) : Item(2));
}
SHAPE("a conditional of two temporaries, by rvalue reference", 1, 1) {
  co_return co_await moved(yes() ? Item(1) : Item(2));
}
SHAPE("a conditional of a temporary and a name", 2, 1) {
  const Item named(2);
  co_return co_await taken(yes() ? Item(1) : named);
}
SHAPE("a conditional of a name and a temporary", 1, 2) {
  const Item named(2);
  co_return co_await taken(yes() ? named : Item(1));
}
SHAPE("a conditional of two names", 2, 3) {
  const Item a(2), b(3);
  co_return co_await taken(no() ? a : b);
}
SHAPE("a conditional within a conditional", 1, 2) {
  co_return co_await taken(no() ? Item(1) : yes() ? Item(2) : Item(3));
}
SHAPE("a conditional within a constructor's argument", 2, 12) {
  co_return co_await taken(Item((no() ? Item(1) : Item(2)).get() + 10));
}
SHAPE("a conditional within a sum", 3, 12) {
  co_return co_await taken((no() ? Item(1) : Item(2)) + Item(10));
}
SHAPE("a conditional of strings", 0, 30) {
  co_return co_await text(no() ? std::string("a text too long for a small string")
                               : std::string("another text, which is as long"));
}
SHAPE("a conditional of a string and a literal", 0, 30) {
  const std::string name = "a text too long for a small string";
  co_return co_await text(no() ? name : "another text, which is as long");
}
SHAPE("a conditional of lambdas with captures", 1, 2) {
  co_return co_await called(no() ? std::function<int()>([i = Item(1)] { return i.get(); })
                                 : std::function<int()>([i = Item(2)] { return i.get(); }));
}
SHAPE("a conditional within an aggregate", 2, 12) {
  co_return co_await sum_pair({no() ? Item(1) : Item(2), Item(10)});
}
SHAPE("a conditional of aggregates", 2, 7) {
  co_return co_await sum_pair(no() ? Pair{Item(1), Item(2)} : Pair{Item(3), Item(4)});
}
SHAPE("a conditional whose operands wait", 1, 2) {
  co_return no() ? co_await taken(Item(1)) : co_await read(Item(2));
}
SHAPE("a conditional of tasks", 1, 2) { co_return co_await (no() ? taken(Item(1)) : read(Item(2))); }
SHAPE("a conditional whose condition waits", 1, 2) {
  co_return co_await taken((co_await truth(false)) ? Item(1) : Item(2));
}
SHAPE("a conditional of awaited objects", 1, 2) {
  co_return co_await taken(no() ? co_await made(1) : co_await made(2));
}
SHAPE("a conditional that throws", 1, 4) {
  try {
    (void)co_await taken(no() ? Item(1) : throw Item(4));
  } catch (const Item& i) {
    co_return i.get();
  }
  co_return 0;
}

// ---- aggregates

SHAPE("an aggregate, by value", 2, 3) { co_return co_await sum_pair({Item(1), Item(2)}); }
SHAPE("an aggregate, by reference", 2, 3) { co_return co_await sum_pair_ref({Item(1), Item(2)}); }
SHAPE("an aggregate by name", 2, 3) { co_return co_await sum_pair(Pair{.a = Item(1), .b = Item(2)}); }
SHAPE("an aggregate of converted numbers", 2, 3) { co_return co_await sum_pair({1, 2}); }
SHAPE("an aggregate within an aggregate", 3, 6) {
  co_return co_await sum_nested({{Item(1), Item(2)}, Item(3)});
}
SHAPE("an aggregate with default members", 4, 6) { co_return co_await sum_defaults({}); }
SHAPE("an aggregate with one default member", 4, 14) { co_return co_await sum_defaults({.a = Item(9)}); }
SHAPE("an array", 3, 6) { co_return co_await sum_array({Item(1), Item(2), Item(3)}); }
SHAPE("an aggregate whose last member waits", 2, 3) {
  co_return co_await sum_pair({Item(1), co_await made(2)});
}
SHAPE("an aggregate whose first member waits", 2, 3) {
  co_return co_await sum_pair({co_await made(1), Item(2)});
}
SHAPE("an optional", 1, 5) { co_return co_await maybe(Item(5)); }
SHAPE("a variant", 1, 5) { co_return co_await either(Item(5)); }
SHAPE("a lambda with a capture", 1, 5) {
  co_return co_await called([i = Item(5)] { return i.get(); });
}
SHAPE("a tuple of temporaries", 2, 3) {
  const auto f = [](std::tuple<Item, Item> t) -> Task<int> {
    co_await Pause{};
    co_return std::get<0>(t).get() + std::get<1>(t).get();
  };
  co_return co_await f({Item(1), Item(2)});
}

// ---- default arguments

SHAPE("a default argument, by value", 1, 7) { co_return co_await with_default(); }
SHAPE("a default argument, by reference", 3, 7) { co_return co_await with_default_ref(); }
SHAPE("a default argument with a conditional", 1, 7) { co_return co_await with_default_choice(); }

// ---- several waits in one expression

SHAPE("waits within arguments of waits", 1, 5) {
  co_return co_await number(co_await taken(co_await made(5)));
}
SHAPE("two arguments that wait", 2, 3) { co_return co_await sum(co_await made(1), co_await made(2)); }
SHAPE("an argument that waits behind a temporary", 2, 3) {
  co_return co_await sum(Item(1), co_await made(2));
}
SHAPE("a sum of waits", 3, 6) {
  co_return co_await taken(Item(1)) + co_await read(Item(2)) + co_await moved(Item(3));
}
SHAPE("and, with both sides", 2, 1) { co_return co_await taken(Item(1)) && co_await taken(Item(2)); }
SHAPE("and, with the left side only", 1, 0) { co_return co_await taken(Item(0)) && co_await taken(Item(2)); }
SHAPE("or, with the left side only", 1, 1) { co_return co_await taken(Item(1)) || co_await taken(Item(2)); }
SHAPE("or, with both sides", 2, 1) { co_return co_await taken(Item(0)) || co_await taken(Item(2)); }
SHAPE("a temporary to the right of and", 2, 1) {
  co_return yes() && Item(3).get() == 3 && co_await read(Item(1)) == 1;
}
SHAPE("commas", 3, 3) {
  co_return (co_await taken(Item(1)), co_await read(Item(2)), co_await taken(Item(3)));
}
SHAPE("a comma behind a temporary", 2, 2) { co_return (Item(1), co_await taken(Item(2))); }
SHAPE("a member of a temporary", 1, 5) { co_return co_await Item(5).later(); }
SHAPE("a member of a sum of temporaries", 3, 5) { co_return co_await (Item(2) + Item(3)).later(); }
SHAPE("a member of an awaited temporary", 1, 5) { co_return co_await (co_await made(5)).later(); }
SHAPE("a subscript that waits", 3, 20) {
  const std::vector<Item> v{Item(10), Item(20)};
  co_return v[static_cast<size_t>(co_await taken(Item(1)))].get();
}
SHAPE("a compound assignment", 2, 13) {
  int all = 10;
  all += co_await taken(Item(1));
  all += co_await read(Item(2));
  co_return all;
}
SHAPE("an object on the heap from an awaited number", 2, 5) {
  const auto p = std::make_unique<Item>(co_await taken(Item(5)));
  co_return p->get();
}
