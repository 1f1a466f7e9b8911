// Text: the vocabulary is the sorted set of characters, UTF-8 is strict, windows are followed by their
// targets.
#include "data/datasets/text.h"
#include "core/tensor/creation.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "data/datasets/loader.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"

using namespace troupe;
using datasets::Vocabulary;
using troupe::testing::Folder;
using troupe::testing::invalid_text;
using Ids = std::vector<int64_t>;

namespace {
void has(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
}
Tensor counting(int64_t n) {
  Ids ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(i);
  return tensor(ids);
}
}  // namespace

TEST_CASE("a vocabulary is the sorted set of characters", "[data][text]") {
  const std::string text = "b\u00e4a\U0001F600b\n\u20ac";  // of one to four bytes
  const Vocabulary v(text);
  CHECK(v.size() == 6);
  CHECK(v.characters() == "\nab\u00e4\u20ac\U0001F600");
  const Tensor ids = v.encode(text);
  CHECK(ids.summary() == "int64 [7]");
  CHECK(ids.to_vector<int64_t>() == Ids{2, 3, 1, 5, 2, 0, 4});
  CHECK(v.decode(ids) == text);
  CHECK(v.decode(tensor({{1, 1}, {2, 2}})) == "aabb");
  CHECK(Vocabulary(v.characters()) == v);
  CHECK(Vocabulary("").size() == 0);
  has(invalid_text([&] { v.encode("ab\u00fc"); }),
      "the character U+00FC (\u00fc) at byte 2 is not among the 6");
  has(invalid_text([&] { v.encode("c"); }), "U+0063 (c) at byte 0");
  has(invalid_text([&] { v.decode(tensor({1, 6})); }), "number 6 at place 1, expected 0 to 5");
  has(invalid_text([&] { v.decode(tensor({-1})); }), "number -1");
  has(invalid_text([&] { v.decode(tensor({1}, float32)); }), "cannot decode float32 [1]");
}

TEST_CASE("bytes that are no UTF-8 are refused with their place", "[data][text]") {
  for (const char* bad : {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc3", "\xc3(", "\xe0\x80\x80",
                          "\xe0\x9f\xbf", "\xe2\x82", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x80\x80\x80",
                          "\xf0\x9f\x98", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xfe", "\xff"}) {
    const std::string text = std::string("ok\u00e4") + bad;
    has(invalid_text([&] { Vocabulary v(text); }), "[text] no UTF-8 at byte 4, which is 0x");
    has(invalid_text([&] { Vocabulary("ok\u00e4").encode(text); }), "at byte 4");
  }
  for (const char* good : {"\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    CHECK(Vocabulary(good).characters() == good);
  Folder dir;
  has(invalid_text([&] { datasets::read_text(dir.file("f", "abc\xff")); }),
      "f: no UTF-8 at byte 3, which is 0xFF");
}

TEST_CASE("a file is read with its own vocabulary or a given one", "[data][text]") {
  Folder dir;
  const std::string path = dir.file("f", "hello\r\nhall\u00e5");
  const datasets::Text text = datasets::read_text(path);
  CHECK(text.vocabulary.characters() == "\n\raehlo\u00e5");
  CHECK(text.vocabulary.decode(text.ids) == "hello\r\nhall\u00e5");
  const datasets::Text more = datasets::read_text(dir.file("g", "hall"), text.vocabulary);
  CHECK(more.ids.to_vector<int64_t>() == Ids{4, 2, 5, 5});
  has(invalid_text([&] { datasets::read_text(path, Vocabulary("helo\r\n")); }),
      "f: the character U+0061 (a) at byte 8");
  CHECK(datasets::read_text(dir.file("empty", "")).ids.numel() == 0);
  has(invalid_text([&] { datasets::read_text(dir.path); }), "is a directory, expected a text file");
}

TEST_CASE("packed files are called by their names", "[data][text]") {
  Folder dir;
  const std::string text =
      invalid_text([&] { datasets::read_text(dir.file("t.gz", "\x1f\x8b\x08 packed")); });
  CHECK(text ==
        "[text] " + (dir.path / "t.gz").string() + ": no text, it is gzip data: unpack it first (gunzip)");
}

TEST_CASE("windows are followed by their targets", "[data][text]") {
  const datasets::Dataset set = datasets::windows(counting(10), 3);
  CHECK(set.x.shape() == Shape{3, 3});
  CHECK(set.x.to_vector<int64_t>() == Ids{0, 1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(set.y.to_vector<int64_t>() == Ids{1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(datasets::windows(counting(9), 3).size() == 2);  // the last has no target
  CHECK(datasets::windows(counting(4), 3).size() == 1);
  const datasets::Dataset close = datasets::windows(counting(10), 3, 2);
  CHECK(close.x.to_vector<int64_t>() == Ids{0, 1, 2, 2, 3, 4, 4, 5, 6, 6, 7, 8});
  CHECK(close.y.to_vector<int64_t>() == Ids{1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8, 9});
  const datasets::Batch batch =
      datasets::Loader(close, {.batch_size = 2, .shuffle = false}).epoch(0).batch(1);
  CHECK(batch.x.to_vector<int64_t>() == Ids{4, 5, 6, 6, 7, 8});
  CHECK(batch.y.to_vector<int64_t>() == Ids{5, 6, 7, 7, 8, 9});
  has(invalid_text([] { datasets::windows(counting(3), 3); }), "3 ids, expected at least 3 + 1");
  has(invalid_text([] { datasets::windows(counting(3), 0); }), "context 0");
  has(invalid_text([] { datasets::windows(counting(5), 3, -1); }), "step -1");
  has(invalid_text([] { datasets::windows(tensor({1, 2, 3}, float32), 1); }), "ids are float32 [3]");
}

TEST_CASE("random windows begin anywhere, the same for the same seed", "[data][text]") {
  Generator a(4), b(4), other(5);
  const datasets::Dataset set = datasets::random_windows(counting(6), 3, 200, a);
  std::set<int64_t> starts;
  for (int64_t i = 0; i < 200; ++i)
    for (int64_t j = 0; j < 3; ++j) {
      const int64_t x = set.x.data<int64_t>()[3 * i + j];
      if (j == 0) starts.insert(x);
      CHECK(x == set.x.data<int64_t>()[3 * i] + j);
      CHECK(set.y.data<int64_t>()[3 * i + j] == x + 1);
    }
  CHECK(starts == std::set<int64_t>{0, 1, 2});
  CHECK(bit_equal(set.x, datasets::random_windows(counting(6), 3, 200, b).x));
  CHECK(!bit_equal(set.x, datasets::random_windows(counting(6), 3, 200, other).x));
  CHECK(datasets::random_windows(counting(6), 5, 2, a).y.to_vector<int64_t>() ==
        Ids{1, 2, 3, 4, 5, 1, 2, 3, 4, 5});
}
