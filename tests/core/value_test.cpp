// Values: what they say they are, and walks over the tensors and references in them.
#include "core/value/value.h"
#include "core/tensor/creation.h"

#include <catch2/catch.hpp>

using namespace troupe;

TEST_CASE("a value says what it holds") {
  CHECK(Value().describe() == "nothing");
  CHECK(Value().is_null());
  CHECK(Value(true).describe() == "bool");
  CHECK(Value(int64_t{3}).describe() == "int64");
  CHECK(Value(3).describe() == "int64");
  CHECK(Value(2.5).describe() == "double");
  CHECK(Value("text").describe() == "string");
  CHECK(Value(Bytes(5)).describe() == "5 bytes");
  CHECK(Value(zeros({3, 4})).describe() == "tensor float32 [3, 4]");
  CHECK(Value(Tensor()).describe() == "tensor undefined tensor");
  CHECK(Value(RefValue{.type = "Layer"}).describe() == "reference to Layer");
  CHECK(Value(ValueList(2)).describe() == "list of 2");
  CHECK(Value(ValueMap{{"a", 1}}).describe() == "map of 1");
}

TEST_CASE("a value gives only what it holds") {
  Value v = 7;
  REQUIRE(v.get_if<int64_t>());
  CHECK(*v.get_if<int64_t>() == 7);
  CHECK(v.get_if<double>() == nullptr);
  *v.get_if<int64_t>() = 8;
  const Value copy = v;
  CHECK(*copy.get_if<int64_t>() == 8);
  CHECK(std::get<std::string>(Value("x").v) == "x");
}

TEST_CASE("tensors and references are visited in order of appearance, at any depth") {
  const auto number = [](int64_t n) { return tensor(static_cast<double>(n)); };
  const auto ref = [](uint64_t n) { return RefValue{.id = {1, 2, n}}; };
  ValueList tree{number(0),
                 5,
                 ValueList{number(1), ref(1), ValueMap{{"b", number(3)}, {"a", number(2)}, {"c", ref(2)}}},
                 Value(),
                 number(4),
                 ref(3)};
  std::vector<double> tensors;
  visit_tensors(tree, [&](Tensor& t) { tensors.push_back(t.item()); });
  CHECK(tensors == std::vector<double>{0, 1, 2, 3, 4});
  std::vector<uint64_t> refs;
  visit_refs(tree, [&](RefValue& r) { refs.push_back(r.id.number); });
  CHECK(refs == std::vector<uint64_t>{1, 2, 3});
  visit_tensors(tree, [&](Tensor& t) { t = number(9); });
  CHECK(tree[0].get_if<Tensor>()->item() == 9);
  Value alone = number(6);
  visit_tensors(alone, [&](Tensor& t) { tensors = {t.item()}; });
  CHECK(tensors == std::vector<double>{6});
}

TEST_CASE("object names are ordered by owner, creator and number") {
  CHECK(ObjectId{1, 2, 3} == ObjectId{1, 2, 3});
  CHECK(ObjectId{1, 2, 3} < ObjectId{1, 2, 4});
  CHECK(ObjectId{1, 9, 9} < ObjectId{2, 0, 0});
  CHECK(ObjectId{}.owner == kNoWorker);
  CHECK(ObjectId{}.number == 0);
}
