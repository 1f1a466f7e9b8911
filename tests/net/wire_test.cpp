// The wire format: what goes in comes out, and what should never have been sent is refused.
#include "net/wire/wire.h"
#include "core/tensor/creation.h"

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "net/protocol/frame.h"

using namespace troupe;
using namespace troupe::internal::net;

namespace {

bool same(const Value& a, const Value& b) {
  if (a.v.index() != b.v.index()) return false;
  if (auto* t = a.get_if<Tensor>()) return bit_equal(*t, *b.get_if<Tensor>());
  if (auto* r = a.get_if<RefValue>()) {
    const auto& o = *b.get_if<RefValue>();
    return r->id == o.id && r->type == o.type && r->sender == o.sender && r->pin == o.pin;
  }
  if (auto* l = a.get_if<ValueList>()) {
    const auto& o = *b.get_if<ValueList>();
    return std::equal(l->begin(), l->end(), o.begin(), o.end(), same);
  }
  if (auto* m = a.get_if<ValueMap>()) {
    const auto& o = *b.get_if<ValueMap>();
    return std::equal(m->begin(), m->end(), o.begin(), o.end(), [](const auto& x, const auto& y) {
      return x.first == y.first && same(x.second, y.second);
    });
  }
  if (auto* d = a.get_if<double>()) return std::memcmp(d, b.get_if<double>(), sizeof(double)) == 0;
  if (auto* s = a.get_if<std::string>()) return *s == *b.get_if<std::string>();
  if (auto* s = a.get_if<Bytes>()) return *s == *b.get_if<Bytes>();
  if (auto* i = a.get_if<int64_t>()) return *i == *b.get_if<int64_t>();
  if (auto* x = a.get_if<bool>()) return *x == *b.get_if<bool>();
  return true;
}

Value through_the_wire(const Value& v) {
  Call call;
  call.args.push_back(v);
  Packet packet = decode(encode(call));
  ValueList& args = std::get<Call>(packet).args;
  REQUIRE(args.size() == 1);
  return args[0];
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    REQUIRE(e.kind() == ErrorKind::invalid);
    REQUIRE(e.message().starts_with("[wire] "));
    return e.message();
  }
  FAIL("not refused");
  return {};
}

Value nested(int levels, bool maps) {  // `levels` values in each other, counting the leaf
  Value v = int64_t{1};
  for (int i = 1; i < levels; ++i) v = maps ? Value(ValueMap{{"k", v}}) : Value(ValueList{v});
  return v;
}

Message tensor_call(const Tensor& t) {
  Call call;
  call.args.push_back(t);
  return encode(call);
}

}  // namespace

TEST_CASE("every kind of value survives the wire", "[wire]") {
  const double nan = std::bit_cast<double>(uint64_t{0x7ff8000000abcdef});
  const std::vector<Value> values = {
      Value{},
      true,
      false,
      int64_t{0},
      std::numeric_limits<int64_t>::min(),
      std::numeric_limits<int64_t>::max(),
      0.0,
      -0.0,
      nan,
      std::numeric_limits<double>::infinity(),
      5e-324,
      std::string(),
      std::string("abc"),
      std::string("a\0b\0", 4),
      std::string("\xff\xfe no UTF-8"),
      std::string(100000, 'x'),
      Bytes{},
      Bytes{std::byte{0}, std::byte{255}},
      Bytes(70001, std::byte{7}),
      RefValue{{1, 2, 3}, "Layer", 4, 5},
      RefValue{},
      ValueList{},
      ValueMap{},
      ValueList{int64_t{1}, std::string("two"), ValueList{3.0}, Value{}},
      ValueMap{{"", int64_t{1}}, {"key", ValueMap{{"inner", true}}}, {std::string("\0", 1), Value{}}},
  };
  for (const auto& v : values) {
    INFO(v.describe());
    REQUIRE(same(through_the_wire(v), v));
  }
  REQUIRE(same(through_the_wire(ValueList(values.begin(), values.end())),
               ValueList(values.begin(), values.end())));
}

