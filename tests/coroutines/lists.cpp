// Shapes with initializer lists in one awaited expression. g++ 12 refuses them ("array used as initializer").
#include <initializer_list>
#include <map>

#include "tests/coroutines/shape.h"

#if defined(__clang__) || __GNUC__ > 12

using namespace troupe;
using namespace troupe::testing;

namespace {

Task<int> sum_list(std::initializer_list<Item> list) {
  co_await Pause{};
  int all = 0;
  for (const Item& i : list) all += i.get();
  co_return all;
}
Task<int> sum_vector(std::vector<Item> v) {
  co_await Pause{};
  int all = 0;
  for (const Item& i : v) all += i.get();
  co_return all;
}
Task<int> sum_map(std::map<Item, Item> m) {
  co_await Pause{};
  int all = 0;
  for (const auto& [k, v] : m) all += 10 * k.get() + v.get();
  co_return all;
}

}  // namespace

SHAPE("a conditional within an initializer list", 2, 12) {
  co_return co_await sum_list({no() ? Item(1) : Item(2), Item(10)});
}
SHAPE("an initializer list", 3, 6) { co_return co_await sum_list({Item(1), Item(2), Item(3)}); }
SHAPE("an initializer list of converted numbers", 3, 6) { co_return co_await sum_list({1, 2, 3}); }
SHAPE("a vector from an initializer list", 3, 6) {
  co_return co_await sum_vector({Item(1), Item(2), Item(3)});
}
SHAPE("a map from an initializer list of pairs", 4, 37) {
  co_return co_await sum_map({{Item(1), Item(3)}, {Item(2), Item(4)}});
}
SHAPE("an initializer list with an awaited number", 2, 3) {
  co_return co_await sum_list({Item(1), Item(co_await number(2))});
}
SHAPE("an initializer list of awaited objects", 2, 3) {
  co_return co_await sum_vector({co_await made(1), co_await made(2)});
}
SHAPE("an exception within an initializer list", 2, 1) {
  try {
    (void)co_await sum_list({Item(1), Item(co_await fails(Item(5)))});
  } catch (const std::runtime_error&) {
    co_return 1;
  }
  co_return 0;
}

#endif
