// Has no actor type of its own: a Module on another process, by name.
#include "actors/worker/worker.h"
#include "nn/make.h"
#include "rref/ref_table.h"
#include "troupe/troupe.h"
using namespace troupe;

int main() {
  return launch([](Cluster& cluster) {
    const NoGradGuard none;
    auto& table = cluster.here().table();
    const AnyRef net(table.spawn(Place("w1").in(table.worker().members()), "Module", 0,
                                 {nn::spec_of("linear", {int64_t{2}, int64_t{3}})}));
    const Value result = net.call("forward", {zeros({5, 2})}).get();
    std::printf("result %s\n", result.get_if<Tensor>()->shape().str().c_str());
    std::printf("%s", std::get<std::string>(net.call("describe", {}).get().v).c_str());
  });
}