TEST_CASE("tensors survive the wire in every dtype and geometry", "[wire]") {
  const Tensor base = tensor({{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}}, float32);
  const std::vector<Tensor> tensors = {
      base,
      tensor({1.5, -0.0}, float64),
      tensor({{{1}}, {{-1}}}),
      tensor({INT32_MIN, 7}, int32),
      tensor({{255, 7, 0}}, uint8),
      tensor({true, false, true}),
      tensor({1.5, -0.0, HUGE_VAL}, bfloat16),
      tensor({{1.5}, {65504}, {6e-8}}, float16),
      full({4, 3}, 2, bfloat16).alias({3, 2}, {1, 6}, 0),
      tensor(3.0),
      empty({0}),
      empty({3, 0, 2}, boolean),
      zeros({1, 1, 1, 1, 1, 1, 1, 1}),
      base.alias({4, 3}, {1, 4}, 0),  // transposed
      base.alias({4}, {1}, 4),        // a row: contiguous, not at the start
      base.alias({3}, {4}, 2),        // a column
      base.alias({5, 4}, {0, 1}, 0),  // a row five times
      Tensor(),                       // undefined
  };
  for (const auto& t : tensors) {
    INFO(t.summary());
    const Value back = through_the_wire(t);
    REQUIRE(bit_equal(*back.get_if<Tensor>(), t));
  }
}

TEST_CASE("contiguous tensors are sent without a copy, others with only the bytes in use", "[wire]") {
  const Tensor base = zeros({100, 10});
  const Tensor row = base.alias({10}, {1}, 30);
  Message m = tensor_call(row);
  REQUIRE(m.buffers.size() == 1);
  REQUIRE(m.buffers[0].storage == base.storage());
  REQUIRE(m.buffers[0].offset == 120);
  REQUIRE(m.buffers[0].size == 40);
  m = tensor_call(base.alias({100}, {10}, 0));
  REQUIRE_FALSE(m.buffers[0].storage == base.storage());
  REQUIRE(m.buffers[0].size == 400);
  m = tensor_call(empty({0, 5}));
  REQUIRE(m.buffers.size() == 1);
  REQUIRE(m.buffers[0].size == 0);
  Packet packet = decode(tensor_call(row));
  REQUIRE(std::get<Call>(packet).args[0].get_if<Tensor>()->storage() == base.storage());
}

TEST_CASE("calls and replies keep all their fields", "[wire]") {
  Call call{.id = 5,
            .target = {1, 2, 3},
            .method = method_id("forward"),
            .timeout_us = 60'000'000,
            .context = 9,
            .grad_enabled = false,
            .link = {77, {1, 0}, true},
            .args = {zeros({2}), zeros({3}), int64_t{4}}};
  Packet packet = decode(encode(call));
  const auto& c = std::get<Call>(packet);
  REQUIRE((c.id == 5 && c.target == ObjectId{1, 2, 3} && c.method == method_id("forward") && c.context == 9));
  REQUIRE((c.timeout_us == 60'000'000 && !c.grad_enabled && c.link.pair == 77));
  REQUIRE((c.link.shared && c.link.tensors == std::vector<uint32_t>{1, 0}));
  REQUIRE((c.args.size() == 3 && c.store_as == 0));
  packet = decode(encode(Call{.target = {1, 2, 3}, .store_as = uint64_t{1} << 40}));
  REQUIRE(std::get<Call>(packet).store_as == uint64_t{1} << 40);
  const size_t words = encode(call).header.size();
  for (const uint8_t halves : {0, 1, 2}) {  // at no cost
    call.halves = halves;
    const Message message = encode(call);
    REQUIRE(message.header.size() == words);
    packet = decode(message);
    REQUIRE((std::get<Call>(packet).halves == halves && std::get<Call>(packet).id == 5 &&
             !std::get<Call>(packet).grad_enabled));
    packet = decode(encode(Call{.target = {1, 2, 3}, .halves = halves, .store_as = 7}));
    REQUIRE((std::get<Call>(packet).halves == halves && std::get<Call>(packet).store_as == 7));
  }

  Reply reply{.id = 6, .result = Value(ValueList{zeros({2})}), .link = {8, {0}, false, {0, UINT64_MAX}}};
  packet = decode(encode(reply));
  const auto& r = std::get<Reply>(packet);
  REQUIRE(r.link.waits == std::vector<uint64_t>{0, UINT64_MAX});
  REQUIRE((r.id == 6 && r.link.pair == 8 && !r.link.shared && r.link.tensors.size() == 1 &&
           same(r.result.value(), reply.result.value())));
  packet = decode(encode(Reply{}));
  REQUIRE(std::get<Reply>(packet).result.value().is_null());
}

