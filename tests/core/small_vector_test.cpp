// The vector with room in place: like std::vector in every state, and no element lost or leaked.
#include "core/base/small_vector.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

using namespace troupe;

namespace {

using Item = std::shared_ptr<int>;  // counts its owners
using Items = SmallVector<Item, 2>;

std::vector<int> values(const Items& items) {
  std::vector<int> out;
  for (const Item& i : items) out.push_back(i ? *i : -1);
  return out;
}

}  // namespace

TEST_CASE("a short vector grows, copies, moves and shrinks in place and on the heap") {
  const Item item = std::make_shared<int>(7);
  for (const size_t count : {0u, 1u, 2u, 3u, 9u}) {
    CAPTURE(count);
    {
      Items a;
      for (size_t i = 0; i < count; ++i) a.push_back(item);
      const std::vector<int> all(count, 7);
      CHECK(values(a) == all);
      Items b = a;
      CHECK(b == a);
      Items c = std::move(a);
      CHECK(a.empty());
      a.push_back(item);  // usable after the move
      CHECK(values(a) == std::vector<int>{7});
      CHECK(values(c) == all);
      a = c;
      CHECK(values(a) == all);
      b = std::move(a);
      CHECK(values(b) == all);
      b.resize(count + 1);
      CHECK(b.back() == nullptr);
      b.resize(count / 2);
      CHECK(b.size() == count / 2);
      c.clear();
      CHECK(c.empty());
      CHECK(item.use_count() == static_cast<long>(1 + b.size()));
    }
    CHECK(item.use_count() == 1);
  }
}

TEST_CASE("an element of the vector may be pushed to it while it grows") {
  SmallVector<std::vector<int>, 1> v{{1, 2, 3}};
  v.push_back(v[0]);
  v.emplace_back(v[1]);
  CHECK(v[2] == std::vector<int>{1, 2, 3});
  CHECK(v.size() == 3);
  v.resize(5, v[0]);
  CHECK(v[4] == v[0]);
  v.resize(1, v[0]);
  CHECK(v.size() == 1);
}
