// Lazy copies: two tensors with one run of bytes until either is written to.
#include "core/graph/copy_on_write.h"
#include "core/tensor/creation.h"
#include "core/tensor/elements.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "core/graph/exposed.h"
#include "core/graph/inplace_write.h"
#include "core/graph/node.h"
#include "tests/support/error_of.h"
#include "tests/support/received.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

Tensor counted(int64_t n) {
  const Tensor t = empty({n});
  for (int64_t i = 0; i < n; ++i) t.data<float>()[i] = static_cast<float>(i);
  return t;
}
// A writer as operators are.
void fill(const Tensor& t, double value) {
  begin_write(t, "fill");
  fill_elements(t, value);
  t.bump_version("fill");
}
bool same_bytes(const Tensor& a, const Tensor& b) { return a.bytes() == b.bytes(); }

}  // namespace

TEST_CASE("a lazy copy has bytes of its own from the first write of either side") {
  for (const bool to_the_copy : {false, true}) {
    const Tensor t = counted(1000);
    const Tensor copy = internal::lazy_copy(t);
    CHECK(same_bytes(t, copy));
    CHECK(t.storage() != copy.storage());
    CHECK(t.storage()->shares_bytes());
    CHECK_FALSE(copy.is_exclusive());
    const auto before = t.to_vector<float>();
    fill(to_the_copy ? copy : t, 7);
    CHECK_FALSE(same_bytes(t, copy));
    CHECK((to_the_copy ? t : copy).to_vector<float>() == before);
    CHECK((to_the_copy ? copy : t).to_vector<float>() == std::vector<float>(1000, 7));
    CHECK((to_the_copy ? copy : t).version() == 1);
    CHECK((to_the_copy ? t : copy).version() == 0);
    CHECK(t.is_exclusive());
    CHECK(copy.is_exclusive());
  }
}

TEST_CASE("views of a side see its writes, before and after they have bytes of their own") {
  const Tensor t = counted(1000);
  const Tensor view = t.alias({500}, {2}, 0);
  const Tensor copy = internal::lazy_copy(t);
  fill(view, -1);
  CHECK(t.data<float>()[0] == -1);
  CHECK(t.data<float>()[1] == 1);
  CHECK(copy.data<float>()[0] == 0);
  fill(t, 5);
  CHECK(view.to_vector<float>() == std::vector<float>(500, 5));
  CHECK(copy.data<float>()[999] == 999);
}