TEST_CASE("late arguments are those that are null, each once, in order, of a call that has an answer",
          "[wire]") {
  const Call good{.id = 5,
                  .target = {1, 2, 3},
                  .args = {Value(), int64_t{4}, Value()},
                  .late = {{0, 7}, {2, 0xfffffffe}},
                  .late_number = uint64_t{1} << 40};
  Packet packet = decode(encode(good));
  const auto& c = std::get<Call>(packet);
  REQUIRE((c.late_number == uint64_t{1} << 40 && c.late.size() == 2));
  REQUIRE(
      (c.late[0].index == 0 && c.late[0].from == 7 && c.late[1].index == 2 && c.late[1].from == 0xfffffffe));
  REQUIRE(encode(good).header.capacity() == encode(good).header.size());
  packet = decode(encode(Call{.id = 5, .target = {1, 2, 3}, .args = {Value()}}));
  REQUIRE((std::get<Call>(packet).late_number == 0 && std::get<Call>(packet).late.empty()));
  const auto with = [&](auto&& change) {
    Call call = good;
    change(call);
    refusal([&] { decode(encode(call)); });
  };
  with([](Call& call) { call.late_number = 0; });
  with([](Call& call) { call.id = 0; });
  with([](Call& call) { call.target.number = 0; });  // a service
  with([](Call& call) { call.late[1].index = 1; });  // is there
  with([](Call& call) { call.late[1].index = 3; });
  with([](Call& call) { call.late[1].index = 0; });
  with([](Call& call) { std::swap(call.late[0], call.late[1]); });
  with([](Call& call) { call.late.resize(4); });
}

TEST_CASE("the number of a joint call stands behind its arguments, and takes no room in other calls",
          "[wire]") {
  Call call{.id = 5, .target = {1, 2, 3}, .joint = uint64_t{1} << 63 | 7, .args = {int64_t{4}, Value()}};
  Packet packet = decode(encode(call));
  REQUIRE((std::get<Call>(packet).joint == call.joint && std::get<Call>(packet).args.size() == 2));
  REQUIRE(encode(call).header.capacity() == encode(call).header.size());
  const size_t with = encode(call).header.size();
  call.joint = 0;
  packet = decode(encode(call));
  REQUIRE((std::get<Call>(packet).joint == 0 && std::get<Call>(packet).args.size() == 2));
  REQUIRE(encode(call).header.size() < with);
  for (const Value& last : {Value(), Value(int64_t{0}), Value(std::string("7"))}) {
    Message wrong = encode(Call{.id = 5, .target = {1, 2, 3}, .args = {last}});
    wrong.header[0] |= 128;
    refusal([&] { decode(std::move(wrong)); });
  }
  Message none = encode(Call{.id = 5, .target = {1, 2, 3}});
  none.header[0] |= 128;
  refusal([&] { decode(std::move(none)); });
}

