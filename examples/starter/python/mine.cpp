#include <troupe/library.h>
#include <troupe/troupe.h>
using namespace troupe;

struct Half : Actor {  // a part of the model
  Half(int64_t in, int64_t out) : fc(in, out) {}
  Tensor forward(Tensor x) { return tanh(fc(x)); }
  nn::Linear fc;
  static constexpr auto remote =
      methods<constructor<int64_t, int64_t>, &Half::forward>;  // what Python may call
};

TROUPE_LIBRARY(Half)