TEST_CASE("a copy of a part takes that part alone, wherever it begins") {
  const Tensor t = counted(100'000);
  for (const int64_t begin : {0, 1, 15, 16, 17, 4000}) {
    const Tensor part = t.alias({2000}, {1}, begin);
    const Tensor copy = internal::lazy_copy(part);
    CHECK(same_bytes(part, copy));
    CHECK(copy.storage()->size() < 8000 + 64);
    CHECK(copy.data<float>()[0] == static_cast<float>(begin));
    const size_t in_use = allocator_stats().in_use;
    fill(copy, 1);
    CHECK(allocator_stats().in_use - in_use < 20'000);  // not all of t
    CHECK(copy.to_vector<float>() == std::vector<float>(2000, 1));
    CHECK(part.data<float>()[1999] == static_cast<float>(begin + 1999));
  }
}

TEST_CASE("who is left when the others have gone writes where the bytes are") {
  for (const bool copy_stays : {false, true}) {
    Tensor t = counted(1000);
    Tensor copy = internal::lazy_copy(t);
    const Tensor second = internal::lazy_copy(copy);
    const std::byte* bytes = t.bytes();
    (void)std::exchange(copy_stays ? t : copy, Tensor());
    const_cast<Tensor&>(second) = Tensor();
    const Tensor& left = copy_stays ? copy : t;
    CHECK(left.is_exclusive());
    fill(left, 3);
    CHECK(left.bytes() == bytes);
    const Tensor again = internal::lazy_copy(left);
    fill(left, 4);
    CHECK(again.to_vector<float>() == std::vector<float>(1000, 3));
  }
}

TEST_CASE("all bytes go back, in whatever order the sides end") {
  const AllocatorStats before = allocator_stats();
  for (int order = 0; order < 6; ++order) {
    Tensor t[3];
    t[0] = counted(1000);
    t[1] = internal::lazy_copy(t[0]);
    t[2] = internal::lazy_copy(t[1]);
    if (order % 2) fill(t[order / 2], 1);
    const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (const int i : orders[order]) t[i] = {};
  }
  auto owner = std::make_shared<std::vector<float>>(1000, 1);
  {
    auto borrowed = Storage::borrow(owner->data(), 4000, owner);
    const Tensor t(make_ref<TensorImpl>(borrowed, Shape{1000}, Shape{1}, 0, float32, true));
    borrowed = nullptr;
    Tensor copy = internal::lazy_copy(t);
    CHECK(copy.storage()->borrowed());
    CHECK(allocator_stats().borrowed == before.borrowed + 4000);
    fill(copy, 2);
    CHECK_FALSE(copy.storage()->borrowed());
    CHECK(owner->front() == 1);
  }
  CHECK(owner.use_count() == 1);
  CHECK(allocator_stats().in_use == before.in_use);
  CHECK(allocator_stats().borrowed == before.borrowed);
}

TEST_CASE("what another process has is copied before it is written, though nobody here shares it") {
  const size_t before = allocator_stats().borrowed;
  const auto is_copied = [](const Tensor& t) {
    CHECK(t.storage()->shares_bytes());
    CHECK_FALSE(t.is_exclusive());
    const std::byte* const there = t.bytes();
    fill(t, 5);
    CHECK(t.bytes() != there);
    CHECK_FALSE(t.storage()->borrowed());
    CHECK(t.to_vector<float>() == std::vector<float>(static_cast<size_t>(t.numel()), 5));
  };
  is_copied(received(counted(1000)));
  Tensor first = received(counted(1000)), second = internal::lazy_copy(first);
  first = {};
  is_copied(second);  // the last one that has these bytes
  const Tensor whole = received(counted(1000)), view = whole.alias({500}, {2}, 0);
  is_copied(view);
  CHECK(whole.data<float>()[1] == 1);
  CHECK(whole.data<float>()[2] == 5);
  write_data<float>(received(counted(10)), "my loop")[0] = 3;
  expose_data<float>(received(counted(10)), "my array")[0] = 3;
  const Tensor leaf = received(counted(10));
  internal::replace_if_held(leaf);
  is_copied(leaf);
  Tensor given = received(counted(1000));
  CHECK(given.is_sole_handle());
  const TensorImpl* const impl = given.impl();
  internal::own_elements(given);  // whoever gets it copies before a write
  CHECK(given.impl() == impl);
  CHECK(given.storage()->borrowed());
  given = second = first = {};
  CHECK(allocator_stats().borrowed == before);
}

TEST_CASE("small parts, strided views and other people's memory are copied at once") {
  const Tensor small = counted(1000).alias({8}, {1}, 16), strided = counted(2000).alias({1000}, {2}, 0);
  auto owner = std::make_shared<std::vector<float>>(1000, 1);
  const Tensor theirs(make_ref<TensorImpl>(Storage::wrap(owner->data(), 4000, owner), Shape{1000}, Shape{1},
                                           0, float32, true));
  for (const Tensor& t : {small, strided, theirs}) {
    const Tensor copy = internal::lazy_copy(t);
    CHECK_FALSE(same_bytes(t, copy));
    CHECK(copy.is_contiguous());
    CHECK(copy.to_vector<float>() == t.to_vector<float>());
  }
  fill(theirs, 2);
  CHECK(owner->front() == 2);
}

TEST_CASE("what nobody else has is given away as it is") {
  Tensor t = counted(1000);
  const TensorImpl* impl = t.impl();
  internal::own_elements(t);
  CHECK(t.impl() == impl);
  const Tensor mine = t;
  internal::own_elements(t);
  CHECK(t.impl() != impl);
  CHECK(same_bytes(t, mine));
  Tensor view = mine.alias({10}, {1}, 0);  // the only handle on the view, but not on its elements
  internal::own_elements(view);
  CHECK_FALSE(same_bytes(view, mine));
  Tensor none;
  internal::own_elements(none);
  CHECK_FALSE(none.defined());
}

TEST_CASE("a tensor as of now keeps its place in the graph") {
  const Tensor w = counted(1000).requires_grad_();
  const Tensor now = internal::as_of_now(w);
  CHECK(now.requires_grad());
  CHECK(now.gradient_edge().node == w.gradient_edge().node);
  CHECK_FALSE(internal::lazy_copy(w).requires_grad());
  CHECK_FALSE(internal::as_of_now(Tensor()).defined());
}

TEST_CASE("a loop of one's own announces its writes") {
  const Tensor t = counted(1000), copy = internal::lazy_copy(t);
  float* x = write_data<float>(t, "my loop");
  for (int64_t i = 0; i < 1000; ++i) x[i] = 9;
  CHECK(t.version() == 1);
  CHECK(copy.data<float>()[999] == 999);
  CHECK_THAT(invalid_text([&] { write_data<double>(t, "my loop"); }), Catch::Contains("float32"));
  CHECK_THAT(invalid_text([] { write_data<float>(Tensor(), "my loop"); }), Catch::Contains("[my loop]"));
}

TEST_CASE("elements that a pointer of the program's own is kept to are copied at once") {
  Tensor t = counted(1000);
  const Tensor before = internal::lazy_copy(t);  // has the same bytes until now
  float* x = expose_data<float>(t, "my array");
  const Tensor view = t.alias({500}, {1}, 0), copy = internal::lazy_copy(t), now = internal::as_of_now(view);
  x[0] = 9;
  CHECK(t.data<float>() == x);
  CHECK(view.data<float>()[0] == 9);
  for (const Tensor& other : {before, copy, now}) CHECK(other.data<float>()[0] == 0);
  const uint32_t version = t.version();
  fill(t, 3);
  CHECK(t.version() == version + 1);
  CHECK(t.data<float>() == x);  // it stays good
  const Tensor mine = t;
  internal::own_elements(t);
  x[1] = 8;
  CHECK(t.data<float>()[1] == 3);
  CHECK(mine.data<float>()[1] == 8);
  CHECK(expose_data<float>(mine, "my array") == x);  // once more changes nothing
  const Tensor seen = counted(1000), part = seen.alias({1000}, {1}, 0);
  float* first = expose_data<float>(seen, "my array");  // a view has them, too
  CHECK(part.data<float>() == first);
  const Tensor sent = internal::lazy_copy(part);
  first[0] = 9;
  CHECK(part.data<float>()[0] == 9);
  CHECK(sent.data<float>()[0] == 0);
  CHECK_THAT(invalid_text([&] { expose_data<double>(mine, "my array"); }), Catch::Contains("float32"));
  CHECK_THAT(invalid_text([] { expose_data<float>(Tensor(), "my array"); }), Catch::Contains("[my array]"));
}

TEST_CASE("both sides may be written, read and shared by threads of their own at the same time") {
  std::atomic<int> wrong{0};  // checks of this library are not for threads
  const auto all_are = [&](const Tensor& t, float value) {
    for (const float x : t.to_vector<float>()) wrong += x != value;
  };
  for (int round = 0; round < 200; ++round) {
    const Tensor t = counted(2000);
    std::vector<Tensor> copies;
    for (int i = 0; i < 3; ++i) copies.push_back(internal::lazy_copy(t));
    const Tensor read_by_two = internal::lazy_copy(t);
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i)
      threads.emplace_back([&all_are, copy = std::move(copies[static_cast<size_t>(i)]), i] {
        fill(copy, i);
        all_are(copy, static_cast<float>(i));
      });
    for (int i = 0; i < 2; ++i)
      threads.emplace_back([&] {
        const Tensor more = internal::lazy_copy(read_by_two);
        fill(more, -1);
        wrong += read_by_two.data<float>()[1999] != 1999;
        all_are(more, -1);
      });
    copies.clear();
    fill(t, 5);
    for (auto& thread : threads) thread.join();
    all_are(t, 5);
  }
  CHECK(wrong == 0);
}