TEST_CASE("that a result was handed over takes one word", "[wire]") {
  const Message m = encode(Reply{.id = 9, .handed_over = true});
  REQUIRE(m.header.size() == 1);
  Packet packet = decode(m);
  const auto& r = std::get<Reply>(packet);
  REQUIRE((r.id == 9 && r.handed_over && r.result.value().is_null() && !r.link.pair));
  // Or, where the caller wants to look at it as well, comes with a reference.
  packet = decode(encode(Reply{.id = 9, .result = Value(RefValue{{1, 1, 7}, "T"}), .handed_over = true}));
  REQUIRE(std::get<Reply>(packet).handed_over);
  REQUIRE(std::get<Reply>(packet).result.value().get_if<RefValue>()->id.number == 7);
  REQUIRE_FALSE(std::get<Reply>(decode(encode(Reply{.id = 9, .result = Value(int64_t{1})}))).handed_over);
  Message wrong = encode(Reply{.id = 9, .result = Value(int64_t{1})});
  wrong.header[0] |= 16;
  REQUIRE_THROWS_AS(decode(std::move(wrong)), Error);
}

TEST_CASE("an error arrives with its kind, text, trail and worker", "[wire]") {
  for (int kind = 0; kind < kErrorKindCount; ++kind) {
    const Error sent = Error(static_cast<ErrorKind>(kind), "[matmul] inner dimensions differ")
                           .with_worker("w3")
                           .crossing("Layer::forward on w1")
                           .crossing("")
                           .crossing("step on w0");
    Reply reply;
    reply.result = sent;
    Packet packet = decode(encode(reply));
    const Error& got = std::get<Reply>(packet).result.error();
    REQUIRE(got.kind() == sent.kind());
    REQUIRE(got.message() == sent.message());
    REQUIRE(got.trail() == sent.trail());
    REQUIRE(got.worker() == "w3");
    REQUIRE(std::string(got.what()) == sent.what());
  }
}

TEST_CASE("an echo of one integer takes at most 200 bytes on the wire, there and back", "[wire]") {
  Call call{.id = 1,
            .target = {1, 0, 1},
            .method = method_id("echo"),
            .timeout_us = 60'000'000,
            .args = {int64_t{42}}};
  const auto bytes = [](const Message& m) {
    return kPrefixBytes + 8 * m.buffers.size() + 8 * m.header.size();
  };
  const size_t there = bytes(encode(call)),
               back = bytes(encode(Reply{.id = 1, .result = Value(int64_t{42})}));
  INFO(there << " there, " << back << " back");
  REQUIRE(there + back <= 200);
  REQUIRE(bytes(encode(Cancel{1})) == kPrefixBytes + 8);
}

TEST_CASE("the header is exactly as large as it was counted to be", "[wire]") {
  Call call;
  call.args = {std::string(),
               std::string("1234567"),
               std::string("12345678"),
               Bytes{},
               Bytes(9),
               ValueList{},
               ValueMap{},
               ValueMap{{"", std::string()}},
               RefValue{},
               RefValue{{}, "t"},
               Tensor(),
               zeros({2, 3})};
  call.link = {1, {0}};
  const Message m = encode(call);
  REQUIRE(m.header.capacity() == m.header.size());
}

TEST_CASE("32 values in each other pass, 33 are refused on the sending side", "[wire]") {
  for (bool maps : {false, true}) {
    REQUIRE(same(through_the_wire(nested(32, maps)), nested(32, maps)));
    refusal([&] { through_the_wire(nested(33, maps)); });
    refusal([&] {
      Reply r;
      r.result = nested(33, maps);
      encode(r);
    });
    Reply deep;
    deep.result = nested(32, maps);
    REQUIRE_NOTHROW(decode(encode(deep)));
  }
  refusal([&] { through_the_wire(nested(300, false)); });
}

TEST_CASE("a timeout is bounded on both sides", "[wire]") {
  for (auto [sent, got] :
       {std::pair{int64_t{-5}, int64_t{0}}, {int64_t{0}, int64_t{0}}, {int64_t{1234}, int64_t{1234}}}) {
    Packet packet = decode(encode(Call{.timeout_us = sent}));
    REQUIRE(std::get<Call>(packet).timeout_us == got);
  }
  Packet packet = decode(encode(Call{.timeout_us = std::numeric_limits<int64_t>::max()}));
  const int64_t longest = std::get<Call>(packet).timeout_us;
  REQUIRE(longest > int64_t{10} * 365 * 24 * 3600 * 1'000'000);
  REQUIRE(longest <= std::numeric_limits<int64_t>::max() / 1000 / 2);  // added to a clock in nanoseconds
}

