// Mixed precision goes along with calls, through waits and to third workers.
#include <catch2/catch.hpp>

#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;

namespace {

struct Layers : Actor {
  Tensor w = ones({3, 3});
  Tensor forward(Tensor x) { return matmul(x, w); }
  std::string dtype(Tensor x) { return std::string(name(forward(std::move(x)).dtype())); }
  Task<std::string> later(Tensor x) {
    const std::string before = dtype(x);
    co_await opened.future();
    co_return before + " " + dtype(x);
  }
  Task<std::string> ask(RRef<Layers> other, Tensor x) { co_return co_await other.call<&Layers::dtype>(x); }
  void open() { opened.set(); }
  Promise<void> opened;
  static constexpr auto remote =
      methods<&Layers::forward, &Layers::dtype, &Layers::later, &Layers::ask, &Layers::open>;
};

struct ThreeWorkers {
  SimulatedCluster cluster{1, 3, hosting<Layers>()};
  RRef<Layers> a = cluster.here(0).spawn<Layers>(1), b = cluster.here(0).spawn<Layers>(2);
  Tensor x = ones({2, 3});
  template <class T>
  T get(const Future<T>& f) {
    return cluster.await(f).value();
  }
  std::string dtype() { return get(a.call<&Layers::dtype>(x)); }
};

TEST_CASE_METHOD(ThreeWorkers, "methods compute in the halves of their callers") {
  Future<std::string> later, asked, nested;
  {
    const AutocastGuard amp(bfloat16);
    CHECK(dtype() == "bfloat16");
    later = a.call<&Layers::later>(x);
    asked = a.call<&Layers::ask>(b, x);
    nested = b.call<&Layers::dtype>(a.call<&Layers::forward>(x));
    CHECK(get(a.call<&Layers::forward>(x)).dtype() == bfloat16);
  }
  CHECK(dtype() == "float32");
  (void)cluster.await(a.call<&Layers::open>());
  CHECK(get(later) == "bfloat16 bfloat16");
  CHECK(get(asked) == "bfloat16");
  CHECK(get(nested) == "bfloat16");
  const AutocastGuard amp(float16);
  CHECK(dtype() == "float16");
  const NoAutocastGuard off;
  CHECK(dtype() == "float32");
}

}  // namespace
