#include "tests/soak/script.h"

#include "actors/worker/worker.h"

namespace troupe::soak {

WorkerId Script::any_worker() {
  const auto members = process.worker->members().all();
  return members[pick(members.size())].id;
}

Tensor Script::tensor() { return troupe::tensor({float(1 + random.below(4)), float(1 + random.below(4))}); }

void Script::expect(const std::string& where, const Tensor& got, const Tensor& x, double times) {
  if (!alive()) return;
  const auto a = got.to_vector<double>(), b = x.to_vector<double>();
  if (a.size() == 2 && a[0] == b[0] * times && a[1] == b[1] * times) return;
  cluster.wrong(where + " gave a wrong result");
}

RRef<Unit> Script::unit(WorkerId on, int64_t number) {
  auto made = process.spawn<Unit>(on, number);
  cluster.numbers[made.id()] = number;
  return made;
}

namespace {

// A coroutine that nobody waits for; frees itself.
struct Driven {
  struct promise_type {
    Driven get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

Driven drive(std::shared_ptr<Script> script, Body body) {
  try {
    co_await body(*script);
  } catch (...) {
    if (script->alive()) script->cluster.wrong(std::string("a program ended with ") + current_error().what());
  }
  --script->process.programs;
}

}  // namespace

void start(Cluster& cluster, Process& process, Body body, uint64_t stream) {
  ++process.programs;
  CallFrameScope scope({.worker = process.worker});
  drive(std::make_shared<Script>(cluster, process, stream), body);
}

}  // namespace troupe::soak