TEST_CASE("a gradient link names each tensor once, and only tensors that are there", "[wire]") {
  const ValueList two = {zeros({1}), zeros({1})};
  REQUIRE_NOTHROW(encode(Call{.link = {1, {1, 0}}, .args = two}));
  refusal([&] { encode(Call{.link = {1, {2}}, .args = two}); });
  refusal([&] { encode(Call{.link = {1, {0, 0}}, .args = two}); });
  refusal([&] { encode(Call{.link = {0, {0}}, .args = two}); });
  REQUIRE_NOTHROW(decode(encode(Call{.link = {1, {}}, .args = two})));
}

TEST_CASE("buffers that do not fit their tensors are refused", "[wire]") {
  const Tensor t = zeros({3, 4});
  const auto with = [&](auto&& change) {
    Message m = tensor_call(t);
    change(m);
    return refusal([&] { decode(std::move(m)); });
  };
  with([](Message& m) { m.buffers.clear(); });
  with([](Message& m) { m.buffers[0].size -= 1; });
  with([](Message& m) { m.buffers[0].size += 4; });
  with([](Message& m) { m.buffers[0].offset = 4; });
  with([](Message& m) { m.buffers[0].offset = ~size_t{0}; });
  with([](Message& m) { m.buffers[0].storage = nullptr; });
  with([](Message& m) { m.buffers.push_back(m.buffers[0]); });  // belongs to no tensor
  const auto text = with([](Message& m) { m.buffers[0].size = 40; });
  REQUIRE(text.find("float32 [3, 4] needs 48 bytes; its buffer has 40") != std::string::npos);
}

TEST_CASE("a misaligned buffer is copied into place", "[wire]") {
  const Tensor t = tensor({1, 2, 3}, float64);
  Message m = tensor_call(t);
  auto odd = Storage::allocate(25);
  std::memcpy(odd->data() + 1, t.bytes(), 24);
  m.buffers[0] = {odd, 1, 24};
  Packet packet = decode(std::move(m));
  REQUIRE(bit_equal(*std::get<Call>(packet).args[0].get_if<Tensor>(), t));
}

TEST_CASE("a bool tensor holds nothing but 0 and 1, on both sides", "[wire]") {
  const Tensor good = tensor({true, false, true});
  Message m = tensor_call(good);
  m.buffers[0].storage->data()[1] = std::byte{2};
  refusal([&] { decode(m); });
  refusal([&] { tensor_call(good); });
}

TEST_CASE("what is no kind of packet, or not a whole one, is refused", "[wire]") {
  const Message good = encode(Call{.args = {std::string("some text")}});
  const auto with = [&](auto&& change) {
    Message m = good;
    change(m.header);
    refusal([&] { decode(std::move(m)); });
  };
  REQUIRE_NOTHROW(decode(good));
  with([](auto& h) { h.clear(); });
  with([](auto& h) { h.resize(1); });
  with([](auto& h) { h.pop_back(); });
  with([](auto& h) { h[0] &= ~uint64_t{15}; });  // kind 0
  with([](auto& h) { h[0] |= 15; });
  with([](auto& h) { h[0] |= 128; });  // a joint call without a number
  with([](auto& h) { h[0] = 2; });     // kept, as object 0
  with([](auto& h) { h[0] = 5; });     // a cancel with a body
  const auto bare = [](uint64_t word) { return refusal([&] { decode({{word}, {}}); }); };
  for (uint64_t kind : {1, 2, 3, 4}) bare(1 << 8 | kind);
  bare(1 << 8 | 16 | 5);  // a cancel with a flag
  REQUIRE_NOTHROW(decode({{1 << 8 | 5}, {}}));
  refusal([&] { decode({{1 << 8 | 6}, tensor_call(zeros({1})).buffers}); });
  with([](auto& h) { h.assign(h.size(), ~uint64_t{0}); });
  with([](auto& h) { h[1] = ~uint64_t{0}; });
}
