// Many live references between two workers: what one more costs when there are a million of them.
// `troupe run -n 2 bench_refs`.
#include <malloc.h>

#include <chrono>

#include "bench/measure.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

int64_t allocated_bytes() {
  const auto info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

struct Owner : Actor {
  int64_t value(int64_t x) { return x; }
  int64_t take(std::vector<Remote<int64_t>> refs) { return static_cast<int64_t>(refs.size()); }
  int64_t allocated() { return allocated_bytes(); }
  static constexpr auto remote = methods<&Owner::value, &Owner::take, &Owner::allocated>;
};

using Refs = std::vector<Remote<int64_t>>;

double seconds(const std::function<void()>& step) {
  const auto start = std::chrono::steady_clock::now();
  step();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void make(const RRef<Owner>& owner, Refs& refs, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    refs.push_back(owner.remote<&Owner::value>(static_cast<int64_t>(i)));
    if (i % 1000 == 999) refs.back().ready().get();  // the connection's queue has a bound
  }
  if (count) refs.back().ready().get();
}

}  // namespace

int main(int argc, char** argv) {
  bench::Bench bench("bench_refs", "Times references while many live; start it with troupe run -n 2.", argc,
                     argv);
  if (bench.exit_code) return *bench.exit_code;
  return launch(hosting<Owner>(), [&](Cluster& cluster) {
    const auto names = cluster.workers();
    if (names.size() < 2) throw_invalid("[bench] bench_refs needs 2 workers, got 1");
    if (!LaunchEnvironment::read()) bench.set_placement("in-process");
    const auto owner = cluster.spawn<Owner>(names[1]);
    const auto batch = static_cast<size_t>(bench.count(1000));
    Refs refs;
    refs.reserve(2'000'000);
    make(owner, refs, batch);  // what the first ones need besides
    refs.clear();
    const int64_t here = allocated_bytes(), there = owner.call<&Owner::allocated>().get();
    for (int live : {1'000, 10'000, 100'000, 1'000'000}) {
      make(owner, refs,
           static_cast<size_t>(bench.count(live)) -
               std::min(refs.size(), static_cast<size_t>(bench.count(live))));
      const auto line = [&](const char* name, double s) {
        bench.emit(name, s * 1e6 / static_cast<double>(batch), "us", {{"live", live}});
      };
      Refs more;
      line("refs_create_us", seconds([&] { make(owner, more, batch); }));
      line("refs_copy_us", seconds([&] { (void)Refs(more).size(); }));
      line("refs_pass_us", seconds([&] { owner.call<&Owner::take>(more).get(); }));
      line("refs_drop_us", seconds([&] {
             more.clear();
             owner.call<&Owner::value>(0).get();  // behind the messages that give them back
           }));
      size_t next = 0;
      bench.emit("refs_fetch_us",
                 bench.median_us([&] { refs[(next += 7919) % refs.size()].to_here().get(); }, 1000, 50), "us",
                 {{"live", live}});
    }
    const double all = static_cast<double>(refs.size());
    if (!bench.quick()) {
      bench.emit("refs_holder_bytes", static_cast<double>(allocated_bytes() - here) / all, "B",
                 {{"live", 1'000'000}});
      bench.emit("refs_owner_bytes", static_cast<double>(owner.call<&Owner::allocated>().get() - there) / all,
                 "B", {{"live", 1'000'000}});
    }
    bench.emit("refs_drop_all_us",
               seconds([&] {
                 refs.clear();
                 owner.call<&Owner::value>(0).get();
               }) * 1e6 /
                   all,
               "us", {{"live", 1'000'000}});
  });
}
