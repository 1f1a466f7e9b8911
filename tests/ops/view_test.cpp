

TEST_CASE("a slice has libtorch's defaults") {
  const Tensor x = arange(12).reshape({4, 3});
  CHECK(x.slice().equal(x));
  CHECK(x.slice(0, 1).equal(x.slice(0, 1, 4)));
  CHECK(x.slice(1, 1).equal(x.slice(1, 1, 3)));
  CHECK(x.slice(0, {}, 2).equal(x.slice(0, 0, 2)));
  CHECK(x.slice(0, -1).equal(x.slice(0, 3, 4)));
  CHECK(ops::slice(x, 0, {}, {}, 2).equal(x.slice(0, 0, 4, 2)));
}
