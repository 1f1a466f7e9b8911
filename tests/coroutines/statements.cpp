// Shapes of statements and whole coroutines: loops, branches, exceptions, results, captures, and frames that
// are destroyed while they wait.
#include <array>
#include <tuple>

#include "tests/coroutines/shape.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

struct Pair {
  Item a, b;
};

Task<std::vector<Item>> list() {
  co_await Pause{};
  std::vector<Item> all;
  for (int i = 1; i <= 3; ++i) all.emplace_back(i);
  co_return all;
}
Task<std::pair<Item, Item>> pair() {
  co_await Pause{};
  co_return std::pair<Item, Item>(1, 2);
}
Task<Pair> aggregate() {
  co_await Pause{};
  co_return {Item(1), Item(2)};
}
Task<Item> chosen(bool first) {
  co_await Pause{};
  co_return first ? Item(1) : Item(2);
}
Task<Item> named() {
  Item item(5);
  co_await Pause{};
  co_return item;
}
Task<Item> parameter(Item item) {
  co_await Pause{};
  co_return item;
}
Task<Item> passed_on() { co_return co_await parameter(Item(5)); }
Task<int> sum_pair(Pair p) {
  co_await Pause{};
  co_return p.a.get() + p.b.get();
}
Task<int> three_deep(int depth, Item item) {
  const Item mine(depth);
  if (depth == 0) co_return co_await taken(std::move(item));
  co_return co_await three_deep(depth - 1, std::move(item)) + mine.get();
}
Task<void> nothing(Item item) {
  co_await Pause{};
  (void)item.get();
}

struct Ends {
  explicit Ends(std::vector<int>& t, int n) : to(t), number(n) {}
  ~Ends() { to.push_back(number); }
  std::vector<int>& to;
  int number;
};

}  // namespace

SHAPE("for over an awaited temporary", 3, 6) {
  int all = 0;
  for (const Item& i : co_await list()) all += i.get();
  co_return all;
}
SHAPE("for over an awaited temporary, waiting in the body", 3, 6) {
  int all = 0;
  for (const Item& i : co_await list()) all += co_await read(i);
  co_return all;
}
SHAPE("for over an awaited temporary, left early", 3, 1) {
  for (const Item& i : co_await list()) co_return co_await read(i);
  co_return 0;
}
SHAPE("for over an initializer list, waiting in the body", 3, 6) {
  int all = 0;
  for (const Item& i : {Item(1), Item(2), Item(3)}) all += co_await read(i);
  co_return all;
}
SHAPE("for over values, waiting in the body", 3, 6) {
  int all = 0;
  for (Item i : co_await list()) all += co_await taken(std::move(i));
  co_return all;
}
SHAPE("structured bindings of an awaited pair", 2, 12) {
  const auto [a, b] = co_await pair();
  co_await Pause{};
  co_return a.get() * 10 + b.get();
}
SHAPE("structured bindings by reference to an awaited pair", 2, 12) {
  const auto& [a, b] = co_await pair();
  co_return co_await read(a) * 10 + b.get();
}
SHAPE("a reference to an awaited temporary", 1, 5) {
  const Item& item = co_await made(5);
  co_await Pause{};
  co_return item.get();
}
SHAPE("an rvalue reference to a member of an aggregate", 2, 3) {
  Pair&& p = co_await aggregate();
  co_await Pause{};
  co_return p.a.get() + p.b.get();
}
SHAPE("if with an awaited initializer", 1, 5) {
  if (const Item item = co_await made(5); item.get() == 5) {
    co_await Pause{};
    co_return item.get();
  }
  co_return 0;
}
SHAPE("if and else with awaited temporaries", 2, 2) {
  if (co_await taken(Item(0)))
    co_return co_await taken(Item(1));
  else
    co_return co_await taken(Item(2));
}
SHAPE("switch on an awaited temporary", 2, 4) {
  switch (const Item item(2); co_await read(item)) {
    case 1:
      co_return 0;
    case 2: {
      const Item other(4);
      co_await Pause{};
      co_return other.get();
    }
  }
  co_return 0;
}
SHAPE("while with an awaited condition", 4, 6) {
  int n = 0, all = 0;
  while (co_await taken(Item(n)) < 3) all += ++n;
  co_return all;
}
SHAPE("do with an awaited condition", 3, 3) {
  int n = 0;
  do ++n;
  while (co_await taken(Item(n)) < 3);
  co_return n;
}
SHAPE("for with waits in all its parts", 9, 6) {
  int all = 0;
  for (int i = co_await taken(Item(1)); co_await truth(i < 4); i += co_await taken(Item(1))) {
    const Item item(i);
    all += co_await read(item);
    if (const Item last(i); last.get() == 3) break;
  }
  co_return all;
}
SHAPE("continue past objects that end", 4, 8) {
  int all = 0;
  for (int i = 0; i < 4; ++i) {
    const Item item(i);
    if (co_await number(i) % 2 == 0) continue;
    all += 2 * item.get();
  }
  co_return all;
}

// ---- results

