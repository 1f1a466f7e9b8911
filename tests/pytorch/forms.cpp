// Every operator that PyTorch has as a function and as a method, called as both.
#include <sstream>

#include "tests/pytorch/line.h"
#include "tests/pytorch/signatures.h"

namespace troupe::testing {
namespace {

struct Inputs {
  Tensor x = tensor({{1.5, -2., 3.}, {0.5, 5., -6.}}), y = tensor({{2., 1., 4.}, {3., 2., 2.}});
  Tensor p = tensor({{0.1, 0.5, 0.9}, {0.2, 0.3, 0.4}}), m = tensor({{1., 2.}, {3., 4.}});
  Tensor v = tensor({1., 2., 3.}), i = tensor({{0, 1}, {1, 0}}), at = tensor({1, 0});
  Tensor mask = tensor({{true, false, true}, {false, false, true}}), n = tensor({0, 2, 1, 2});
};
const Inputs in;

#define BOTH(name, function, method)                                       \
  {                                                                        \
    name, [] { return printed(function); }, [] { return printed(method); } \
  }
#define UNARY(name) BOTH(#name, ops::name(in.p), in.p.name())
#define BINARY(name) BOTH(#name, ops::name(in.x, in.y), in.x.name(in.y))

}  // namespace

const std::vector<Forms>& forms() {
  static const std::vector<Forms> all = {
      UNARY(abs),
      UNARY(ceil),
      UNARY(clone),
      UNARY(cos),
      UNARY(erf),
      UNARY(exp),
      UNARY(expm1),
      UNARY(floor),
      UNARY(isfinite),
      UNARY(isinf),
      UNARY(isnan),
      UNARY(log),
      UNARY(log1p),
      UNARY(log2),
      UNARY(logical_not),
      UNARY(max),
      UNARY(mean),
      UNARY(median),
      UNARY(min),
      UNARY(neg),
      UNARY(nonzero),
      UNARY(norm),
      UNARY(prod),
      UNARY(reciprocal),
      UNARY(relu),
      UNARY(round),
      UNARY(rsqrt),
      UNARY(sigmoid),
      UNARY(sign),
      UNARY(sin),
      UNARY(sqrt),
      UNARY(square),
      UNARY(std),
      UNARY(sum),
      UNARY(t),
      UNARY(tanh),
      UNARY(tril),
      UNARY(triu),
      UNARY(trunc),
      UNARY(unbind),
      UNARY(var),
      UNARY(argmax),
      UNARY(argmin),
      UNARY(argsort),
      UNARY(sort),
      UNARY(flatten),
      UNARY(diff),
      UNARY(amax),
      UNARY(amin),
      UNARY(all),
      UNARY(any),
      UNARY(count_nonzero),
      UNARY(squeeze),
      BINARY(add),
      BINARY(allclose),
      BINARY(atan2),
      BINARY(div),
      BINARY(eq),
      BINARY(equal),
      BINARY(floor_divide),
      BINARY(fmod),
      BINARY(ge),
      BINARY(gt),
      BINARY(le),
      BINARY(logical_and),
      BINARY(logical_or),
      BINARY(lt),
      BINARY(maximum),
      BINARY(minimum),
      BINARY(mul),
      BINARY(ne),
      BINARY(pow),
      BINARY(remainder),
      BINARY(sub),
      BOTH("addcdiv", ops::addcdiv(in.x, in.y, in.p, 2), in.x.addcdiv(in.y, in.p, 2)),
      BOTH("addcmul", ops::addcmul(in.x, in.y, in.p, 2), in.x.addcmul(in.y, in.p, 2)),
      BOTH("bernoulli", ops::bernoulli(in.p, Generator(1)), in.p.bernoulli(Generator(1))),
      BOTH("bincount", ops::bincount(in.n, {}, 5), in.n.bincount({}, 5)),
      BOTH("bitwise_and", ops::bitwise_and(in.mask, in.mask), in.mask.bitwise_and(in.mask)),
      BOTH("bitwise_not", ops::bitwise_not(in.mask), in.mask.bitwise_not()),
      BOTH("bitwise_or", ops::bitwise_or(in.mask, in.mask), in.mask.bitwise_or(in.mask)),
      BOTH("bitwise_xor", ops::bitwise_xor(in.mask, in.mask), in.mask.bitwise_xor(in.mask)),
      BOTH("bmm", ops::bmm(in.m[None], in.m[None]), in.m[None].bmm(in.m[None])),
      BOTH("chunk", ops::chunk(in.x, 2, 1), in.x.chunk(2, 1)),
      BOTH("clamp", ops::clamp(in.x, -1, 1), in.x.clamp(-1, 1)),
      BOTH("cumprod", ops::cumprod(in.x, 1), in.x.cumprod(1)),
      BOTH("cumsum", ops::cumsum(in.x, 1), in.x.cumsum(1)),
      BOTH("dot", ops::dot(in.v, in.v), in.v.dot(in.v)),
      BOTH("flip", ops::flip(in.x, 1), in.x.flip(1)),
      BOTH("gather", ops::gather(in.x, 1, in.i), in.x.gather(1, in.i)),
      BOTH("index_copy", ops::index_copy(in.x, 0, in.at, in.y), in.x.index_copy(0, in.at, in.y)),
      BOTH("index_select", ops::index_select(in.x, 0, in.at), in.x.index_select(0, in.at)),
      BOTH("lerp", ops::lerp(in.x, in.y, 0.25), in.x.lerp(in.y, 0.25)),
      BOTH("log_softmax", ops::log_softmax(in.x, 1), in.x.log_softmax(1)),
      BOTH("logsumexp", ops::logsumexp(in.x, 1, true), in.x.logsumexp(1, true)),
      BOTH("masked_fill", ops::masked_fill(in.x, in.mask, 9), in.x.masked_fill(in.mask, 9)),
      BOTH("masked_select", ops::masked_select(in.x, in.mask), in.x.masked_select(in.mask)),
      BOTH("matmul", ops::matmul(in.m, in.m), in.m.matmul(in.m)),
      BOTH("mm", ops::mm(in.m, in.x), in.m.mm(in.x)),
      BOTH("movedim", ops::movedim(in.x, 0, 1), in.x.movedim(0, 1)),
      BOTH("multinomial", ops::multinomial(in.p, 2, false, Generator(1)),
           in.p.multinomial(2, false, Generator(1))),
      BOTH("mv", ops::mv(in.x, in.v), in.x.mv(in.v)),
      BOTH("narrow", ops::narrow(in.x, 1, 0, 2), in.x.narrow(1, 0, 2)),
      BOTH("outer", ops::outer(in.v, in.v), in.v.outer(in.v)),
      BOTH("permute", ops::permute(in.x, {1, 0}), in.x.permute({1, 0})),
      BOTH("reshape", ops::reshape(in.x, {3, -1}), in.x.reshape({3, -1})),
      BOTH("roll", ops::roll(in.x, 1, 1), in.x.roll(1, 1)),
      BOTH("scatter_add", ops::scatter_add(in.x, 1, in.i, in.m), in.x.scatter_add(1, in.i, in.m)),
      BOTH("select", ops::select(in.x, 1, 0), in.x.select(1, 0)),
      BOTH("softmax", ops::softmax(in.x, 1), in.x.softmax(1)),
      BOTH("split", ops::split(in.x, 2, 1), in.x.split(2, 1)),
      BOTH("take", ops::take(in.x, in.at), in.x.take(in.at)),
      BOTH("topk", ops::topk(in.x, 2), in.x.topk(2)),
      BOTH("transpose", ops::transpose(in.x, 0, 1), in.x.transpose(0, 1)),
      BOTH("unsqueeze", ops::unsqueeze(in.x, 1), in.x.unsqueeze(1)),
      BOTH("where", ops::where(in.mask, in.x, in.y), in.x.where(in.mask, in.y)),
  };
  return all;
}

}  // namespace troupe::testing
