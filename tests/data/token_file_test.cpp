// Files of token ids: what is written is read, and windows are those of ids in memory.
#include "data/datasets/token_file.h"

#include <catch2/catch.hpp>

#include <fstream>

#include "data/datasets/text.h"
#include "data/streams/source.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"

using namespace troupe;
using namespace troupe::datasets;
using testing::error_of;

TEST_CASE("token files hold ids of two or four bytes, and windows of them") {
  const testing::Folder folder;
  const std::string path = (folder.path / "train.bin").string();
  for (const int bytes : {2, 4}) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < 100; ++i) ids.push_back(bytes == 2 ? i * 655 : i * 42949672);
    write_token_file(path, ids, bytes);
    const TokenFile file(path, bytes);
    CHECK(file.size() == 100);
    CHECK(file.read(0, 100).to_vector<int64_t>() == ids);
    CHECK(file.read(98, 2).to_vector<int64_t>() == std::vector<int64_t>{ids[98], ids[99]});
    Generator a(3), b(3);
    const Dataset in_file = file.random_windows(7, 50, a), in_memory = random_windows(tensor(ids), 7, 50, b);
    CHECK(ops::equal(in_file.x, in_memory.x));
    CHECK(ops::equal(in_file.y, in_memory.y));
    const Dataset part = file.random_windows(5, 200, a, 20, 30);
    CHECK(ops::amin(part.x.flatten(), {0}).item<int64_t>() == ids[20]);
    CHECK(ops::amax(part.y.flatten(), {0}).item<int64_t>() == ids[29]);
  }
}

TEST_CASE("token files that are none are refused") {
  const testing::Folder folder;
  const std::string path = (folder.path / "bad.bin").string();
  std::ofstream(path) << "abc";
  CHECK_THAT(error_of([&] { TokenFile file(path); }).what(),
             Catch::Contains("has 3 bytes, expected a whole number of ids of 2"));
  CHECK_THAT(error_of([&] { write_token_file(path, {70000}); }).what(),
             Catch::Contains("id 70000 does not fit into 2 bytes"));
  write_token_file(path, {1, 2, 3});
  Generator g(1);
  CHECK_THAT(error_of([&] { (void)TokenFile(path).random_windows(3, 1, g); }).what(),
             Catch::Contains("expected more ids than a window has"));
  CHECK_THAT(error_of([&] { (void)TokenFile(path).read(2, 2); }).what(),
             Catch::Contains("ids 2 to 4 were asked for, and it has 3"));
  CHECK_THAT(error_of([&] { TokenFile file(path, 3); }).what(), Catch::Contains("expected 2 or 4"));
}

TEST_CASE("token files of two widths are not one source") {
  const testing::Folder folder;
  const std::string two = (folder.path / "two.bin").string(), four = (folder.path / "four.bin").string();
  std::vector<int64_t> ids(1000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 7919 % 50000);
  write_token_file(two, ids), write_token_file(four, ids, 4);
  CHECK(token_windows({two, two}, {.context = 100})->size() == 18);
  CHECK(token_windows({four}, {.context = 100, .bytes = 4})->size() == 9);
  CHECK_THAT(error_of([&] { token_windows({two, four}, {.context = 100}); }).what(),
             Catch::Contains("four.bin: every second id of 2 bytes is 0 from byte 2 on: its ids have 4 bytes"));
  CHECK_THAT(error_of([&] { token_windows({four, two}, {.context = 100, .bytes = 4}); }).what(),
             Catch::Contains("two.bin: has the id 518979584 at byte 0: its ids have 2 bytes"));
}