SHAPE("co_return of a temporary", 1, 5) { co_return (co_await made(5)).get(); }
SHAPE("co_return of a conditional", 1, 2) { co_return (co_await chosen(false)).get(); }
SHAPE("co_return of a named object", 1, 5) { co_return (co_await named()).get(); }
SHAPE("co_return of a parameter", 1, 5) { co_return (co_await parameter(Item(5))).get(); }
SHAPE("co_return of an awaited object", 1, 5) { co_return (co_await passed_on()).get(); }
SHAPE("co_return of an aggregate", 2, 3) {
  const Pair p = co_await aggregate();
  co_return p.a.get() + p.b.get();
}
SHAPE("a task without a value", 1, 1) {
  co_await nothing(Item(5));
  co_return 1;
}
SHAPE("coroutines that call each other", 5, 10) { co_return co_await three_deep(3, Item(4)); }
SHAPE("tasks that are kept and awaited later", 2, 3) {
  Task<int> a = taken(Item(1)), b = taken(Item(2));
  const int second = co_await b;
  co_return co_await a + second;
}
SHAPE("a task that nobody awaits", 1, 1) {
  { [[maybe_unused]] const Task<int> never = taken(Item(1)); }
  co_return 1;
}

// ---- exceptions

SHAPE("an exception of what is awaited", 1, 1) {
  try {
    (void)co_await fails(Item(5));
  } catch (const std::runtime_error&) {
    co_return 1;
  }
  co_return 0;
}
SHAPE("an exception behind a temporary of the same expression", 3, 1) {
  try {
    (void)(Item(1).get() + co_await fails(Item(5)) + co_await taken(Item(2)));
  } catch (const std::runtime_error&) {
  }
  co_return co_await read(Item(1));
}
SHAPE("an exception within an aggregate", 2, 1) {
  try {
    (void)co_await sum_pair({Item(1), Item(co_await fails(Item(5)))});
  } catch (const std::runtime_error&) {
    co_return 1;
  }
  co_return 0;
}
SHAPE("an exception through two coroutines", 2, 1) {
  const auto between = [](Item item) -> Task<int> { co_return co_await fails(Item(5)) + item.get(); };
  try {
    (void)co_await between(Item(1));
  } catch (const std::runtime_error&) {
    co_return 1;
  }
  co_return 0;
}
SHAPE("an exception that was kept while others wait", 2, 1) {
  std::exception_ptr kept;
  try {
    (void)co_await fails(Item(5));
  } catch (...) {
    kept = std::current_exception();
  }
  const int one = co_await taken(Item(1));
  co_return kept ? one : 0;
}

// ---- captures

SHAPE("a lambda with captures that lives on", 1, 10) {
  const auto f = [item = Item(5)]() -> Task<int> {
    co_await Pause{};
    co_return item.get();
  };
  const int once = co_await f();
  co_return once + co_await f();
}
SHAPE("a lambda with captures, called where it is written", 1, 5) {
  co_return co_await [item = Item(5)]() -> Task<int> {
    co_await Pause{};
    co_return item.get();
  }();
}
SHAPE("a lambda with parameters and captures by reference", 2, 7) {
  const Item outer(3);
  const auto f = [&](Item item) -> Task<int> {
    co_await Pause{};
    co_return item.get() + outer.get();
  };
  co_return co_await f(Item(4));
}
SHAPE("a generic lambda", 2, 7) {
  const auto f = [](auto... items) -> Task<int> {
    co_await Pause{};
    co_return (items.get() + ...);
  };
  co_return co_await f(Item(3), Item(4));
}

// ---- frames

SHAPE("guards end in their order, across waits", 0, 321) {
  std::vector<int> order;
  {
    const Ends first(order, 1);
    co_await Pause{};
    const Ends second(order, 2);
    {
      const Ends third(order, 3);
      co_await Pause{};
    }
    co_await Pause{};
  }
  co_return order[0] * 100 + order[1] * 10 + order[2];
}
SCENE("a frame destroyed before it starts", 1, 0) {
  { [[maybe_unused]] const Task<int> never = three_deep(3, Item(4)); }
  return 0;
}
SCENE("a frame destroyed while it waits", 2, 0) {
  const auto f = []() -> Task<int> {
    const Item local(1);
    co_return co_await taken(Item(2)) + local.get();
  };
  run_and_drop(f(), 0);
  return 0;
}
SCENE("a frame destroyed while temporaries of its expression live", 3, 0) {
  const auto f = []() -> Task<int> { co_return co_await read(Item(1) + Item(2)); };
  run_and_drop(f(), 0);
  return 0;
}
SCENE("a frame destroyed in the second wait of an expression", 2, 0) {
  const auto f = []() -> Task<int> { co_return co_await read(Item(1)) + co_await read(Item(2)); };
  run_and_drop(f(), 1);
  return 0;
}
SCENE("a frame destroyed within an aggregate", 1, 0) {
  const auto f = []() -> Task<int> { co_return co_await sum_pair({Item(1), Item(co_await number(2))}); };
  run_and_drop(f(), 0);
  return 0;
}
SCENE("frames destroyed four deep", 5, 0) {
  run_and_drop(three_deep(3, Item(4)), 0);
  return 0;
}
SCENE("a frame destroyed in a loop over a temporary", 3, 0) {
  const auto f = []() -> Task<int> {
    int all = 0;
    for (const Item& i : co_await list()) all += co_await read(i);
    co_return all;
  };
  run_and_drop(f(), 2);
  return 0;
}
